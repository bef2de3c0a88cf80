"""Data sets of the Hugging Face hub, as Parquet files and as folders of `save_to_disk`."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from index.filters.dates import parse_date
from tests.needed import needed_module
from tests.training.importing.trees import image_bytes, imported, records_of, write
from training.common.errors import DataError

pa = needed_module("pyarrow", "pip install pyarrow")
parquet = needed_module("pyarrow.parquet", "pip install pyarrow")

FEATURES = {
    "image": {"_type": "Image"},
    "label": {"names": ["cat", "dog"], "_type": "ClassLabel"},
    "objects": {"feature": {"names": ["ball", "stick"], "_type": "ClassLabel"}, "_type": "Sequence"},
    "caption": {"feature": {"dtype": "string", "_type": "Value"}, "_type": "Sequence"},
}


def table(rows: list[dict[str, Any]], features: dict[str, Any] | None = None) -> Any:
    made = pa.Table.from_pylist(rows)
    if features is None:
        return made
    return made.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def rows(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "image": {"bytes": image_bytes(number, "JPEG"), "path": f"{number}.jpg"},
            "caption": [f"Caption {number}.", "Another."],
            "label": number % 2,
            "objects": [0, 1],
            "id": number,
            "width": 8,
            "source": "nan" if number else "camera",
            "box": {"x": 1},
        }
        for number in range(start, start + count)
    ]


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    folder = tmp_path / "hub"
    (folder / "data").mkdir(parents=True)
    for part in range(2):
        name = f"train-{part:05}-of-00002-0a1b2c.parquet"
        parquet.write_table(table(rows(40, 40 * part), FEATURES), folder / "data" / name)
    parquet.write_table(table(rows(2, 80), FEATURES), folder / "data" / "validation-00000-of-00001.parquet")
    write(folder, "README.md", "A data set.")
    return folder


def test_parquet(hub: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = imported("huggingface", hub, out)
    assert (report.records, len(report.rejections)) == (82, 0)
    found = records_of(out)
    first, last = found["train-00000000"], found["train-00000079"]
    assert first.image == "images/train/00000000.jpg"
    assert (out / last.image).read_bytes() == image_bytes(79, "JPEG")
    assert (first.texts, first.labels, first.split) == (("Caption 0.", "Another."), ("cat",), "train")
    assert dict(first.metadata) == {
        "objects": ("ball", "stick"),
        "source_id": 0,
        "width": 8,
        "source": "camera",
    }
    assert "source" not in last.metadata
    assert (found["validation-00000001"].split, found["validation-00000001"].labels) == ("val", ("dog",))


def write_stream(folder: Path, name: str, content: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_stream(file, content.schema) as stream:
        stream.write_table(content, max_chunksize=5)


def test_folders_of_save_to_disk(tmp_path: Path) -> None:
    source, out = tmp_path / "saved", tmp_path / "out"
    for split, start in (("train", 0), ("test", 12)):
        folder = source / split
        write_stream(folder, "data-00000-of-00001.arrow", table(rows(12, start), FEATURES))
        write_stream(folder, "cache-0123456789.arrow", table(rows(3), FEATURES))
        write(folder, "state.json", json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    write(source, "dataset_dict.json", json.dumps({"splits": ["train", "test"]}))
    assert imported("huggingface", source, out).records == 24
    found = records_of(out)
    assert (found["test-00000011"].split, found["test-00000011"].labels) == ("test", ("dog",))
    assert (out / found["test-00000011"].image).read_bytes() == image_bytes(23, "JPEG")
    write(source, "train/state.json", json.dumps({"_indices_files": [{"filename": "indices.arrow"}]}))
    with pytest.raises(DataError, match=r"train holds a selection of its rows: .* flatten_indices"):
        imported("huggingface", source, out)


def test_reports_and_patients(tmp_path: Path) -> None:
    row = {
        "image": {"bytes": image_bytes(1), "path": None},
        "findings": "The heart is large. No effusion is seen.",
        "impression": "Cardiomegaly seen.",
        "patient_id": "p1",
        "split": "test",
    }
    parquet.write_table(table([row]), tmp_path / "0000.parquet")
    imported("huggingface", tmp_path / "0000.parquet", tmp_path / "out")
    (record,) = records_of(tmp_path / "out").values()
    assert record.texts == ("The heart is large.", "No effusion is seen.", "Cardiomegaly seen.")
    assert record.report == (
        "FINDINGS: The heart is large. No effusion is seen.\n\nIMPRESSION: Cardiomegaly seen."
    )
    assert (record.group, record.split, record.id) == ("p1", "test", "rows-00000000")


def test_columns_of_bytes_and_lists_of_images(tmp_path: Path) -> None:
    pair = [{"bytes": image_bytes(1), "path": None}, {"bytes": image_bytes(2), "path": None}]
    parquet.write_table(table([{"images": pair, "text": "Two."}]), tmp_path / "train.parquet")
    parquet.write_table(table([{"png": image_bytes(3), "text": "One."}]), tmp_path / "test.parquet")
    imported("huggingface", tmp_path, tmp_path / "out")
    found = records_of(tmp_path / "out")
    assert list(found) == ["test-00000000", "train-00000000", "train-00000000-1"]
    assert found["train-00000000"].texts == found["train-00000000-1"].texts == ("Two.",)


def test_sentences_as_objects(tmp_path: Path) -> None:
    """As in the copies of MS-COCO and Flickr30k on the hub, whose images are declared or not."""
    sentences = [
        {"raw": "A dog.", "tokens": ["a", "dog"], "imgid": 1},
        {"raw": "One dog.", "tokens": [], "imgid": 1},
    ]
    made = table([{"image": image_bytes(1), "sentences": sentences, "extra": {"a": 1}}], {
        "image": {"dtype": "binary", "_type": "Value"},
        "sentences": [{"raw": {"dtype": "string", "_type": "Value"}}],
    })  # fmt: skip
    parquet.write_table(made, tmp_path / "val.parquet")
    report = imported("huggingface", tmp_path, tmp_path / "out")
    (record,) = records_of(tmp_path / "out").values()
    assert (record.texts, record.split) == (("A dog.", "One dog."), "val")
    assert report.notes == [
        "Columns that are neither texts nor numbers are not read: extra.",
        "Splits are those that folders or files are named for: val 1.",
    ]


def test_what_cannot_be_used_is_named(hub: Path, tmp_path: Path) -> None:
    broken = rows(4)
    broken[0]["image"] = {"bytes": None, "path": "/etc/passwd"}
    broken[1]["image"] = None
    broken[2]["image"] = {"bytes": b"no image", "path": None}
    parquet.write_table(table(broken, FEATURES), hub / "data" / "test-00000-of-00001.parquet")
    report = imported("huggingface", hub, tmp_path / "out", max_rejected=1)
    name = "data/test-00000-of-00001.parquet"
    assert [(item.line, item.table, item.reason.split(":")[0]) for item in report.rejections.items] == [
        (1, name, "its image is not in the file but in '/etc/passwd'"),
        (2, name, "it has no image"),
        (3, name, "The file is not an image that can be read"),
    ]


def test_what_is_wrong_is_told(hub: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="give a second folder"):
        imported("huggingface", hub)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"There is no \.parquet file in"):
        imported("huggingface", tmp_path / "empty", tmp_path / "out")
    parquet.write_table(table([{"text": "Only a text."}]), tmp_path / "empty" / "0.parquet")
    with pytest.raises(DataError, match="has a column of images, only text"):
        imported("huggingface", tmp_path / "empty", tmp_path / "out")
    file = hub / "data" / "train-00000-of-00002-0a1b2c.parquet"
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(DataError, match=r"cannot be read: .* Is its download whole"):
        imported("huggingface", hub, tmp_path / "out")


def test_dates_are_texts_that_filters_find(tmp_path: Path) -> None:
    day = datetime(2024, 2, 1, 10, 30)
    made = pa.table({
        "image": [{"bytes": image_bytes(1), "path": None}],
        "taken": pa.array([day], pa.timestamp("ns")),
        "zoned": pa.array([day.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")),
        "born": pa.array([day.date()], pa.date32()),
        "died": pa.array([None], pa.date32()),
    })  # fmt: skip
    parquet.write_table(made, tmp_path / "some.parquet")
    report = imported("huggingface", tmp_path, tmp_path / "out")
    (record,) = records_of(tmp_path / "out").values()
    assert set(record.metadata) == {"taken", "zoned", "born"}
    assert not report.notes
    taken, zoned, born = (parse_date(str(record.metadata[name])) for name in ("taken", "zoned", "born"))
    assert taken == zoned == parse_date("2024-02-01T10:30Z")
    assert born == parse_date("2024-02-01")
