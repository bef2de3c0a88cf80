"""MIMIC-CXR: the tables of MIMIC-CXR-JPG, and reports as files."""

import gzip
from pathlib import Path

import pytest

from tests.training.importing.trees import imported, left_out, records_of, refused, touch, write
from training.common.errors import DataError
from training.common.manifest import read_manifest

SPLIT = """dicom_id,study_id,subject_id,split
aaa,50000001,10000032,train
bbb,50000001,10000032,train
ccc,50000002,11000033,validate
ddd,50000003,12000034,test
"""
METADATA = """dicom_id,subject_id,study_id,PerformedProcedureStepDescription,ViewPosition,Rows
aaa,10000032,50000001,CHEST (PA AND LAT),PA,3056
bbb,10000032,50000001,CHEST (PA AND LAT),LATERAL,3056
ccc,11000033,50000002,CHEST (PORTABLE AP),AP,2544
ddd,12000034,50000003,,,2544
"""
CHEXPERT = """subject_id,study_id,Atelectasis,Edema,No Finding,Pleural Effusion
10000032,50000001,1.0,-1.0,,1.0
11000033,50000002,0.0,,1.0,
"""
SECTIONED = """study,impression,findings,last_paragraph,comparison
s50000001,"Small right effusion.
 Edema is likely.","The heart is large.  Small right effusion.",,None.
s50000002,,,"The lungs, as far as seen, are clear.",
"""
REPORT = "FINAL REPORT\n FINDINGS: The heart is large.\n\n IMPRESSION: No change since ___.\n"
TEXTS = ("The heart is large.", "No change since.")


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    folder = tmp_path / "mimic"
    for name, text in {"split": SPLIT, "metadata": METADATA, "chexpert": CHEXPERT}.items():
        write(folder, f"mimic-cxr-2.0.0-{name}.csv.gz", gzip.compress(text.encode()))
    write(folder, "mimic_cxr_sectioned.csv", SECTIONED)
    for path in ("10/p10000032/s50000001/aaa", "10/p10000032/s50000001/bbb", "11/p11000033/s50000002/ccc",
                 "12/p12000034/s50000003/ddd"):  # fmt: skip
        touch(folder, f"files/p{path}.jpg")
    return folder


def test_images_share_the_texts_and_labels_of_their_study(tables: Path) -> None:
    assert imported("mimic-cxr", tables).records == 4
    first, second, third, fourth = read_manifest(tables).records
    assert first.image == "files/p10/p10000032/s50000001/aaa.jpg"
    assert first.texts == ("The heart is large.", "Small right effusion.", "Edema is likely.")
    assert first.report == (
        "FINDINGS: The heart is large.  Small right effusion.\n\n"
        "IMPRESSION: Small right effusion.\n Edema is likely."
    )
    assert first.labels == ("Atelectasis", "Pleural Effusion")
    assert (first.group, second.group) == ("p10000032", "p10000032")
    assert dict(first.metadata) == {"study": "s50000001", "view": "PA"}
    assert (second.texts, second.metadata["view"]) == (first.texts, "LATERAL")
    assert (third.split, third.texts) == ("val", ("The lungs, as far as seen, are clear.",))
    assert (third.labels, third.report) == (("No Finding",), "The lungs, as far as seen, are clear.")
    assert (fourth.split, fourth.texts, fourth.report, fourth.labels) == ("test", (), None, ())
    assert dict(fourth.metadata) == {"study": "s50000003"}
    (tables / "mimic-cxr-2.0.0-chexpert.csv.gz").unlink()
    imported("mimic-cxr", tables)
    assert read_manifest(tables).records[0].labels == ()


def test_broken_lines_are_named_by_line(tables: Path) -> None:
    broken = SPLIT + "eee,x,10000032,train\nfff,50000009,10000032,dev\nggg,50000009,10000032,train\nhhh\n"
    (tables / "mimic-cxr-2.0.0-split.csv.gz").unlink()
    write(tables, "mimic-cxr-2.0.0-split.csv", broken)
    report = imported("mimic-cxr", tables)
    assert report.records == 4
    assert [(line, reason.split(" in /")[0]) for line, reason in refused(report)] == [
        (6, "dicom_id, study_id, subject_id or split is missing or wrong"),
        (7, "dicom_id, study_id, subject_id or split is missing or wrong"),
        (8, "there is no image 'files/p10/p10000032/s50000009/ggg.jpg'"),
        (9, "it has 1 field where the header has 4"),
    ]


def test_missing_and_damaged_tables_are_named(tables: Path) -> None:
    with pytest.raises(DataError, match=r"mimic_cxr_sectioned\.csv, which has to be UTF-8"):
        imported("mimic-cxr", tables, encoding="latin-1")
    sections = tables / "mimic_cxr_sectioned.csv"
    sections.unlink()
    with pytest.raises(DataError, match=r"mimic_cxr_sectioned\.csv in .*create_section_files\.py"):
        imported("mimic-cxr", tables)
    sections.write_text("study,text\n")
    with pytest.raises(DataError, match="has no column 'impression'; is it the right file"):
        imported("mimic-cxr", tables)
    write(tables, "mimic-cxr-2.0.0-metadata.csv.gz", b"not gzip")
    with pytest.raises(DataError, match="cannot be read: Not a gzipped file"):
        imported("mimic-cxr", tables)
    (tables / "mimic-cxr-2.0.0-split.csv.gz").unlink()
    with pytest.raises(DataError, match=r"There is no mimic-cxr-2\.0\.0-split\.csv or"):
        imported("mimic-cxr", tables)


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    folder = tmp_path / "mimic"
    write(folder, "files/p10/p10000032/s50414267.txt", REPORT)
    write(folder, "files/p10/p10000032/s53189527.txt", "FINAL REPORT\n IMPRESSION: Clear lungs.\n")
    write(folder, "files/p11/p11000011/s51029426.txt", REPORT)
    return folder


def test_images_next_to_their_reports(reports: Path) -> None:
    files = reports / "files"
    touch(
        files, "p10/p10000032/s50414267/a.jpg", "p10/p10000032/s50414267/b.png", "p10/p10000032/s53189527.jpg"
    )
    touch(files, "p11/p11000011/s59999999/c.jpg", "p11/p11000011/s51029426/d.dcm", "logo.png")
    report = imported("mimic-cxr", reports)
    found = records_of(reports)
    assert sorted(found) == ["s50414267-a", "s50414267-b", "s53189527", "s59999999-c"]
    first = found["s50414267-a"]
    assert (first.image, first.texts) == ("files/p10/p10000032/s50414267/a.jpg", TEXTS)
    assert first.report == "FINDINGS: The heart is large.\n\nIMPRESSION: No change since ___."
    assert (first.group, dict(first.metadata)) == ("p10000032", {"study": "s50414267"})
    assert len({found[name].split for name in found if found[name].group == "p10000032"}) == 1
    assert found["s53189527"].texts == ("Clear lungs.",)
    assert (found["s59999999-c"].texts, found["s59999999-c"].report) == ((), None)
    assert (report.records, len(report.rejections)) == (4, 0)
    assert left_out(report) == {
        "reports without an image": 1,
        ".dcm files of studies": 1,
        "images outside of the folder of a study": 1,
    }


def test_reports_that_give_nothing_are_said(reports: Path) -> None:
    write(reports, "files/p10/p10000032/s53189527.txt", "FINAL REPORT\n INDICATION: Cough.\n")
    touch(reports, *(f"files/p10/p10000032/{path}.jpg" for path in ("s53189527/a", "s53189527/b")))
    told = {"reports without a part that describes the image, p10/p10000032/s53189527.txt first": 1}
    assert left_out(imported("mimic-cxr", reports)) == {"reports without an image": 2, **told}
    split = "dicom_id,study_id,subject_id,split\na,53189527,10000032,train\n"
    write(reports, "mimic-cxr-2.0.0-split.csv", split)
    write(reports, "mimic-cxr-2.0.0-metadata.csv", "dicom_id,ViewPosition\na,PA\n")
    # The image b.
    others = {"images without a row that can be used": 1}
    assert left_out(imported("mimic-cxr", reports)) == {"reports without an image": 2, **told, **others}
    sections = "study,impression,findings,last_paragraph\ns53189527,,,\ns1,Clear lungs.,,\n"
    write(reports, "mimic_cxr_sectioned.csv", sections)
    assert left_out(imported("mimic-cxr", reports)) == {
        "reports without a part that describes the image, s53189527 first": 1,
        "reports without an image": 1,
        **others,
    }


def test_images_and_reports_are_counted_apart(reports: Path) -> None:
    files = reports / "files"
    touch(files, "p10/p10000032/s50414267/a.jpg", "p10/p10000032/s50414267/b.png", "p10/p10000032/s1/c.jpg")
    touch(files, "p10/p10000032/s53189527/d.jpg", "logo.png")
    write(files, "p10/p10000032/s53189527.txt", "FINAL REPORT\n INDICATION: Cough.\n")
    write(files, "p10/p10000032/s1.txt", "x" * ((1 << 20) + 1))
    images, texts = imported("mimic-cxr", reports).tallies
    assert (images.unit, images.found, images.taken, images.refused) == ("image", 5, 3, 1)
    assert images.left_out == {"images outside of the folder of a study": 1}
    assert (texts.unit, texts.found, texts.taken, texts.refused) == ("report", 4, 1, 0)
    assert texts.left_out == {
        "reports without an image": 1,
        "reports without a part that describes the image, p10/p10000032/s53189527.txt first": 1,
        "reports that cannot be read or are several of a study": 1,
    }
    assert texts.sentences()[0] == f"Found 4 reports in {files}: 1 taken, 0 refused, 3 left out."


def test_images_in_another_folder_and_reports_unpacked_next_to_tables(reports: Path, tmp_path: Path) -> None:
    touch(tmp_path / "jpg", "mimic-cxr-jpg/2.0.0/files/p11/p11000011/s51029426/d.jpg")
    report = imported("mimic-cxr", reports, tmp_path / "out", images=tmp_path / "jpg")
    (record,) = records_of(tmp_path / "out").values()
    assert record.image == "images/mimic-cxr-jpg/2.0.0/files/p11/p11000011/s51029426/d.jpg"
    assert (record.texts, left_out(report)) == (TEXTS, {"reports without an image": 2})
    (reports / "mimic-cxr-reports").mkdir()
    (reports / "files").rename(reports / "mimic-cxr-reports" / "files")
    touch(reports, "files/p11/p11000011/s51029426/d.jpg")
    imported("mimic-cxr", reports)
    assert records_of(reports)["s51029426-d"].texts == TEXTS


def test_reports_take_the_place_of_the_table_of_sections(reports: Path) -> None:
    split = "dicom_id,study_id,subject_id,split\na,50414267,10000032,train\nb,50000000,10000032,train\n"
    write(reports, "mimic-cxr-2.0.0-split.csv", split)
    write(reports, "mimic-cxr-2.0.0-metadata.csv", "dicom_id,ViewPosition\na,PA\nb,AP\n")
    touch(reports, *(f"files/p10/p10000032/{path}.jpg" for path in ("s50414267/a", "s50000000/b")))
    imported("mimic-cxr", reports)
    found = records_of(reports)
    assert (found["a"].texts, found["a"].split, found["b"].texts) == (TEXTS, "train", ())
    assert dict(found["a"].metadata) == {"study": "s50414267", "view": "PA"}


def test_unreadable_reports_and_images_of_one_name_are_named(reports: Path) -> None:
    files = reports / "files/p10/p10000032"
    touch(files, "s50414267/a.jpg", "s53189527/b.jpg", "s53189527/b.png", "s53189528/c.jpg")
    (files / "s50414267.txt").write_bytes("IMPRESSION: Épanchement à droite.".encode("cp1252"))
    assert refused(imported("mimic-cxr", reports)) == [
        (
            1,
            "the report p10/p10000032/s50414267.txt: line 1 is not UTF-8; it reads as Windows-1252: "
            "'IMPRESSION: Épanchement à droite.'. Convert the file with `iconv -f WINDOWS-1252 -t UTF-8` or "
            "give `--encoding windows-1252`.",
        ),
        (2, "the study s53189527 has several images 'b': files/p10/p10000032/s53189527/b.jpg"),
        (3, "the study s53189527 has several images 'b': files/p10/p10000032/s53189527/b.png"),
    ]
    imported("mimic-cxr", reports, encoding="windows-1252")
    assert records_of(reports)["s50414267-a"].texts == ("Épanchement à droite.",)


@pytest.mark.parametrize(
    ("report", "image", "group"),
    [
        ("files/p10000032/s50414267.txt", "files/p10000032/s50414267/a.jpg", "p10000032"),
        ("p10000032/s50414267/s50414267.txt", "p10000032/s50414267/a.jpg", "p10000032"),
        ("p10/p10000032/s50414267/report.txt", "p10/p10000032/s50414267/a.jpg", "p10000032"),
        ("a/b/c/p10/p10000032/s50414267.TXT", "x/P10/P10000032/S50414267/a.JPG", "p10000032"),
        ("s123.txt", "s123.jpg", "s123"),
        ("reports/s123.txt", "images/s123_0.jpg", "s123"),
        ("reports/s123.txt", "images/s123/a.jpg", "s123"),
        ("reports/s123.txt", "files/p10/p10000032/s123/a.jpg", "p10000032"),
        ("10000032/50414267.txt", "10000032/50414267/a.jpg", "p10000032"),
        ("files/p10/p10000032/s50414267.txt", "s50414267.jpg", "s50414267"),
    ],
)
def test_layouts_near_to_the_published_one(tmp_path: Path, report: str, image: str, group: str) -> None:
    write(tmp_path, report, REPORT)
    touch(tmp_path, image)
    imported("mimic-cxr", tmp_path)
    (record,) = records_of(tmp_path).values()
    assert (record.image, record.group, record.texts) == (image, group, TEXTS)


def test_studies_of_one_number_and_two_patients_are_not_mixed(tmp_path: Path) -> None:
    for patient, text in (("p10000001", "A large heart."), ("p10000002", "A small heart.")):
        write(tmp_path, f"{patient}/s1.txt", f"FINDINGS: {text}")
        touch(tmp_path, f"{patient}/s1/{patient}.jpg")
    touch(tmp_path, "s1.jpg")
    said = imported("mimic-cxr", tmp_path)
    assert {record.group: record.texts for record in records_of(tmp_path).values()} == {
        "p10000001": ("A large heart.",),
        "p10000002": ("A small heart.",),
    }
    assert refused(said) == [(1, "the study s1 has several reports: p10000001/s1.txt and p10000002/s1.txt")]


def test_a_folder_of_another_layout_is_told_what_reads_it(reports: Path, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"no image such as p10/.* give the folder of the images with --images"
    ):
        imported("mimic-cxr", reports)
    write(tmp_path, "photos/1.txt", "a dog")
    touch(tmp_path, "photos/1.jpg")
    with pytest.raises(DataError, match=r"no report such as files/p10/.*`recoquest import folder .*photos`"):
        imported("mimic-cxr", tmp_path / "photos")
    write(tmp_path, "physionet.org/files/mimic-cxr-jpg/2.0.0/mimic-cxr-2.0.0-split.csv.gz", "")
    with pytest.raises(DataError, match=r"the table is in .*2\.0\.0: `recoquest import mimic-cxr .*2\.0\.0`"):
        imported("mimic-cxr", tmp_path / "physionet.org")
