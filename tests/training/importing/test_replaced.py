"""A manifest that an import replaces: splits stay, and what is gone of it is said by folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.image_files import write_photo
from tests.training.importing.trees import imported
from training.common.errors import DataError


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder with twelve different photographs in two folders."""
    for number in range(12):
        path = tmp_path / "photos" / ("a" if number < 8 else "b") / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_photo(path)
    return tmp_path / "photos"


def _lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]


def _splits(folder: Path) -> dict[str, str]:
    return {line["image"].rpartition("/")[2]: line["split"] for line in _lines(folder)}


def _all_in_test(folder: Path, change: Callable[[dict[str, Any]], object] = len) -> None:
    """Give all images the split that is drawn seldom."""
    lines = _lines(folder)
    for line in lines:
        line["split"] = "test"
        change(line)
    (folder / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_first_import_says_nothing_of_another_manifest(photos: Path) -> None:
    assert imported("folder", photos).notes == []


def test_renamed_files_keep_their_splits_and_are_counted(photos: Path) -> None:
    imported("folder", photos)
    _all_in_test(photos)
    (photos / "a").rename(photos / "A (old)")
    (photos / "b/08.png").rename(photos / "b/8.png")
    report = imported("folder", photos)
    assert set(_splits(photos).values()) == {"test"}
    assert report.notes[-1] == (
        "Of the 12 images in the manifest that this one replaces, 9 have another path now."
    )


def test_a_manifest_without_digests_keeps_splits_by_paths(photos: Path) -> None:
    imported("folder", photos)
    _all_in_test(photos, lambda line: line.pop("sha256"))
    assert set(_splits(photos).values()) == {"test"}
    imported("folder", photos)
    assert set(_splits(photos).values()) == {"test"}


def test_what_is_gone_is_said_by_folder(photos: Path) -> None:
    imported("folder", photos)
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


def test_swapped_files_are_counted_as_moved(photos: Path) -> None:
    imported("folder", photos)
    (photos / "a/00.png").rename(photos / "aside")
    (photos / "a/01.png").rename(photos / "a/00.png")
    (photos / "aside").rename(photos / "a/01.png")
    (photos / "b/09.png").replace(photos / "b/08.png")
    assert imported("folder", photos).notes[-1] == (
        "Of the 12 images in the manifest that this one replaces, 3 have another path now and 1 has another "
        "file now."
    )


def test_a_new_group_of_several_splits_is_drawn_anew(photos: Path) -> None:
    imported("folder", photos)
    first, *others = sorted(photos.glob("*/*.png"))
    lines = _lines(photos)
    for line in lines:
        line["split"] = "val" if line["image"].endswith(first.name) else "test"
    (photos / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = photos.parent / "t.csv"
    rows = [f"{path.relative_to(photos)},all" for path in (first, *others)]
    table.write_text("\n".join(["image,group", *rows]))
    imported("folder", photos, table=table)
    assert set(_splits(photos).values()) == {"train"}


def test_a_manifest_that_cannot_be_read_is_not_replaced(photos: Path) -> None:
    (photos / "manifest.jsonl").mkdir()
    with pytest.raises(DataError, match=r"manifest\.jsonl cannot be read"):
        imported("folder", photos)
