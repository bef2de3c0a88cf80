"""Equal files, splits by folders, and the splits of a manifest that an import replaces."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.image_files import write_photo
from tests.training.importing.trees import imported, records_of, touch, write
from training.common.errors import DataError
from training.common.manifest import Record
from training.common.record import Split
from training.importing.splits import draw_split, settle, split_in


def record(name: str, sha256: str, group: str | None = None, **values: Any) -> Record:
    return Record(name, f"{name}.jpg", group=group, sha256=sha256, **values)


def test_copies_in_a_folder_are_one_group_and_take_their_split_along(tmp_path: Path) -> None:
    touch(tmp_path / "one", *(f"{number}.jpg" for number in range(20)))
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for number in range(20):
        shutil.copy(tmp_path / f"one/{number}.jpg", tmp_path / f"one/{number} (1).jpg")
        (tmp_path / f"two/{number}.jpg").rename(tmp_path / f"two/x{number}.jpg")
    report = imported("folder", tmp_path / "one")
    found = records_of(tmp_path / "one")
    assert len(found) == 40
    for number in range(20):
        one, two = found[f"{number}.jpg"], found[f"{number} (1).jpg"]
        assert (one.split, one.group, one.sha256) == (two.split, two.group, two.sha256)
    assert len({one.group for one in found.values()} - {None}) == 20
    assert report.notes[-1].startswith("20 files are copies of others: ")
    imported("folder", tmp_path / "two")
    others = records_of(tmp_path / "two")
    assert [found[name[1:]].split for name in others] == [other.split for other in others.values()]
    assert len({other.split for other in others.values()}) > 1


def test_groups_are_drawn_in_tenths_and_those_that_share_files_together() -> None:
    records = [record(f"{n}", f"{n // 2:064}", f"patient {(n + 1) // 2}") for n in range(60)]
    assert len({one.split for one in settle(records, [], extracted=False)}) == 1
    apart = [record(f"{n}", f"{n:064}", f"patient {n // 2}") for n in range(1000)]
    settled = settle(apart, [], extracted=False)
    assert all(one.split == two.split for one, two in zip(settled[::2], settled[1::2], strict=True))
    counts = Counter(one.split for one in settled)
    assert counts["train"] > 700 and 50 < counts["val"] < 150 and 50 < counts["test"] < 150


def test_drawn_records_follow_a_named_split() -> None:
    records = [
        *(record("a", "1" * 64, "g"), record("b", "2" * 64, "g"), record("c", "2" * 64)),
        *(record("d", "3" * 64, split="test"), record("e", "2" * 64, split="val")),
    ]
    assert [one.split for one in settle(records, [], extracted=False)] == ["val", "val", "val", "test", "val"]


def test_copies_in_two_named_splits_are_told_and_stay() -> None:
    notes: list[str] = []
    records = [record("a", "1" * 64, split="train"), record("b", "1" * 64, split="test")]
    assert settle(records, notes, extracted=True) == records
    several = [replace(one, image="x.jpg") for one in (*records, record("c", "1" * 64, split="test"))]
    settled = settle(several, notes, extracted=True)
    assert [(one.id, one.group) for one in settled] == [("a", None), ("b", None)]
    told = "1 file is a copy of another in another split, as the data set names them: "
    assert notes[0] == f"{told}'b.jpg' in test of 'a.jpg' in train."
    assert notes[-1] == f"{told}'b' in test of 'x.jpg' in train."


def test_records_of_one_extracted_file_keep_all_that_is_known() -> None:
    notes: list[str] = []
    metadata = ({"sentid": 1, "url": "u"}, {"sentid": 2, "url": "u", "tags": ("x", "y")}, {"tags": ("y",)})
    records = [
        record(f"{number}", "1" * 64, texts=(f"text {number}", "both"), labels=("dog",), metadata=known)
        for number, known in enumerate(metadata)
    ]
    other = record("other", "1" * 64, "another patient")
    joined, apart = settle([*records, other], notes, extracted=True)
    assert (joined.texts, joined.labels) == (("text 0", "both", "text 1", "text 2"), ("dog",))
    assert dict(joined.metadata) == {"sentid": (1, 2), "url": "u", "tags": ("x", "y")}
    assert joined.rows == 3
    assert (apart.id, apart.split) == ("other", joined.split)
    assert notes[0] == (
        "2 of 4 records have the same file as another one; 1 image has all their texts, labels and metadata."
    )


def test_folders_of_splits_with_folders_of_labels(tmp_path: Path) -> None:
    touch(tmp_path, "train/cat/1.jpg", "train/dog/2.jpg", "val/cat/3.jpg", "test/dog/train.jpg")
    report = imported("folder", tmp_path)
    assert {one.image: (one.split, one.labels) for one in records_of(tmp_path).values()} == {
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
        "40 of 42 images are in folders that name a split, as train/, the others are not: all splits are "
        "drawn."
    ]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """An imported folder with twelve different photographs in two folders."""
    folder = tmp_path / "photos"
    touch(folder, *(f"{'a' if number < 8 else 'b'}/{number:02}.png" for number in range(12)))
    assert imported("folder", folder).notes == []
    return folder


def _lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]


def _splits(folder: Path) -> dict[str, str]:
    return {line["image"].rpartition("/")[2]: line["split"] for line in _lines(folder)}


def _change(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the lines of a manifest, whose images are all in the split that is drawn seldom."""
    lines = [line | {"split": "test"} for line in _lines(folder)]
    for line in lines:
        change(line)
    write(folder, "manifest.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


def test_renamed_files_keep_their_splits_and_are_counted(photos: Path) -> None:
    _change(photos, len)
    (photos / "a").rename(photos / "A (old)")
    (photos / "b/08.png").rename(photos / "b/8.png")
    report = imported("folder", photos)
    assert set(_splits(photos).values()) == {"test"}
    assert report.notes[-1] == (
        "Of the 12 images in the manifest that this one replaces, 9 have another path now."
    )


def test_a_manifest_without_digests_keeps_splits_by_paths(photos: Path) -> None:
    _change(photos, lambda line: line.pop("sha256"))
    imported("folder", photos)
    assert set(_splits(photos).values()) == {"test"}


def test_what_is_gone_changed_or_swapped_is_said(photos: Path) -> None:
    for path in (*(photos / "b").iterdir(), photos / "a/01.png"):
        path.unlink()
    write_photo(photos.parent / "other.png")
    (photos.parent / "other.png").replace(photos / "a/02.png")
    report = imported("folder", photos)
    assert report.records == 7
    assert report.notes[-1] == (
        "Of the 12 images in the manifest that this one replaces, 1 has another file now and 5 are gone "
        "(all 4 in b/, 1 in a/)."
    )
    (photos / "a/00.png").rename(photos / "aside")
    (photos / "a/03.png").rename(photos / "a/00.png")
    (photos / "aside").rename(photos / "a/03.png")
    (photos / "a/05.png").replace(photos / "a/04.png")
    assert imported("folder", photos).notes[-1] == (
        "Of the 7 images in the manifest that this one replaces, 3 have another path now and 1 has another "
        "file now."
    )


def test_a_new_group_of_several_splits_is_drawn_anew(photos: Path) -> None:
    _change(photos, lambda line: line.update(split="val") if line["image"] == "a/00.png" else None)
    paths = [path.relative_to(photos) for path in sorted(photos.glob("*/*.png"))]
    write(photos.parent, "t.csv", "\n".join(["image,group", *(f"{path},all" for path in paths)]))
    imported("folder", photos, table=photos.parent / "t.csv")
    assert set(_splits(photos).values()) == {"train"}


def test_a_manifest_that_cannot_be_read_is_not_replaced(photos: Path) -> None:
    (photos / "manifest.jsonl").unlink()
    (photos / "manifest.jsonl").mkdir()
    with pytest.raises(DataError, match=r"manifest\.jsonl cannot be read"):
        imported("folder", photos)


@pytest.mark.parametrize(
    ("path", "split", "place"),
    [
        ("data/train-00000-of-00004-0a1b", "train", 1),
        ("validation/0001", "val", 0),
        ("photos/Test/dog", "test", 1),
        ("train/train-000012", "train", 1),
        ("dev_3", "val", 0),
        *(
            (path, None, 0)
            for path in ("latest/contest", "cc-val-0001", "train-station-0001", "train/test-0001")
        ),
        *((path, None, 0) for path in ("val-isere-2020", "training camp", "my test/1", "")),
    ],
)
def test_splits_that_whole_components_name(path: str, split: Split | None, place: int) -> None:
    assert split_in(path.split("/")) == (None if split is None else (split, place))


def test_a_drawn_split_is_the_same_again_and_about_a_tenth_each() -> None:
    drawn = [draw_split(str(number)) for number in range(4000)]
    assert drawn == [draw_split(str(number)) for number in range(4000)]
    shares: dict[Split, float] = {"train": 0.8, "val": 0.1, "test": 0.1}
    for name, share in shares.items():
        assert abs(drawn.count(name) / 4000 - share) < 0.03
