"""Listings become manifests with an account of every item, and a report of it."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.image_files import write_photo
from tests.needed import needed_module
from tests.training.importing.trees import image_bytes, imported, touch, write
from training.common.errors import DataError
from training.common.record import Record
from training.common.rejections import LeftOut, Rejection
from training.importing.listing import Listing, write_listing
from training.importing.report import HIDDEN_FILES, IN_FOLDERS, Contents, Tally


def items() -> Iterator[Record | Rejection | LeftOut]:
    yield Record("1", "1.jpg", "train", texts=("a", "b"), labels=("dog",), line=2, rows=2)
    yield LeftOut("patients of the test", 3)
    yield Rejection(7, "it is broken", "t.csv")
    yield Record("1", "2.jpg", "train", labels=("cat",), line=8, rows=2)
    yield Record("3", "3.jpg", "train", line=10)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    touch(tmp_path, "1.jpg", "2.jpg")
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
    # More were promised.
    report = write_listing(Listing(folder / "t.csv", folder, 12, items()), folder, max_rejected=0.5)
    assert report.tallies[0].unaccounted == 3
    assert "3 not accounted for" in report.sentences()[0]


def test_files_that_no_decoder_takes_are_refused_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pi_heif", None)
    for number, content in ((3, b""), (4, "<html>404</html>"), (5, b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")):
        write(folder, f"{number}.jpg", content)
    records = (Record(str(number), f"{number}.jpg", "train", line=number) for number in range(1, 6))
    report = write_listing(Listing(folder, folder, 5, records), folder)
    assert report.records == 2
    assert report.rejections.named() == [
        "Line 3: '3.jpg' is an empty file.",
        "Line 4: '4.jpg' is no image that can be read, whatever its name says.",
        "Line 5: '5.jpg' holds a HEIC image, which cannot be read (install recoquest[heic], "
        "or convert it to JPEG or PNG).",
    ]


def test_nothing_is_written_when_the_last_item_is_one_too_many(folder: Path) -> None:
    listing = Listing(folder / "t.csv", folder, 9, items(), notes=["A note."])
    with pytest.raises(DataError, match="4 of 9 lines, more than") as raised:
        write_listing(listing, folder, max_rejected=0.4)
    assert raised.value.__notes__[-2:] == ["Left out: patients of the test: 3.", "A note."]
    assert not (folder / "manifest.jsonl").exists()


def test_damaged_files_are_refused_and_those_beyond_the_decoded_ones_listed(folder: Path) -> None:
    touch(folder, *(f"{number}.jpg" for number in range(3, 9)))
    whole = image_bytes(1)
    write(folder, "9.png", whole[: len(whole) // 2])
    write(folder, "a.jpg", (folder / "1.jpg").read_bytes()[:-40])
    write(folder, "b.png", whole[:40] + bytes(20) + whole[60:])
    report = imported("folder", folder)
    reasons = [item.reason.split(":")[0] for item in report.rejections.items]
    assert reasons == ["'9.png'", "'a.jpg'", "'b.png'"]
    assert report.sentences()[0] == f"Found 11 files in {folder}: 8 taken, 3 refused, 0 left out."
    (folder / "b.png").unlink()
    report = imported("folder", folder, most_decoded=4)
    # What seems cut is decoded first.
    assert report.sentences()[0] == f"Found 10 files in {folder}: 2 taken, 6 listed, 2 refused, 0 left out."
    assert "--check decodes them all" in report.sentences()[1]


def test_an_import_of_nothing_leaves_the_manifest_of_before(folder: Path) -> None:
    imported("folder", folder)
    before = (folder / "manifest.jsonl").read_bytes()
    write(folder, "t.csv", "image,text\ngone.jpg,a dog\n")
    with pytest.raises(DataError, match="can be used, so no manifest is written"):
        imported("folder", folder, table=folder / "t.csv")
    for name in ("1.jpg", "2.jpg"):
        write(folder, name, b"\xff\xd8\xff\xe0 damaged")
    with pytest.raises(DataError, match="can be used, so no manifest is written"):
        imported("folder", folder)
    assert (folder / "manifest.jsonl").read_bytes() == before
    write_photo(folder / "1.jpg")
    assert imported("folder", folder).records == 1


def test_reports_that_give_no_text_are_counted() -> None:
    contents = Contents()
    contents.add(Record("1", "1.jpg", "train", report="Normal."))
    contents.add(Record("2", "2.jpg", "train", report="No effusion.", texts=("No effusion.",)))
    contents.add(Record("3", "3.jpg", "train"))
    assert contents.sentences() == [
        "1 text, for 1 of 3 images.",
        "1 image has a report and no text, as all its sentences are fragments: 'Normal.' of '1.jpg'.",
    ]


def test_reasons_of_users_are_named_ahead_of_those_of_systems_and_hundreds_summed_up() -> None:
    of_users = {f".{name} files, which are no images that can be read": 1 for name in "abcdefghijklmnop"}
    of_systems = {f"{IN_FOLDERS}'@{number}'": 100 for number in range(8)} | {HIDDEN_FILES: 500}
    _, left_out = Tally("photos", "file", 1400, 84, 0, of_systems | of_users).sentences()
    assert left_out.removeprefix("Left out: ").removesuffix(".").split("; ") == [
        *(f"{reason}: 1" for reason in of_users),
        f"{HIDDEN_FILES}: 500",
        *(f"{IN_FOLDERS}'@{number}': 100" for number in range(3)),
        "5 more reasons: 500",
    ]


SIZE = (64, 48)


def noise() -> Image.Image:
    return Image.effect_noise(SIZE, 93).convert("RGB")


def saved(kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    noise().save(file, kind, **options)
    return file.getvalue()


def doubts(folder: Path) -> list[str]:
    """Sentences of the report about doubts; every file is listed all the same."""
    report = imported("folder", folder, most_decoded=0)
    assert report.records == len(list(folder.glob("*.*"))) - 1
    return [line for line in report.sentences() if "seem" in line or "TIFF" in line]


@pytest.mark.parametrize("ending", ["jpg", "png", "webp", "avif", "heic"])
def test_cut_files_are_named(tmp_path: Path, ending: str) -> None:
    whole = saved({"jpg": "JPEG", "heic": "AVIF"}.get(ending, ending.upper()), quality=95)
    if ending == "heic":
        needed_module("pi_heif", "pip install -c constraints.txt '.[heic]'")
        whole = whole.replace(b"ftypavif", b"ftypheic").replace(b"avif", b"heic")
    names = [f"{share}.{ending}" for share in (50, 90, 98)]
    for name in names:
        write(tmp_path, name, whole[: int(name.split(".")[0]) * len(whole) // 100])
    write(tmp_path, f"whole.{ending}", whole)
    assert doubts(tmp_path) == [
        "3 images seem cut, as the file ends before the picture: copy it again, since training refuses it, "
        f"and so does indexing without RECOQUEST_ACCEPT_TRUNCATED_IMAGES: {', '.join(map(repr, names))}."
    ]


def test_a_jpeg_cut_within_its_header_or_behind_a_thumbnail_is_named(tmp_path: Path) -> None:
    for size in (3, 21, 60, 300, 620):
        write(tmp_path, f"{size}.jpg", saved("JPEG")[:size])
    exif = b"Exif\0\0" + saved("JPEG", quality=20)
    whole = saved("JPEG", quality=95)
    whole = whole[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2) + exif + whole[2:]
    write(tmp_path, "thumbnail.jpg", whole)
    write(tmp_path, "cut.jpg", whole[:-200])
    assert doubts(tmp_path)[0].endswith(": '21.jpg', '3.jpg', '300.jpg', '60.jpg', '620.jpg', 'cut.jpg'.")


def test_whole_files_are_no_doubt_and_bytes_behind_the_picture_none(tmp_path: Path) -> None:
    choices: dict[str, dict[str, Any]] = {"plain": {}, "steps": {"progressive": True}}
    for name, options in choices.items():
        for ending in ("jpg", "png", "webp", "avif", "gif", "bmp", "tif"):
            noise().save(tmp_path / f"{name}.{ending}", **options)
    for number, behind in enumerate((b"\0" * 9000, b"\xff\xda" * 5000, b"MotionPhoto_Data" * 1000)):
        for kind in ("JPEG", "PNG", "WEBP"):
            write(tmp_path, f"{kind}{number}.jpg", saved(kind) + behind)
    assert doubts(tmp_path) == []


def test_a_preview_ahead_of_a_tiff_is_named_and_a_damaged_one_no_error(tmp_path: Path) -> None:
    small = noise().resize((16, 12))
    small.save(tmp_path / "preview.tif", save_all=True, append_images=[noise()])
    noise().save(tmp_path / "pages.tif", save_all=True, append_images=[noise()])
    noise().save(tmp_path / "reduced.tif", save_all=True, append_images=[small])
    small.save(tmp_path / "marked.tif", save_all=True, append_images=[noise()], tiffinfo={254: 1})
    whole = saved("TIFF")
    for length in (8, 12, len(whole) - 20):
        write(tmp_path, f"{length}.tif", whole[:length])
    assert doubts(tmp_path) == [
        "1 TIFF image has a larger page than the first, which is taken as it is not marked as a preview: "
        "'preview.tif'."
    ]
