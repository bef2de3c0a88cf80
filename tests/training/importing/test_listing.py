"""Listings become manifests with an account of every item."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image_files import write_photo
from training.common.errors import DataError
from training.common.record import Record
from training.common.rejections import LeftOut, Rejection
from training.importing.listing import Listing, write_listing


def items() -> Iterator[Record | Rejection | LeftOut]:
    yield Record("1", "1.jpg", "train", texts=("a", "b"), labels=("dog",), line=2, rows=2)
    yield LeftOut("patients of the test", 3)
    yield Rejection(7, "it is broken", "t.csv")
    yield Record("1", "2.jpg", "train", labels=("cat",), line=8, rows=2)
    yield Record("3", "3.jpg", "train", line=10)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in (1, 2):
        write_photo(tmp_path / f"{number}.jpg")
    return tmp_path


def test_every_item_is_taken_refused_or_left_out(folder: Path) -> None:
    listing = Listing(folder / "t.csv", folder, 9, items(), left_out={"patients of the test": 1})
    report = write_listing(listing, folder, max_rejected=0.5)
    (tally,) = report.tallies
    assert (tally.found, tally.taken, tally.refused, tally.unaccounted) == (10, 2, 4, 0)
    assert tally.left_out == {"patients of the test": 4}
    # A record that the manifest does not take counts for nothing else.
    assert report.sentences() == [
        f"Found 10 rows in {folder / 't.csv'}: 2 taken, 4 refused, 4 left out.",
        "Left out: patients of the test: 4.",
        "2 texts, for 1 of 1 image.",
        "1 label; the most frequent is 'dog', of 1 of 1 image.",
    ]
    assert report.rejections.named() == [
        "Line 7 of t.csv: it is broken.",
        f"Line 10: there is no image '3.jpg' in {folder}.",
        "Line 8: the id '1' is on line 2 already (2 rows).",
    ]


def test_files_that_no_decoder_takes_are_refused_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pi_heif", None)
    (folder / "3.jpg").touch()
    (folder / "4.jpg").write_text("<html>404</html>", encoding="utf-8")
    (folder / "5.jpg").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    records = (Record(str(number), f"{number}.jpg", "train", line=number) for number in range(1, 6))
    report = write_listing(Listing(folder, folder, 5, records), folder, max_rejected=1.0)
    assert report.records == 2
    assert report.rejections.named() == [
        "Line 3: '3.jpg' is an empty file.",
        "Line 4: '4.jpg' is no image that can be read, whatever its name says.",
        "Line 5: '5.jpg' holds a HEIC image, which cannot be read (install recoquest[heic], "
        "or convert it to JPEG or PNG).",
    ]


def test_items_that_a_reader_promised_and_did_not_give_are_said(folder: Path) -> None:
    report = write_listing(Listing(folder / "t.csv", folder, 12, items()), folder, max_rejected=0.5)
    assert report.tallies[0].unaccounted == 3
    assert "3 not accounted for" in report.sentences()[0]


def test_nothing_is_written_when_the_last_item_is_one_too_many(folder: Path) -> None:
    with pytest.raises(DataError, match="4 of 9 lines, more than") as raised:
        write_listing(
            Listing(folder / "t.csv", folder, 9, items(), notes=["A note."]), folder, max_rejected=0.4
        )
    assert raised.value.__notes__[-1] == "A note."
    assert not (folder / "manifest.jsonl").exists()


def test_many_reasons_are_all_named(folder: Path) -> None:
    left_out = {f".x{number} files": number for number in range(1, 16)}
    listing = Listing(folder, folder, 1, iter([Record("1", "1.jpg", "train")]), left_out=left_out)
    line = write_listing(listing, folder).sentences()[1]
    assert line.startswith("Left out: .x15 files: 15; .x14 files: 14;")
    assert line.endswith("; .x3 files: 3; .x2 files: 2; .x1 files: 1.")
