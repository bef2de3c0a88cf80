"""The tables of CheXpert."""

from pathlib import Path

import pytest

from tests.image_files import write_photo
from training.common.errors import DataError
from training.common.manifest import read_manifest
from training.importing.run import import_data_set

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
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "CheXpert-v1.0-small"
    for line in (TRAIN + VALID).splitlines():
        if line.startswith("CheXpert"):
            image = tmp_path / line.split(",")[0]
            image.parent.mkdir(parents=True)
            write_photo(image)
    (folder / "train.csv").write_text(TRAIN)
    (folder / "valid.csv").write_text(VALID)
    return folder


def test_records(source: Path) -> None:
    assert import_data_set("chexpert", source).records == 4
    first, second, third, fourth = read_manifest(source).records
    assert (first.id, first.image) == (
        "patient00001-study1-view1_frontal",
        "train/patient00001/study1/view1_frontal.jpg",
    )
    assert (first.split, first.group, first.labels, first.texts) == ("train", "patient00001", ("Edema",), ())
    assert dict(first.metadata) == {"view": "AP", "sex": "F", "age": 68}
    assert (second.metadata["view"], second.labels) == ("LATERAL", ("No Finding",))
    assert dict(third.metadata) == {"view": "PA"}
    assert third.labels == ("Edema", "Pneumonia")
    assert (fourth.split, fourth.group) == ("val", "patient64541")


def test_the_folder_above_works_too(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    import_data_set("chexpert", source, out, images=source.parent)
    assert read_manifest(out).records[0].image == (
        "images/CheXpert-v1.0-small/train/patient00001/study1/view1_frontal.jpg"
    )


def test_patients_of_the_candidates_are_left_out_of_train(source: Path, tmp_path: Path) -> None:
    candidates = tmp_path / "candidates.csv"
    candidates.write_text(
        "Path,Sex\nCheXpert-v1.0-small/train/patient00001/study1/view1_frontal.jpg,Female\n"
    )
    report = import_data_set("chexpert", source, leave_out=candidates)
    assert (report.records, len(report.rejections)) == (2, 0)
    rows, files = report.tallies
    assert (rows.found, rows.taken, rows.unaccounted) == (4, 2, 0)
    assert rows.left_out == {f"images of patients that {candidates} names": 2}
    assert (files.found, files.taken, files.left_out) == (4, 2, {"images without a row that can be used": 2})
    assert [record.group for record in read_manifest(source).records] == ["patient00002", "patient64541"]


def test_broken_lines_are_named(source: Path) -> None:
    (source / "train.csv").write_text(
        TRAIN + "x/y.jpg,Male\n" + "a,b,c,d,e,f,g,h,too,many\n" + "x/y.jpg,,,,,,,\n"
    )
    twice, missing = VALID.splitlines()[1], VALID.splitlines()[1].replace("view1", "view9")
    (source / "valid.csv").write_text(f"{VALID}{twice}\n{missing}\n")
    report = import_data_set("chexpert", source, max_rejected=0.6)
    assert report.records == 4
    image = "valid/patient64541/study1/view9_frontal.jpg"
    assert report.rejections.named() == [
        "Line 5 of train.csv: it has 2 fields where the header has 8.",
        "Line 6 of train.csv: it has 10 fields where the header has 8"
        "; put a value with ',' in it into quotes.",
        "Line 7 of train.csv: the path 'x/y.jpg' is not .../patientN/studyN/file.",
        f"Line 4 of valid.csv: there is no image '{image}' in {source}.",
        "Line 3 of valid.csv: the id 'patient64541-study1-view1_frontal' is on line 2 already.",
    ]


def test_the_folder_of_the_tables_is_named_where_the_one_above_is_given(source: Path) -> None:
    with pytest.raises(
        DataError,
        match=rf"no train.csv or train.csv.gz in {source.parent}; {source / 'train.csv'} is there: give the "
        rf"folder {source}\.",
    ):
        import_data_set("chexpert", source.parent)


def test_a_table_that_pandas_has_saved_again(source: Path) -> None:
    (source / "train.csv").write_text(
        ",path,sex,age,frontal/lateral,ap/pa,No Finding,Edema,Unnamed: 7\n"
        "0,CheXpert-v1.0-small\\train\\patient00001\\study1\\view1_frontal.jpg,Female,68.0,Frontal,nan,nan,1.0,1\n"
        "1,CheXpert-v1.0-small/train/patient00001/study2/view2_lateral.jpg,nan,nan,Lateral,nan,nan,0.0,1\n"
    )
    import_data_set("chexpert", source)
    first, second, *_ = read_manifest(source).records
    assert (dict(first.metadata), first.labels) == ({"sex": "F", "age": 68}, ("Edema",))
    assert (dict(second.metadata), second.labels) == ({"view": "LATERAL"}, ())


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_rows_and_images_are_all_accounted_for(source: Path, encoding: str, end: str) -> None:
    image = source / "train/patient00003/study1/view1_frontal.jpg"
    image.parent.mkdir(parents=True)
    write_photo(image)
    broken = f'{TRAIN}"x/patient1/study1\nview.jpg",Male,1,Frontal,AP,,,\n\n,,,,,,,\n"x'
    (source / "train.csv").write_bytes(broken.replace("\n", end).encode(encoding))
    report = import_data_set("chexpert", source, max_rejected=0.5)
    rows, files = report.tallies
    assert (rows.found, rows.taken, rows.refused, rows.unaccounted) == (7, 4, 2, 0)
    assert (files.found, files.taken, files.unaccounted) == (5, 4, 0)
