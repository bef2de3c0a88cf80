"""MS-COCO as published."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.training.importing.trees import imported, left_out, records_of, touch, write
from training.common.errors import DataError


def make(folder: Path, name: str, images: list[Any], annotations: list[Any]) -> None:
    content = {
        "info": {"year": 2017, "images": "annotations"}, "licenses": [], "images": images,
        "annotations": annotations,
    }  # fmt: skip
    write(folder, f"annotations/captions_{name}.json", json.dumps(content))


def image(number: int, **more: Any) -> dict[str, Any]:
    return {"license": 4, "file_name": f"{number:012}.jpg", "height": 427, "width": 640, "id": number} | more


def caption(number: int, text: str) -> dict[str, Any]:
    return {"image_id": number, "id": number * 10, "caption": text}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "coco"
    captions = [caption(2, "A dog\n runs."), caption(1, "A cat."), caption(2, "One dog.")]
    make(folder, "train2017", [image(1), image(2)], captions)
    make(folder, "val2017", [image(3)], [caption(3, "A boat.")])
    touch(folder, *(f"train2017/{number:012}.jpg" for number in (1, 2)), f"val2017/{3:012}.jpg")
    return folder


def test_records(source: Path) -> None:
    touch(source, "val2017/000000000009.jpg")
    report = imported("coco", source)
    assert (report.records, len(report.rejections)) == (3, 0)
    assert left_out(report) == {"images without a row that can be used": 1}
    found = records_of(source)
    second, third = found["000000000002"], found["000000000003"]
    assert (second.image, second.texts) == ("train2017/000000000002.jpg", ("A dog runs.", "One dog."))
    assert (second.split, third.split, third.texts) == ("train", "val", ("A boat.",))


def test_the_newest_year_with_images_counts(source: Path) -> None:
    make(source, "train2014", [image(1)], [caption(1, "An old caption.")])
    make(source, "val2019", [image(1)], [caption(1, "A late caption.")])
    touch(source, "images/train2014/000000000001.jpg")
    assert imported("coco", source).records == 3
    assert records_of(source)["000000000001"].texts == ("A cat.",)


def test_a_folder_of_images_elsewhere(source: Path, tmp_path: Path) -> None:
    (source / "train2017").rename(tmp_path / "train2017")
    out = tmp_path / "out"
    assert imported("coco", source, out, images=tmp_path / "train2017").records == 2
    assert records_of(out)["000000000001"].image == "images/000000000001.jpg"


def test_what_cannot_be_used_is_named(source: Path) -> None:
    make(
        source,
        "train2017",
        [image(1), image(2), {"id": 5}, image(7), "text", image(1)],
        [
            caption(1, "A cat."),
            caption(7, "Gone."),
            caption(99, "Of none."),
            {"image_id": 1, "caption": None},
        ],
    )
    report = imported("coco", source, max_rejected=1)
    reasons = [(item.line, item.reason.split(" in /")[0]) for item in report.rejections.items]
    assert reasons == [
        (2, "the image '000000000002.jpg' has no caption"),
        (3, "it lacks or garbles file_name or id"),
        (4, "there is no image 'train2017/000000000007.jpg'"),
        (5, "it lacks or garbles file_name or id"),
        (6, "the id '000000000001' is on line 1 already"),
    ]
    assert report.records == 2
    assert report.tallies[0].left_out == {
        "images that captions_train2017.json does not list, with captions": 1
    }
    assert (report.tallies[0].found, report.tallies[0].unaccounted) == (8, 0)


def test_images_that_share_an_id_get_no_captions(tmp_path: Path) -> None:
    images = [
        {"id": 1, "file_name": "1.jpg"},
        {"id": 1, "file_name": "2.jpg"},
        {"id": 3, "file_name": "3.jpg"},
    ]
    make(tmp_path, "val2017", images, [caption(1, "a dog"), caption(3, "a lake")])
    touch(tmp_path / "val2017", "1.jpg", "2.jpg", "3.jpg")
    report = imported("coco", tmp_path)
    assert [record.texts for record in records_of(tmp_path).values()] == [("a lake",)]
    assert [item.reason for item in report.rejections.items] == [
        f"the image '{number}.jpg' has the id 1 of another image" for number in (1, 2)
    ]


def test_another_folder_is_told(source: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"There is no annotations/captions_train2017\.json"):
        imported("coco", tmp_path)
    write(source, "annotations/captions_val2017.json", '{"images": [}')
    with pytest.raises(DataError, match=r'captions_val2017\.json has no list "annotations"'):
        imported("coco", source)
    for name in ("train2017", "val2017"):
        (source / name).rename(source / f"{name}-kept")
    with pytest.raises(DataError, match="There is none of the folders train2017, val2017 of images"):
        imported("coco", source)
