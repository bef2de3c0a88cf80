"""The tables of MIMIC-CXR-JPG."""

import gzip
from pathlib import Path

import pytest

from tests.image_files import write_photo
from training.common.errors import DataError
from training.common.manifest import read_manifest
from training.importing.run import import_data_set

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


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "mimic"
    folder.mkdir()
    for name, text in {"split": SPLIT, "metadata": METADATA, "chexpert": CHEXPERT}.items():
        with gzip.open(folder / f"mimic-cxr-2.0.0-{name}.csv.gz", "wt") as file:
            file.write(text)
    (folder / "mimic_cxr_sectioned.csv").write_text(SECTIONED)
    for path in ("10/p10000032/s50000001/aaa", "10/p10000032/s50000001/bbb", "11/p11000033/s50000002/ccc",
                 "12/p12000034/s50000003/ddd"):  # fmt: skip
        image = folder / "files" / f"p{path}.jpg"
        image.parent.mkdir(parents=True, exist_ok=True)
        write_photo(image)
    return folder


def test_images_share_the_texts_and_labels_of_their_study(source: Path) -> None:
    assert import_data_set("mimic-cxr", source).records == 4
    first, second, third, fourth = read_manifest(source).records
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


def test_broken_lines_are_named_by_line(source: Path) -> None:
    broken = SPLIT + "eee,x,10000032,train\nfff,50000009,10000032,dev\nggg,50000009,10000032,train\nhhh\n"
    (source / "mimic-cxr-2.0.0-split.csv.gz").unlink()
    (source / "mimic-cxr-2.0.0-split.csv").write_text(broken)
    report = import_data_set("mimic-cxr", source, max_rejected=0.5)
    assert report.records == 4
    assert [(item.line, item.reason.split(" in /")[0]) for item in report.rejections.items] == [
        (6, "dicom_id, study_id, subject_id or split is missing or wrong"),
        (7, "dicom_id, study_id, subject_id or split is missing or wrong"),
        (8, "there is no image 'files/p10/p10000032/s50000009/ggg.jpg'"),
        (9, "it has 1 field where the header has 4"),
    ]


def test_labels_may_be_missing(source: Path) -> None:
    (source / "mimic-cxr-2.0.0-chexpert.csv.gz").unlink()
    import_data_set("mimic-cxr", source)
    assert read_manifest(source).records[0].labels == ()


def test_what_is_missing_is_named(source: Path) -> None:
    (source / "mimic_cxr_sectioned.csv").rename(source / "gone")
    with pytest.raises(DataError, match=r"mimic_cxr_sectioned\.csv in .*create_section_files\.py"):
        import_data_set("mimic-cxr", source)
    (source / "gone").rename(source / "mimic_cxr_sectioned.csv")
    (source / "mimic_cxr_sectioned.csv").write_text("study,text\n")
    with pytest.raises(DataError, match="has no column 'impression'; is it the right file"):
        import_data_set("mimic-cxr", source)
    (source / "mimic-cxr-2.0.0-metadata.csv.gz").write_bytes(b"not gzip")
    with pytest.raises(DataError, match="cannot be read: Not a gzipped file"):
        import_data_set("mimic-cxr", source)
    (source / "mimic-cxr-2.0.0-split.csv.gz").unlink()
    with pytest.raises(DataError, match=r"There is no mimic-cxr-2\.0\.0-split\.csv or"):
        import_data_set("mimic-cxr", source)
