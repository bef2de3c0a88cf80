"""Karpathy's JSON files."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.image_files import write_photo
from training.common.errors import DataError
from training.common.manifest import read_manifest
from training.importing.run import import_data_set


def image(name: str, split: str, *captions: str, **more: Any) -> dict[str, Any]:
    sentences = [{"tokens": caption.split(), "raw": caption, "imgid": 0} for caption in captions]
    return {"filename": name, "split": split, "sentences": sentences, "sentids": [1]} | more


def make(
    folder: Path, images: list[Any], *, name: str = "dataset_flickr30k.json", under: str = "images"
) -> None:
    (folder / name).write_text(json.dumps({"images": images, "dataset": "x"}))
    for entry in images:
        if isinstance(entry, dict) and "filename" in entry:
            path = folder / under / entry.get("filepath", "") / entry["filename"]
            path.parent.mkdir(parents=True, exist_ok=True)
            write_photo(path)


def test_flickr(tmp_path: Path) -> None:
    make(tmp_path, [image("1.jpg", "train", "A  dog .", "Two dogs\n"), image("2.jpg", "test", "A cat.", " ")])
    report = import_data_set("karpathy", tmp_path)
    assert (report.records, len(report.rejections)) == (2, 0)
    first, second = read_manifest(tmp_path).records
    assert (first.id, first.image, first.split, first.texts) == (
        "1",
        "images/1.jpg",
        "train",
        ("A dog .", "Two dogs"),
    )
    assert (second.split, second.texts) == ("test", ("A cat.",))


def test_coco_counts_restval_as_train(tmp_path: Path) -> None:
    images = [
        image("COCO_val2014_1.jpg", "restval", "One.", filepath="val2014", cocoid=1),
        image("COCO_train2014_2.jpg", "train", "Two.", filepath="train2014", cocoid=2),
        image("COCO_val2014_3.jpg", "val", "Three.", filepath="val2014", cocoid=3),
    ]
    make(tmp_path, images, name="dataset_coco.json", under="")
    import_data_set("karpathy", tmp_path)
    assert [(record.image, record.split) for record in read_manifest(tmp_path).records] == [
        ("val2014/COCO_val2014_1.jpg", "train"),
        ("train2014/COCO_train2014_2.jpg", "train"),
        ("val2014/COCO_val2014_3.jpg", "val"),
    ]


def test_broken_entries_are_named_by_number(tmp_path: Path) -> None:
    images = [
        image("1.jpg", "train", "One."),
        image("2.jpg", "dev", "Two."),
        image("3.jpg", "train"),
        {"filename": "4.jpg", "split": "train", "sentences": [{"tokens": []}]},
        7,
        image("1.jpg", "train", "One again."),
        image("../7.jpg", "train", "Outside."),
        image("8.jpg", "train", "Gone."),
    ]
    make(tmp_path, images)
    (tmp_path / "images" / "8.jpg").unlink()
    report = import_data_set("karpathy", tmp_path, max_rejected=1.0)
    assert report.records == 1
    assert [(item.line, item.reason) for item in report.rejections.items] == [
        (2, "the split 'dev' is not one of train, restval, val, test"),
        (3, "the image '3.jpg' has no caption"),
        (4, "it lacks or garbles filename, split or sentences ('raw')"),
        (5, "it lacks or garbles filename, split or sentences ('int' object is not subscriptable)"),
        (8, f"there is no image '8.jpg' in {tmp_path / 'images'}"),
        (6, "the id '1' is on line 1 already"),
        (7, "the image 'images/../7.jpg' is not a path with '/' inside the manifest's folder"),
    ]
    (tmp_path / "manifest.jsonl").unlink()
    with pytest.raises(DataError, match=r"7 of 8 images, .*\nImage 2: the split 'dev'"):
        import_data_set("karpathy", tmp_path, max_rejected=0.3)
    assert not (tmp_path / "manifest.jsonl").exists()


def test_a_key_within_a_caption_and_damage_behind_it(tmp_path: Path) -> None:
    text = (
        '{"dataset": "x", "images" : ['
        + json.dumps(image("a.jpg", "val", 'He says "images": ['))
        + " , {oops"
    )
    (tmp_path / "dataset.json").write_text(text)
    with pytest.raises(DataError, match=r"dataset\.json is damaged at image 2: Expecting property name"):
        import_data_set("karpathy", tmp_path)


@pytest.mark.parametrize("text", ["{}", '{"images": {}}', "not json"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "dataset_coco.json").write_text(text)
    with pytest.raises(DataError, match='has no list "images"'):
        import_data_set("karpathy", tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"There is none of dataset_flickr30k\.json"):
        import_data_set("karpathy", tmp_path)
    with pytest.raises(DataError, match="Only CheXpert"):
        import_data_set("karpathy", tmp_path, leave_out=tmp_path / "x.csv")


def test_another_folder_gets_a_link_to_the_images(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    make(source, [image("1.jpg", "val", "One.")], under="flickr30k-images")
    for _ in range(2):
        import_data_set("karpathy", source / "dataset_flickr30k.json", out)
    assert [record.image for record in read_manifest(out).records] == ["images/1.jpg"]
    assert (out / "images").resolve() == (source / "flickr30k-images").resolve()
    assert not (source / "manifest.jsonl").exists()


def test_a_folder_of_that_name_is_not_replaced(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    (out / "images").mkdir(parents=True)
    make(source, [image("1.jpg", "val", "One.")])
    with pytest.raises(DataError, match="is there already and does not lead to"):
        import_data_set("karpathy", source, out)
