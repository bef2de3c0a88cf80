"""CheXpert and CheXpert Plus, ChestX-ray14, PadChest, and Indiana University's radiographs."""

import csv
import gzip
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.training.importing.trees import imported, left_out, records_of, refused, touch, write
from training.common.errors import DataError
from training.common.manifest import read_manifest


@pytest.mark.parametrize(
    ("layout", "missing"),
    [
        ("chexpert", "There is no train.csv or train.csv.gz in "),
        ("chexpert-plus", "There is no df_chexpert_plus_240401.csv in "),
        ("nih-cxr14", "There is no Data_Entry_2017.csv or Data_Entry_2017_v2020.csv in "),
        ("padchest", "There is no PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv in "),
        ("iu-xray", "There is no indiana_reports.csv (Kaggle) in "),
    ],
)
def test_another_folder_is_told_what_is_missing(tmp_path: Path, layout: str, missing: str) -> None:
    with pytest.raises(DataError, match=re.escape(missing)):
        imported(layout, tmp_path)


HEADER = "Path,Sex,Age,Frontal/Lateral,AP/PA,No Finding,Edema,Pneumonia\n"
TRAIN = HEADER + (
    "CheXpert-v1.0-small/train/patient00001/study1/view1_frontal.jpg,Female,68,Frontal,AP,,1.0,-1.0\n"
    "CheXpert-v1.0-small/train/patient00001/study2/view2_lateral.jpg,Female,69,Lateral,,1.0,0.0,\n"
    "CheXpert-v1.0-small/train/patient00002/study1/view1_frontal.jpg,Unknown,,Frontal,PA,,1.0,1.0\n"
)
VALID = (
    HEADER
    + "CheXpert-v1.0-small/valid/patient64541/study1/view1_frontal.jpg,Male,73,Frontal,AP,0.0,1.0,0.0\n"
)


@pytest.fixture
def chexpert(tmp_path: Path) -> Path:
    folder = tmp_path / "CheXpert-v1.0-small"
    touch(tmp_path, *(line.split(",")[0] for line in (TRAIN + VALID).splitlines() if line[:3] == "Che"))
    write(folder, "train.csv", TRAIN)
    write(folder, "valid.csv", VALID)
    return folder


def test_chexpert(chexpert: Path, tmp_path: Path) -> None:
    assert imported("chexpert", chexpert).records == 4
    first, second, third, fourth = read_manifest(chexpert).records
    image = "train/patient00001/study1/view1_frontal.jpg"
    assert (first.id, first.image) == ("patient00001-study1-view1_frontal", image)
    assert (first.split, first.group, first.labels, first.texts) == ("train", "patient00001", ("Edema",), ())
    assert dict(first.metadata) == {"view": "AP", "sex": "F", "age": 68}
    assert (second.metadata["view"], second.labels) == ("LATERAL", ("No Finding",))
    assert (dict(third.metadata), third.labels) == ({"view": "PA"}, ("Edema", "Pneumonia"))
    assert (fourth.split, fourth.group) == ("val", "patient64541")
    # The folder above counts as well, for images.
    imported("chexpert", chexpert, tmp_path / "out", images=chexpert.parent)
    assert read_manifest(tmp_path / "out").records[0].image == f"images/CheXpert-v1.0-small/{image}"
    with pytest.raises(
        DataError,
        match=rf"no train.csv or train.csv.gz in {tmp_path}; {chexpert / 'train.csv'} is there: give the "
        rf"folder {chexpert}\.",
    ):
        imported("chexpert", tmp_path)


def test_patients_of_the_candidates_are_left_out_of_train(chexpert: Path, tmp_path: Path) -> None:
    candidates = tmp_path / "candidates.csv"
    write(tmp_path, candidates.name, "Path,Sex\nX/train/patient00001/study1/view1_frontal.jpg,Female\n")
    report = imported("chexpert", chexpert, leave_out=candidates)
    assert [record.group for record in read_manifest(chexpert).records] == ["patient00002", "patient64541"]
    rows, files = report.tallies
    assert (rows.found, rows.taken, rows.refused) == (4, 2, 0)
    assert rows.left_out == {f"images of patients that {candidates} names": 2}
    assert (files.found, files.taken, files.left_out) == (4, 2, {"images without a row that can be used": 2})


def test_broken_lines_of_chexpert_are_named(chexpert: Path) -> None:
    write(chexpert, "train.csv", f"{TRAIN}x/y.jpg,Male\na,b,c,d,e,f,g,h,too,many\nx/y.jpg,,,,,,,\n")
    twice, missing = VALID.splitlines()[1], VALID.splitlines()[1].replace("view1", "view9")
    write(chexpert, "valid.csv", f"{VALID}{twice}\n{missing}\n")
    report = imported("chexpert", chexpert)
    image = "valid/patient64541/study1/view9_frontal.jpg"
    assert (report.records, report.rejections.named()) == (
        4,
        [
            "Line 5 of train.csv: it has 2 fields where the header has 8.",
            "Line 6 of train.csv: it has 10 fields where the header has 8; put a value with ',' in it into "
            "quotes.",
            "Line 7 of train.csv: the path 'x/y.jpg' is not .../patientN/studyN/file.",
            f"Line 4 of valid.csv: there is no image '{image}' in {chexpert}.",
            "Line 3 of valid.csv: the id 'patient64541-study1-view1_frontal' is on line 2 already.",
        ],
    )


def test_a_table_that_pandas_has_saved_again(chexpert: Path) -> None:
    write(
        chexpert,
        "train.csv",
        ",path,sex,age,frontal/lateral,ap/pa,No Finding,Edema,Unnamed: 7\n"
        "0,CheXpert-v1.0-small\\train\\patient00001\\study1\\view1_frontal.jpg,Female,68.0,Frontal,nan,nan,1.0,1\n"
        "1,CheXpert-v1.0-small/train/patient00001/study2/view2_lateral.jpg,nan,nan,Lateral,nan,nan,0.0,1\n",
    )
    imported("chexpert", chexpert)
    first, second, *_ = read_manifest(chexpert).records
    assert (dict(first.metadata), first.labels) == ({"sex": "F", "age": 68}, ("Edema",))
    assert (dict(second.metadata), second.labels) == ({"view": "LATERAL"}, ())


@pytest.mark.parametrize(("encoding", "end"), [("utf-8", "\r"), ("utf-8-sig", "\r\n"), ("utf-16", "\n")])
def test_rows_and_images_are_all_accounted_for(chexpert: Path, encoding: str, end: str) -> None:
    touch(chexpert, "train/patient00003/study1/view1_frontal.jpg")
    broken = f'{TRAIN}"x/patient1/study1\nview.jpg",Male,1,Frontal,AP,,,\n\n,,,,,,,\n"x'
    write(chexpert, "train.csv", broken.replace("\n", end).encode(encoding))
    rows, files = imported("chexpert", chexpert).tallies
    assert (rows.found, rows.taken, rows.refused) == (7, 4, 2)
    assert (files.found, files.taken) == (5, 4)


COLUMNS = (
    *("path_to_image", "frontal_lateral", "ap_pa", "patient_report_date_order", "section_narrative"),
    *("section_findings", "section_impression", "age", "sex", "race", "ethnicity", "interpreter_needed"),
    *("insurance_type", "deceased", "split"),
)
VIEWS = (
    "patient00001/study1/view1_frontal",
    "patient00001/study1/view2_lateral",
    "patient00002/study2/view1_frontal",
)


def make_plus(folder: Path, *rows: tuple[str, dict[str, str]]) -> None:
    folder.mkdir(exist_ok=True)
    with (folder / "df_chexpert_plus_240401.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows({"path_to_image": path, "split": path.split("/")[0]} | more for path, more in rows)


@pytest.fixture
def plus(tmp_path: Path) -> Path:
    folder = tmp_path / "plus"
    first = {
        "frontal_lateral": "Frontal", "ap_pa": "AP", "age": "68.0", "sex": "Female", "race": "Asian",
        "ethnicity": "Unknown", "deceased": "No", "patient_report_date_order": "3",
        "section_findings": "The heart is\nlarge.", "section_impression": "1.  Small effusion.",
    }  # fmt: skip
    second = {"frontal_lateral": "Lateral", "section_narrative": "Two views taken."}
    third = {"sex": "Male", "section_impression": "Clear lungs."}
    rows = [
        (f"train/{VIEWS[0]}.jpg", first),
        (f"train/{VIEWS[1]}.jpg", second),
        (f"valid/{VIEWS[2]}.jpg", third),
    ]
    make_plus(folder, *rows)
    touch(folder, *(f"PNG/PNG/{path.replace('.jpg', '.png')}" for path, _ in rows))
    return folder


def test_chexpert_plus(plus: Path, tmp_path: Path) -> None:
    labels = {"Edema": 1.0, "Fracture": -1.0, "Pneumonia": 0.0, "Mass": None}
    line = json.dumps({"path_to_image": f"train/{VIEWS[0]}.jpg", **labels})
    write(plus, "chexbert_labels/report_fixed.json", f"{line}\n{line}\n")
    report = imported("chexpert-plus", plus)
    assert (report.records, len(report.rejections)) == (3, 0)
    found = records_of(plus)
    first = found["patient00001-study1-view1_frontal"]
    assert first.image == f"PNG/PNG/train/{VIEWS[0]}.png"
    assert first.texts == ("The heart is large.", "Small effusion.")
    assert first.report == "FINDINGS: The heart is\nlarge.\n\nIMPRESSION: 1.  Small effusion."
    assert (first.split, first.group, first.labels) == ("train", "patient00001", ("Edema",))
    assert dict(first.metadata) == {
        "study": "study1", "view": "AP", "sex": "F", "age": 68, "race": "Asian", "deceased": "No",
        "report_order": 3,
    }  # fmt: skip
    second = found["patient00001-study1-view2_lateral"]
    assert (second.texts, second.metadata["view"]) == (("Two views taken.",), "LATERAL")
    assert found["patient00002-study2-view1_frontal"].split == "val"
    write(tmp_path, "candidates.csv", "Path\nX/train/patient00001/study1/view1_frontal.jpg\n")
    assert left_out(imported("chexpert-plus", plus, leave_out=tmp_path / "candidates.csv")) == {
        f"images of patients that {tmp_path / 'candidates.csv'} names": 2,
        "images without a row that can be used": 2,
    }


def test_what_cannot_be_used_of_chexpert_plus_is_named(plus: Path) -> None:
    path, missing = f"train/{VIEWS[0]}.jpg", "train/patient9/study1/view1_frontal.jpg"
    unknown = {"section_findings": "nan", "section_impression": "NaN", "race": "nan", "ap_pa": "nan"}
    wrong = ("x.jpg", "dev/p/s/v.jpg", f"dev2/{VIEWS[0]}.jpg", missing)
    make_plus(plus, (path, unknown), *((own, {}) for own in wrong))
    report = imported("chexpert-plus", plus)
    assert refused(report) == [
        (3, "the path 'x.jpg' is not .../patientN/studyN/file"),
        (4, "the path 'dev/p/s/v.jpg' is not .../patientN/studyN/file"),
        (5, "the split 'dev2' is neither train nor valid"),
        (6, f"there is no image {missing!r} in {plus}"),
    ]
    (record,) = records_of(plus).values()
    assert (record.texts, record.report) == ((), None)
    assert record.metadata.keys().isdisjoint(("race", "view"))
    write(plus, "chexbert_labels/report_fixed.json", "[1]")
    with pytest.raises(DataError, match=r"report_fixed\.json cannot be read as one JSON object a line"):
        imported("chexpert-plus", plus)
    lines = [json.dumps({"path_to_image": path, "Edema": value}) for value in (1.0, 0.0)]
    write(plus, "chexbert_labels/report_fixed.json", "\n".join(lines))
    with pytest.raises(DataError, match="view1_frontal has two lines that differ"):
        imported("chexpert-plus", plus)


# The header as published: two names in brackets have a comma, and a comma ends it.
NIH = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],\n"
)
NIH_ROWS = (
    "00000001_000.png,Cardiomegaly|Emphysema,000,1,058Y,M,PA,2682,2749,0.143,0.143,\n"
    "00000001_001.png,No Finding,1,1,58,M,AP,2894,2729,0.143,0.143,\n"
    "00000002_000.png,Hernia,0,2,006M,F,PA,2500,2048,0.168,0.168,\n"
    "00000003_000.png,Pleural_Thickening,0,3,414,F,PA,2500,2048,0.168,0.168,\n"
)


@pytest.fixture
def nih(tmp_path: Path) -> Path:
    folder = tmp_path / "nih"
    write(folder, "Data_Entry_2017.csv", NIH + NIH_ROWS)
    write(folder, "train_val_list.txt", "00000001_000.png\n00000001_001.png\n00000003_000.png\n")
    write(folder, "test_list.txt", "00000002_000.png\n")
    touch(folder, "images_001/images/00000001_000.png", "images_001/images/00000001_001.png")
    touch(folder, "images_002/images/00000002_000.png", "images_012/images/00000003_000.png")
    return folder


def test_chest_xray14(nih: Path) -> None:
    report = imported("nih-cxr14", nih)
    assert (report.records, len(report.rejections)) == (4, 0)
    found = records_of(nih)
    first = found["00000001_000"]
    assert first.image == "images_001/images/00000001_000.png"
    assert (first.labels, first.group, first.texts) == (("Cardiomegaly", "Emphysema"), "1", ())
    assert dict(first.metadata) == {"view": "PA", "sex": "M", "age": 58, "follow_up": 0}
    assert first.split == found["00000001_001"].split
    assert first.split in ("train", "val")
    assert found["00000001_001"].labels == ("No Finding",)
    assert (found["00000002_000"].split, found["00000002_000"].metadata["age"]) == ("test", 0.5)
    assert found["00000003_000"].metadata["age"] == 414


def test_the_newer_table_and_a_sample_without_lists(nih: Path) -> None:
    (nih / "Data_Entry_2017.csv").unlink()
    write(nih, "Data_Entry_2017_v2020.csv", NIH.replace("Gender", "Sex") + NIH_ROWS)
    (nih / "train_val_list.txt").unlink()
    with pytest.raises(DataError, match=r"There is no train_val_list\.txt in"):
        imported("nih-cxr14", nih)
    (nih / "test_list.txt").unlink()
    assert imported("nih-cxr14", nih).records == 4
    assert records_of(nih)["00000002_000"].metadata["sex"] == "F"
    # The sample holds everything twice.
    (nih / "Data_Entry_2017_v2020.csv").rename(nih / "sample_labels.csv")
    (nih / "sample" / "images").mkdir(parents=True)
    shutil.copy(nih / "images_001" / "images" / "00000001_000.png", nih / "sample" / "images")
    report = imported("nih-cxr14", nih)
    assert (report.records, left_out(report)) == (4, {"images without a row that can be used": 1})
    assert records_of(nih)["00000001_000"].image == "images_001/images/00000001_000.png"


def test_what_cannot_be_used_of_chest_xray14_is_named(nih: Path) -> None:
    more = "".join(
        f"0000000{number}_000.png,Mass,0,{own},50,F,PA,1,1,1,1,\n"
        for number, own in ((4, 4), (5, 5), (1, ""))
    )
    write(nih, "Data_Entry_2017.csv", NIH + NIH_ROWS + more)
    touch(nih, "images_012/images/00000004_000.png", "images_012/images/00000009_000.png")
    write(nih, "images_011/images/00000003_000.png", "another")
    assert refused(imported("nih-cxr14", nih)) == [
        (
            5,
            "there are 2 images '00000003_000.png': images_011/images/00000003_000.png, "
            "images_012/images/00000003_000.png",
        ),
        (6, "'00000004_000.png' is neither in train_val_list.txt nor in test_list.txt"),
        (7, "there is no image '00000005_000.png'"),
        (8, "the Patient ID is missing"),
    ]
    write(nih, "test_list.txt", (nih / "train_val_list.txt").read_text())
    with pytest.raises(DataError, match=r"is in train_val_list\.txt and in test_list\.txt; remove it from"):
        imported("nih-cxr14", nih)


PADCHEST = (
    *("", "ImageID", "ImageDir", "StudyDate_DICOM", "StudyID", "PatientID", "PatientBirth"),
    *("PatientSex_DICOM", "ViewPosition_DICOM", "Projection", "Report", "MethodLabel", "Labels"),
)
PADCHEST_ROWS = (
    ("0", "1_a.png", "0", "20140915", "s1", "p1", "1930", "F", "POSTEROANTERIOR", "PA",
     "sin hallazg patolog . cardiomegali leve .", "Physician", "['cardiomegaly ', 'normal', '']"),
    ("1", "1_b.png", "0", "20140915", "s1", "p1", "1930.0", "F", "LATERAL", "L", "", "RNN_model", "nan"),
    ("2", "2_a.png", "36", "20100101", "s2", "p2", "nan", "nan", "ANTEROPOSTERIOR", "UNK", "nan", "", "[]"),
)  # fmt: skip


def make_padchest(folder: Path, *rows: tuple[str, ...]) -> None:
    name = folder / "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv.gz"
    with gzip.open(name, "wt", newline="") as file:
        csv.writer(file).writerows((PADCHEST, *PADCHEST_ROWS, *rows))


def test_padchest(tmp_path: Path) -> None:
    make_padchest(tmp_path)
    touch(tmp_path, "0/1_a.png", "0/1_b.png", "36/2_a.png")
    # The same name in another folder.
    write(tmp_path, "35/2_a.png", "another")
    report = imported("padchest", tmp_path)
    assert (report.records, len(report.rejections)) == (3, 0)
    found = records_of(tmp_path)
    first = found["1_a"]
    assert (first.image, first.group) == ("0/1_a.png", "p1")
    assert first.labels == ("cardiomegaly", "normal")
    assert first.report == "sin hallazg patolog . cardiomegali leve ."
    assert first.texts == ("sin hallazg patolog.", "cardiomegali leve.")
    assert dict(first.metadata) == {
        "study": "s1", "view": "PA", "sex": "F", "birth_year": 1930, "age": 84, "labelled_by": "Physician",
    }  # fmt: skip
    assert (found["1_b"].metadata["view"], found["1_b"].labels, found["1_b"].report) == ("LATERAL", (), None)
    assert found["1_b"].split == first.split
    assert found["2_a"].image == "36/2_a.png"
    assert dict(found["2_a"].metadata) == {"study": "s2", "view": "AP"}


def test_images_in_one_folder_and_what_cannot_be_used_of_padchest(tmp_path: Path) -> None:
    broken, none = list(PADCHEST_ROWS[0]), list(PADCHEST_ROWS[0])
    broken[-1], none[5] = "__import__('os').getcwd()", ""
    make_padchest(tmp_path, ("3", "none.png", "1", *PADCHEST_ROWS[0][3:]), tuple(broken), tuple(none))
    touch(tmp_path, *(f"images-224/{name}.png" for name in ("1_a", "1_b", "2_a")))
    assert refused(imported("padchest", tmp_path)) == [
        (5, "there is no image 'none.png'"),
        (6, "the labels \"__import__('os').getcwd()\" are not a list of texts in brackets"),
        (7, "the PatientID is missing"),
    ]
    assert records_of(tmp_path)["2_a"].image == "images-224/2_a.png"


REPORTS = (
    "uid,MeSH,Problems,image,indication,comparison,findings,impression\n"
    "1,normal,normal,Xray Chest PA and Lateral,Cough,,The heart is normal. No XXXX effusion.,Clear lungs.\n"
    '2,Cardiomegaly/borderline;Pulmonary Artery/enlarged,Cardiomegaly;Pulmonary Artery,"Chest, 2 views",,,,\n'
    "3,normal,normal,Chest,,,Normal heart size.,\n"
)
PROJECTIONS = (
    "uid,filename,projection\n"
    "1,1_IM-0001-4001.dcm.png,Frontal\n1,1_IM-0001-3001.dcm.png,Lateral\n2,2_IM-0652-1001.dcm.png,Frontal\n"
)
XML = """<?xml version="1.0" encoding="utf-8"?>
<eCitation><meta type="rr"/><uId id="CXR{uid}"/>
<MedlineCitation><Article><Abstract>
<AbstractText Label="COMPARISON">None.</AbstractText>
<AbstractText Label="FINDINGS">The heart is normal in size. <b>No XXXX effusion.</b></AbstractText>
<AbstractText Label="IMPRESSION">Normal chest x-XXXX.</AbstractText>
</Abstract></Article></MedlineCitation>
<MeSH><major>Opacity/lung/left</major><major>Opacity/lung/base</major><minor>no</minor></MeSH>
{images}
</eCitation>"""


@pytest.fixture
def kaggle(tmp_path: Path) -> Path:
    write(tmp_path, "indiana_reports.csv", REPORTS)
    write(tmp_path, "indiana_projections.csv", PROJECTIONS)
    names = ("1_IM-0001-4001", "1_IM-0001-3001", "2_IM-0652-1001")
    touch(tmp_path, *(f"images/images_normalized/{name}.dcm.png" for name in names))
    return tmp_path


def test_indiana_tables_of_kaggle(kaggle: Path) -> None:
    report = imported("iu-xray", kaggle)
    assert (report.records, left_out(report)) == (3, {"reports of indiana_reports.csv without an image": 1})
    found = records_of(kaggle)
    first, second = found["1_IM-0001-4001"], found["2_IM-0652-1001"]
    assert first.image == "images/images_normalized/1_IM-0001-4001.dcm.png"
    assert first.texts == ("The heart is normal.", "No effusion.", "Clear lungs.")
    assert first.report == "FINDINGS: The heart is normal. No XXXX effusion.\n\nIMPRESSION: Clear lungs."
    assert (first.labels, first.group) == (("normal",), "1")
    assert found["1_IM-0001-3001"].metadata["view"] == "LATERAL"
    assert found["1_IM-0001-3001"].split == first.split
    assert (second.labels, second.texts, second.report) == (("Cardiomegaly", "Pulmonary Artery"), (), None)
    assert dict(second.metadata) == {
        "view": "FRONTAL", "mesh": ("Cardiomegaly/borderline", "Pulmonary Artery/enlarged"),
    }  # fmt: skip


def test_broken_lines_of_kaggle_are_named_and_a_second_report_ends_the_import(kaggle: Path) -> None:
    write(
        kaggle, "indiana_projections.csv", f"{PROJECTIONS}9,2_IM-0652-1001.dcm.png,Frontal\n2,x.png,Frontal\n"
    )
    assert refused(imported("iu-xray", kaggle)) == [
        (5, "indiana_reports.csv has no report '9'"),
        (6, "there is no image 'x.png'"),
    ]
    # The same row twice says nothing else.
    write(kaggle, "indiana_reports.csv", REPORTS + REPORTS.splitlines()[1] + "\n")
    assert imported("iu-xray", kaggle).records == 3
    write(kaggle, "indiana_reports.csv", f"{REPORTS}1,normal,normal,Chest,,,Normal heart size.,\n")
    with pytest.raises(DataError, match=r"indiana_reports\.csv cannot be used: lines 2 and 5 differ for '1'"):
        imported("iu-xray", kaggle)
    (kaggle / "indiana_projections.csv").unlink()
    with pytest.raises(DataError, match=r"There is no indiana_projections\.csv"):
        imported("iu-xray", kaggle)


def test_indiana_files_of_open_i(tmp_path: Path) -> None:
    write(tmp_path, "ecgen-radiology/1.xml", "<note/>")
    with pytest.raises(DataError, match=r"None of the XML files in .* names an image as parentImage"):
        imported("iu-xray", tmp_path)
    (tmp_path / "ecgen-radiology/1.xml").unlink()
    names = ("CXR2_IM-0652-1001", "CXR2_IM-0652-2001")
    for number, own in ((2, names), (10, ()), (4, ("CXR4_IM-1",))):
        images = "".join(f'<parentImage id="{name}"><caption>PA</caption></parentImage>' for name in own)
        write(tmp_path, f"ecgen-radiology/{number}.xml", XML.format(uid=number, images=images))
    write(tmp_path, "ecgen-radiology/3.xml", "<eCitation><uId")
    touch(tmp_path, *(f"NLMCXR_png/{name}.png" for name in names), "NLMCXR_png/other.png")
    report = imported("iu-xray", tmp_path)
    found = records_of(tmp_path)
    assert list(found) == list(names)
    record = found[names[0]]
    assert record.image == "NLMCXR_png/CXR2_IM-0652-1001.png"
    assert record.texts == ("The heart is normal in size.", "No effusion.", "Normal chest.")
    assert record.report == (
        "FINDINGS: The heart is normal in size. No XXXX effusion.\n\nIMPRESSION: Normal chest x-XXXX."
    )
    assert (record.labels, record.group) == (("Opacity",), "CXR2")
    assert dict(record.metadata) == {"mesh": ("Opacity/lung/left", "Opacity/lung/base")}
    assert left_out(report)["reports without an image"] == 1
    reasons = [(item.line, item.table, item.reason.split(":")[0]) for item in report.rejections.items]
    assert reasons == [
        (3, "3.xml", "it cannot be read as XML"),
        (4, "4.xml", "there is no image 'CXR4_IM-1.png'"),
    ]
