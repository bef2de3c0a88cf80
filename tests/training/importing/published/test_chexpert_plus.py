"""CheXpert Plus."""

import csv
import json
from pathlib import Path

import pytest

from tests.training.importing.trees import imported, left_out, records_of, touch, write
from training.common.errors import DataError

COLUMNS = (
    *(
        "path_to_image",
        "path_to_dcm",
        "frontal_lateral",
        "ap_pa",
        "deid_patient_id",
        "patient_report_date_order",
    ),
    *("report", "section_narrative", "section_findings", "section_impression", "section_summary"),
    *("age", "sex", "race", "ethnicity", "interpreter_needed", "insurance_type", "recent_bmi", "deceased"),
    "split",
)
SPLITS = ("train", "train", "valid")
VIEWS = (
    "patient00001/study1/view1_frontal",
    "patient00001/study1/view2_lateral",
    "patient00002/study2/view1_frontal",
)


def row(path: str, **more: str) -> dict[str, str]:
    return dict.fromkeys(COLUMNS, "") | {"path_to_image": path, "split": path.split("/")[0]} | more


def make(folder: Path, rows: list[dict[str, str]]) -> None:
    folder.mkdir(exist_ok=True)
    with (folder / "df_chexpert_plus_240401.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "plus"
    make(
        folder,
        [
            row(
                f"train/{VIEWS[0]}.jpg",
                frontal_lateral="Frontal", ap_pa="AP", age="68.0", sex="Female", race="Asian",
                ethnicity="Unknown", deceased="No", patient_report_date_order="3",
                section_findings="The heart is\nlarge.", section_impression="1.  Small effusion.",
            ),
            row(f"train/{VIEWS[1]}.jpg", frontal_lateral="Lateral", section_narrative="Two views taken."),
            row(f"valid/{VIEWS[2]}.jpg", sex="Male", section_impression="Clear lungs."),
        ],
    )  # fmt: skip
    touch(folder, *(f"PNG/PNG/{split}/{view}.png" for split, view in zip(SPLITS, VIEWS, strict=True)))
    return folder


def test_records(source: Path) -> None:
    labels = [
        {
            "path_to_image": f"train/{VIEWS[0]}.jpg",
            "Edema": 1.0,
            "Fracture": -1.0,
            "Pneumonia": 0.0,
            "Mass": None,
        }
    ]
    write(source, "chexbert_labels/report_fixed.json", "\n".join(map(json.dumps, labels)))
    report = imported("chexpert-plus", source)
    assert (report.records, len(report.rejections)) == (3, 0)
    found = records_of(source)
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


def test_patients_are_kept_out_of_train(source: Path, tmp_path: Path) -> None:
    write(
        tmp_path, "candidates.csv", "Path\nCheXpert-v1.0-small/train/patient00001/study1/view1_frontal.jpg\n"
    )
    report = imported("chexpert-plus", source, leave_out=tmp_path / "candidates.csv")
    assert report.records == 1
    assert left_out(report) == {
        f"images of patients that {tmp_path / 'candidates.csv'} names": 2,
        "images without a row that can be used": 2,
    }


def test_what_cannot_be_used_is_named(source: Path) -> None:
    wrong = ("x.jpg", "dev/p/s/v.jpg", f"dev2/{VIEWS[0]}.jpg", "train/patient9/study1/view1_frontal.jpg")
    make(source, [row(path) for path in (f"train/{VIEWS[0]}.jpg", *wrong)])
    report = imported("chexpert-plus", source, max_rejected=1)
    assert [item.line for item in report.rejections.items] == [3, 4, 5, 6]
    assert "there is no image 'train/patient9/study1/view1_frontal.jpg'" in report.rejections.items[-1].reason
    write(source, "chexbert_labels/report_fixed.json", "[1]")
    with pytest.raises(DataError, match=r"report_fixed\.json cannot be read as one JSON object a line"):
        imported("chexpert-plus", source)
    (source / "df_chexpert_plus_240401.csv").unlink()
    with pytest.raises(DataError, match=r"There is no df_chexpert_plus_240401\.csv"):
        imported("chexpert-plus", source)


def test_sections_that_are_not_known_are_no_texts(source: Path) -> None:
    path = f"train/{VIEWS[0]}.jpg"
    make(source, [row(path, section_findings="nan", section_impression="NaN", race="nan", ap_pa="nan")])
    imported("chexpert-plus", source)
    (record,) = records_of(source).values()
    assert (record.texts, record.report) == ((), None)
    assert record.metadata.keys().isdisjoint(("race", "view"))


def test_two_lines_of_labels_that_differ_end_the_import(source: Path) -> None:
    lines = [
        json.dumps({"path_to_image": f"train/{VIEWS[0]}.jpg", "Edema": value}) for value in (1.0, 1.0, 0.0)
    ]
    write(source, "report_fixed.json", "\n".join(lines[:2]))
    assert imported("chexpert-plus", source).records == 3
    write(source, "report_fixed.json", "\n".join(lines))
    with pytest.raises(DataError, match="view1_frontal has two lines that differ"):
        imported("chexpert-plus", source)
