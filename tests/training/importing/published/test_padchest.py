"""PadChest."""

import csv
import gzip
from pathlib import Path

import pytest

from tests.training.importing.trees import imported, records_of, touch, write
from training.common.errors import DataError

COLUMNS = (
    *("", "ImageID", "ImageDir", "StudyDate_DICOM", "StudyID", "PatientID", "PatientBirth"),
    *("PatientSex_DICOM", "ViewPosition_DICOM", "Projection", "Report", "MethodLabel", "Labels"),
)
ROWS = (
    ("0", "1_a.png", "0", "20140915", "s1", "p1", "1930", "F", "POSTEROANTERIOR", "PA",
     "sin hallazg patolog . cardiomegali leve .", "Physician", "['cardiomegaly ', 'normal', '']"),
    ("1", "1_b.png", "0", "20140915", "s1", "p1", "1930.0", "F", "LATERAL", "L", "", "RNN_model", "nan"),
    ("2", "2_a.png", "36", "20100101", "s2", "p2", "nan", "nan", "ANTEROPOSTERIOR", "UNK", "nan", "", "[]"),
)  # fmt: skip


def make(folder: Path, rows: tuple[tuple[str, ...], ...]) -> None:
    folder.mkdir(exist_ok=True)
    name = folder / "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv.gz"
    with gzip.open(name, "wt", newline="") as file:
        csv.writer(file).writerows((COLUMNS, *rows))


def test_records(tmp_path: Path) -> None:
    make(tmp_path, ROWS)
    touch(tmp_path, "0/1_a.png", "0/1_b.png", "36/2_a.png")
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
    assert dict(found["2_a"].metadata) == {"study": "s2", "view": "AP"}


def test_images_that_lie_in_one_folder(tmp_path: Path) -> None:
    make(tmp_path, ROWS)
    touch(tmp_path, "images-224/1_a.png", "images-224/1_b.png", "images-224/2_a.png")
    imported("padchest", tmp_path)
    assert records_of(tmp_path)["2_a"].image == "images-224/2_a.png"


def test_the_same_name_in_two_folders_is_told_apart(tmp_path: Path) -> None:
    make(tmp_path, ROWS)
    touch(tmp_path, "0/1_a.png", "0/1_b.png", "36/2_a.png")
    write(tmp_path, "35/2_a.png", "another")
    imported("padchest", tmp_path)
    assert records_of(tmp_path)["2_a"].image == "36/2_a.png"


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    broken = list(ROWS[0])
    broken[-1] = "__import__('os').getcwd()"
    make(tmp_path, (*ROWS, ("3", "none.png", "1", *ROWS[0][3:]), tuple(broken)))
    touch(tmp_path, "0/1_a.png", "0/1_b.png", "36/2_a.png")
    report = imported("padchest", tmp_path, max_rejected=1)
    assert [(item.line, item.reason) for item in report.rejections.items] == [
        (5, "there is no image 'none.png'"),
        (6, "the labels \"__import__('os').getcwd()\" are not a list of texts in brackets"),
    ]


def test_another_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"There is no PADCHEST_chest_x_ray_images_labels_160K"):
        imported("padchest", tmp_path)
