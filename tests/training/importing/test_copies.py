"""Equal files, splits by folders, and what an import decodes."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.image_files import write_photo
from tests.training.importing.trees import image_bytes, imported, records_of, touch, write
from training.common.errors import DataError
from training.common.manifest import Record
from training.importing.copies import settle
from training.importing.run import import_data_set

NUMBERS = range(60)


def record(name: str, sha256: str, group: str | None = None, **values: object) -> Record:
    known: dict[str, Any] = values
    return Record(name, f"{name}.jpg", group=group, sha256=sha256, **known)


def test_copies_in_a_folder_are_one_group(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{number}.jpg" for number in range(20)))
    for number in range(20):
        shutil.copy(tmp_path / f"{number}.jpg", tmp_path / f"{number} (1).jpg")
    report = imported("folder", tmp_path)
    found = records_of(tmp_path)
    assert len(found) == 40
    for number in range(20):
        one, two = found[f"{number}.jpg"], found[f"{number} (1).jpg"]
        assert (one.split, one.group, one.sha256) == (two.split, two.group, two.sha256)
        assert one.group is not None
    assert len({one.group for one in found.values()}) == 20
    assert report.notes[-1].startswith("20 files are copies of others: ")


def test_a_split_goes_with_the_content_of_a_file(tmp_path: Path) -> None:
    touch(tmp_path / "one", *(f"{number}.jpg" for number in range(30)))
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for number in range(30):
        (tmp_path / "two" / f"{number}.jpg").rename(tmp_path / "two" / f"x{number}.jpg")
    imported("folder", tmp_path / "one")
    imported("folder", tmp_path / "two")
    one, two = records_of(tmp_path / "one"), records_of(tmp_path / "two")
    assert [two[f"x{name}"].split for name in one] == [found.split for found in one.values()]
    assert len({found.split for found in one.values()}) > 1


def test_groups_that_share_files_are_drawn_together() -> None:
    records = [record(f"{n}", f"{n // 2:064}", f"patient {(n + 1) // 2}") for n in NUMBERS]
    assert len({one.split for one in settle(records, [], extracted=False)}) == 1
    apart = [record(f"{n}", f"{n:064}", f"patient {n // 2}") for n in NUMBERS]
    assert len({one.split for one in settle(apart, [], extracted=False)}) > 1


def test_drawn_records_follow_a_named_split() -> None:
    records = [
        *(record("a", "1" * 64, "g"), record("b", "2" * 64, "g"), record("c", "2" * 64)),
        record("d", "3" * 64, split="test"),
    ]
    named = [*records, record("e", "2" * 64, split="val")]
    assert [one.split for one in settle(named, [], extracted=False)] == ["val", "val", "val", "test", "val"]


def test_copies_in_two_named_splits_are_told_and_stay() -> None:
    notes: list[str] = []
    records = [
        record("a", "1" * 64, split="train"),
        record("b", "1" * 64, split="test"),
    ]
    assert settle(records, notes, extracted=True) == records
    assert notes == [
        "1 file is a copy of another in another split, as the data set names them: "
        "'b.jpg' in test of 'a.jpg' in train."
    ]


def test_one_written_file_in_two_named_splits_is_told() -> None:
    notes: list[str] = []
    parts: tuple[tuple[str, Any], ...] = (("a", "train"), ("b", "test"), ("c", "test"))
    records = [replace(record(name, "1" * 64, split=split), image="x.jpg") for name, split in parts]
    settled = settle(records, notes, extracted=True)
    assert [(one.id, one.group) for one in settled] == [("a", None), ("b", None)]
    assert notes[-1] == (
        "1 file is a copy of another in another split, as the data set names them: "
        "'b' in test of 'x.jpg' in train."
    )


def test_records_of_one_extracted_file_keep_all_that_is_known() -> None:
    notes: list[str] = []
    metadata = ({"sentid": 1, "url": "u"}, {"sentid": 2, "url": "u", "tags": ("x", "y")}, {"tags": ("y",)})
    records = [
        record(f"{number}", "1" * 64, texts=(f"text {number}", "both"), labels=("dog",), metadata=known)
        for number, known in enumerate(metadata)
    ]
    other = record("other", "1" * 64, "another patient")
    joined, apart = settle([*records, other], notes, extracted=True)
    assert joined.texts == ("text 0", "both", "text 1", "text 2")
    assert (joined.labels, dict(joined.metadata)) == (
        ("dog",),
        {"sentid": (1, 2), "url": "u", "tags": ("x", "y")},
    )
    assert joined.rows == 3
    assert (apart.id, apart.split) == ("other", joined.split)
    assert notes[0] == (
        "2 of 4 records have the same file as another one; 1 image has all their texts, labels and metadata."
    )


def test_folders_of_splits_with_folders_of_labels(tmp_path: Path) -> None:
    touch(tmp_path, "train/cat/1.jpg", "train/dog/2.jpg", "val/cat/3.jpg", "test/dog/train.jpg")
    report = imported("folder", tmp_path)
    found = {one.image: (one.split, one.labels) for one in records_of(tmp_path).values()}
    assert found == {
        "train/cat/1.jpg": ("train", ("cat",)),
        "train/dog/2.jpg": ("train", ("dog",)),
        "val/cat/3.jpg": ("val", ("cat",)),
        "test/dog/train.jpg": ("test", ("dog",)),
    }
    assert report.notes == [
        "Splits are those that folders or files are named for: train 2, val 1, test 1; "
        "the folders below are labels."
    ]


def test_folders_that_are_not_all_named_as_splits_name_none(tmp_path: Path) -> None:
    touch(tmp_path, *(f"train/{number}.jpg" for number in range(40)), "train.png", "train-station/1.jpg")
    report = imported("folder", tmp_path)
    assert {one.split for one in records_of(tmp_path).values()} == {"train", "val", "test"}
    assert report.notes == [
        "40 of 42 images are in places that name a split, as train/, the others are not: all splits are "
        "drawn."
    ]


def test_tables_of_an_image_folder_are_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for split, texts in {"train": ("a dog", "a cat"), "validation": ("a lake",), "test": ("a tree",)}.items():
        touch(tmp_path, *(f"{split}/{number}.jpg" for number, _ in enumerate(texts)))
        lines = "".join(
            f'{{"file_name": "{number}.jpg", "text": "{text}"}}\n' for number, text in enumerate(texts)
        )
        write(tmp_path, f"{split}/metadata.jsonl", lines)
    write(tmp_path, "other/metadata.jsonl", "{}\n")
    monkeypatch.chdir(tmp_path.parent)
    relative = Path(tmp_path.name) / "train" / "metadata.jsonl"
    for options in ({}, {"table": tmp_path / "train" / "metadata.jsonl"}, {"table": relative}):
        report = imported("folder", tmp_path, **options)
        assert {one.image: (one.split, *one.texts) for one in records_of(tmp_path).values()} == {
            "train/0.jpg": ("train", "a dog"),
            "train/1.jpg": ("train", "a cat"),
            "validation/0.jpg": ("val", "a lake"),
            "test/0.jpg": ("test", "a tree"),
        }
        assert report.notes[0].startswith("Read 3 tables such as ")


def test_an_image_in_two_tables_is_refused_by_the_second(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg", "b/2.jpg")
    write(tmp_path, "a/metadata.csv", "file_name,text,age\n1.jpg,one,7\n")
    write(tmp_path, "b/metadata.csv", "file_name,text,age\n2.jpg,two,8\n../a/1.jpg,other,9\n")
    report = imported("folder", tmp_path, max_rejected=1)
    assert {one.image: (one.texts, one.metadata["age"]) for one in records_of(tmp_path).values()} == {
        "a/1.jpg": (("one",), 7),
        "b/2.jpg": (("two",), 8),
    }
    (reason,) = report.rejections.named()
    assert reason == "Line 3 of b/metadata.csv: 'a/1.jpg' is also in a/metadata.csv."


def test_files_that_cannot_be_decoded_are_refused_and_named(tmp_path: Path) -> None:
    touch(tmp_path, "1.jpg", "2.jpg", "3.jpg")
    whole = image_bytes(1)
    (tmp_path / "4.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "5.jpg").write_bytes((tmp_path / "1.jpg").read_bytes()[:-40])
    (tmp_path / "6.png").write_bytes(whole[:40] + bytes(20) + whole[60:])
    report = imported("folder", tmp_path, max_rejected=1)
    assert [item.reason.split(":")[0] for item in report.rejections.items] == [
        "'4.png'",
        "'5.jpg'",
        "'6.png'",
    ]
    assert report.sentences()[0] == f"Found 6 files in {tmp_path}: 3 taken, 3 refused, 0 left out."


def test_files_beyond_those_that_are_decoded_are_listed(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{number}.jpg" for number in range(9)))
    (tmp_path / "9.jpg").write_bytes((tmp_path / "1.jpg").read_bytes()[:-40])
    report = imported("folder", tmp_path, max_rejected=1, most_decoded=4)
    # What seems cut is decoded first.
    assert report.sentences()[0] == f"Found 10 files in {tmp_path}: 3 taken, 6 listed, 1 refused, 0 left out."
    assert "--check decodes them all" in report.sentences()[1]


def test_an_import_of_nothing_leaves_the_manifest_of_before(tmp_path: Path) -> None:
    touch(tmp_path, "1.jpg", "2.jpg")
    imported("folder", tmp_path)
    before = (tmp_path / "manifest.jsonl").read_bytes()
    write(tmp_path, "t.csv", "image,text\ngone.jpg,a dog\n")
    with pytest.raises(DataError, match="can be used, so no manifest is written"):
        import_data_set("folder", tmp_path, table=tmp_path / "t.csv", max_rejected=1)
    for name in ("1.jpg", "2.jpg"):
        (tmp_path / name).write_bytes(b"\xff\xd8\xff\xe0 damaged")
    with pytest.raises(DataError, match="can be used, so no manifest is written"):
        import_data_set("folder", tmp_path, max_rejected=1)
    assert (tmp_path / "manifest.jsonl").read_bytes() == before
    write_photo(tmp_path / "1.jpg")
    assert imported("folder", tmp_path, max_rejected=1).records == 1
