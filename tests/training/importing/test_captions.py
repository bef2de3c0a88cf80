"""Images with captions: Karpathy's JSON files, and MS-COCO as published."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.training.importing.trees import imported, left_out, records_of, refused, touch, write
from training.common.errors import DataError
from training.common.manifest import read_manifest


def split_image(name: str, split: str, *captions: str, **more: Any) -> dict[str, Any]:
    sentences = [{"tokens": caption.split(), "raw": caption, "imgid": 0} for caption in captions]
    return {"filename": name, "split": split, "sentences": sentences, "sentids": [1]} | more


def make_karpathy(
    folder: Path, images: list[Any], *, name: str = "dataset_flickr30k.json", under: str = "images"
) -> None:
    write(folder, name, json.dumps({"images": images, "dataset": "x"}))
    for entry in images:
        if isinstance(entry, dict) and "filename" in entry:
            touch(folder / under, f"{entry.get('filepath', '.')}/{entry['filename']}")


def test_flickr_and_coco_with_restval_as_train(tmp_path: Path) -> None:
    images = [
        split_image("1.jpg", "train", "A  dog .", "Two dogs\n"),
        split_image("2.jpg", "test", "A cat.", " "),
    ]
    make_karpathy(tmp_path, images)
    imported("karpathy", tmp_path)
    first, second = read_manifest(tmp_path).records
    assert (first.id, first.image, first.split) == ("1", "images/1.jpg", "train")
    assert (first.texts, second.split, second.texts) == (("A dog .", "Two dogs"), "test", ("A cat.",))
    (tmp_path / "dataset_flickr30k.json").unlink()
    images = [
        split_image("COCO_val2014_1.jpg", "restval", "One.", filepath="val2014", cocoid=1),
        split_image("COCO_train2014_2.jpg", "train", "Two.", filepath="train2014", cocoid=2),
        split_image("COCO_val2014_3.jpg", "val", "Three.", filepath="val2014", cocoid=3),
    ]
    make_karpathy(tmp_path, images, name="dataset_coco.json", under="")
    (tmp_path / "images").rename(tmp_path / "others")
    imported("karpathy", tmp_path)
    assert [(record.image, record.split) for record in read_manifest(tmp_path).records] == [
        ("val2014/COCO_val2014_1.jpg", "train"),
        ("train2014/COCO_train2014_2.jpg", "train"),
        ("val2014/COCO_val2014_3.jpg", "val"),
    ]


def test_broken_entries_are_named_by_number(tmp_path: Path) -> None:
    images = [
        split_image("1.jpg", "train", "One."),
        split_image("2.jpg", "dev", "Two."),
        split_image("3.jpg", "train"),
        {"filename": "4.jpg", "split": "train", "sentences": [{"tokens": []}]},
        7,
        split_image("1.jpg", "train", "One again."),
        split_image("../7.jpg", "train", "Outside."),
        split_image("8.jpg", "train", "Gone."),
    ]
    make_karpathy(tmp_path, images)
    (tmp_path / "images" / "8.jpg").unlink()
    report = imported("karpathy", tmp_path)
    assert report.records == 1
    assert refused(report) == [
        (2, "the split 'dev' is not one of train, restval, val, test"),
        (3, "the image '3.jpg' has no caption"),
        (4, "it lacks or garbles filename, split or sentences ('raw')"),
        (5, "it lacks or garbles filename, split or sentences ('int' object is not subscriptable)"),
        (8, f"there is no image '8.jpg' in {tmp_path / 'images'}"),
        (6, "the id '1' is on line 1 already"),
        (7, "the image 'images/../7.jpg' is not a path with '/' inside the manifest's folder"),
    ]


def test_other_and_damaged_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"There is none of dataset_flickr30k\.json"):
        imported("karpathy", tmp_path)
    start = '{"dataset": "x", "images" : ['
    within = json.dumps(split_image("a.jpg", "val", 'He says "images": ['))
    write(tmp_path, "dataset.json", f"{start}{within} , {{oops")
    with pytest.raises(DataError, match=r"dataset\.json is damaged at image 2: Expecting property name"):
        imported("karpathy", tmp_path)
    for text in ("{}", '{"images": {}}', "not json"):
        write(tmp_path, "dataset_coco.json", text)
        with pytest.raises(DataError, match='has no list "images"'):
            imported("karpathy", tmp_path)


def test_another_folder_gets_a_link_to_the_images(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    make_karpathy(source, [split_image("1.jpg", "val", "One.")], under="flickr30k-images")
    for _ in range(2):
        imported("karpathy", source / "dataset_flickr30k.json", out)
    assert (out / "images").resolve() == source / "flickr30k-images"
    assert read_manifest(out).records[0].image == "images/1.jpg"
    (out / "images").unlink()
    (out / "images").mkdir()
    with pytest.raises(DataError, match="does not lead to"):
        imported("karpathy", source, out)


def make_coco(folder: Path, name: str, images: list[Any], captions: list[Any]) -> None:
    content = {"info": {"year": 2017, "images": "annotations"}, "licenses": [], "images": images}
    write(folder, f"annotations/captions_{name}.json", json.dumps(content | {"annotations": captions}))


def image(number: int, **more: Any) -> dict[str, Any]:
    return {"license": 4, "file_name": f"{number:012}.jpg", "height": 427, "width": 640, "id": number} | more


def caption(number: int, text: str) -> dict[str, Any]:
    return {"image_id": number, "id": number * 10, "caption": text}


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    folder = tmp_path / "coco"
    captions = [caption(2, "A dog\n runs."), caption(1, "A cat."), caption(2, "One dog.")]
    make_coco(folder, "train2017", [image(1), image(2)], captions)
    make_coco(folder, "val2017", [image(3)], [caption(3, "A boat.")])
    touch(folder, *(f"train2017/{number:012}.jpg" for number in (1, 2)), f"val2017/{3:012}.jpg")
    return folder


def test_coco(coco: Path, tmp_path: Path) -> None:
    touch(coco, "val2017/000000000009.jpg")
    # Of several years the newest that has images counts.
    make_coco(coco, "train2014", [image(1)], [caption(1, "An old caption.")])
    make_coco(coco, "val2019", [image(1)], [caption(1, "A late caption.")])
    touch(coco, "images/train2014/000000000001.jpg")
    report = imported("coco", coco)
    assert (report.records, len(report.rejections)) == (3, 0)
    assert left_out(report) == {"images without a row that can be used": 1}
    first, second, third = records_of(coco).values()
    assert first.texts == ("A cat.",)
    assert (second.image, second.texts) == ("train2017/000000000002.jpg", ("A dog runs.", "One dog."))
    assert (second.split, third.split, third.texts) == ("train", "val", ("A boat.",))
    (coco / "train2017").rename(tmp_path / "train2017")
    assert imported("coco", coco, tmp_path / "out", images=tmp_path / "train2017").records == 2
    assert records_of(tmp_path / "out")["000000000001"].image == "images/000000000001.jpg"


def test_what_cannot_be_used_of_coco_is_named(coco: Path) -> None:
    same = image(8, file_name="8.jpg"), image(8, file_name="9.jpg")
    make_coco(
        coco,
        "train2017",
        [image(1), image(2), {"id": 5}, image(7), "text", image(1), *same],
        [
            *(caption(1, "A cat."), caption(7, "Gone."), caption(8, "Of two."), caption(99, "Of none.")),
            {"image_id": 1, "caption": None},
        ],
    )
    report = imported("coco", coco)
    assert [(line, reason.split(" in /")[0]) for line, reason in refused(report)] == [
        (2, "the image '000000000002.jpg' has no caption"),
        (3, "it lacks or garbles file_name or id"),
        (4, "there is no image 'train2017/000000000007.jpg'"),
        (5, "it lacks or garbles file_name or id"),
        (7, "the image '8.jpg' has the id 8 of another image"),
        (8, "the image '9.jpg' has the id 8 of another image"),
        (6, "the id '000000000001' is on line 1 already"),
    ]
    assert report.records == 2
    assert (
        report.notes[0]
        == "1 captions of captions_train2017.json lack image_id or caption and are passed over."
    )
    unlisted = "images that captions_train2017.json does not list, with captions"
    assert (report.tallies[0].found, report.tallies[0].left_out) == (10, {unlisted: 1})


def test_another_folder_than_cocos_is_told(coco: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"There is no annotations/captions_train2017\.json"):
        imported("coco", tmp_path)
    write(coco, "annotations/captions_val2017.json", '{"images": [}')
    with pytest.raises(DataError, match=r'captions_val2017\.json has no list "annotations"'):
        imported("coco", coco)
    for name in ("train2017", "val2017"):
        (coco / name).rename(coco / f"{name}-kept")
    with pytest.raises(DataError, match="There is none of the folders train2017, val2017 of images"):
        imported("coco", coco)
