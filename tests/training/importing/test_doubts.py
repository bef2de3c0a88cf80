"""Files that were cut, and previews in TIFF, in the report of an import."""

import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.needed import needed_module
from tests.training.importing.trees import imported

SIZE = (64, 48)


def noise(seed: int = 3) -> Image.Image:
    return Image.effect_noise(SIZE, 90 + seed).convert("RGB")


def saved(kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    noise().save(file, kind, **options)
    return file.getvalue()


def doubts(folder: Path) -> list[str]:
    """Sentences of the report about doubts; every file is listed all the same."""
    report = imported("folder", folder, most_decoded=0)
    assert report.records == len(list(folder.glob("*.*"))) - 1
    return [line for line in report.sentences() if "seem" in line or "TIFF" in line]


def jpeg_with_thumbnail() -> bytes:
    exif = b"Exif\0\0" + saved("JPEG", quality=20)
    whole = saved("JPEG", quality=95)
    return whole[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2) + exif + whole[2:]


@pytest.mark.parametrize("ending", ["jpg", "png", "webp", "avif"])
@pytest.mark.parametrize("share", [0.5, 0.9, 0.98])
def test_cut_files_are_named(tmp_path: Path, ending: str, share: float) -> None:
    whole = saved({"jpg": "JPEG"}.get(ending, ending.upper()), quality=95)
    (tmp_path / f"a.{ending}").write_bytes(whole)
    (tmp_path / f"b.{ending}").write_bytes(whole[: int(share * len(whole))])
    assert doubts(tmp_path) == [
        "1 image seems cut, as the file ends before the picture: copy it again, since training refuses it, "
        f"and so does indexing without RECOQUEST_ACCEPT_TRUNCATED_IMAGES: 'b.{ending}'."
    ]


@pytest.mark.parametrize("size", [3, 21, 60, 300, 620])
def test_a_jpeg_cut_within_its_header_is_named(tmp_path: Path, size: int) -> None:
    (tmp_path / "a.jpg").write_bytes(saved("JPEG"))
    (tmp_path / "b.jpg").write_bytes(saved("JPEG")[:size])
    assert doubts(tmp_path)[0].endswith(": 'b.jpg'.")


def test_a_cut_heic_is_named(tmp_path: Path) -> None:
    needed_module("pi_heif", "pip install -c constraints.txt '.[heic]'")
    whole = saved("AVIF").replace(b"ftypavif", b"ftypheic").replace(b"avif", b"heic")
    (tmp_path / "a.heic").write_bytes(whole)
    (tmp_path / "b.heic").write_bytes(whole[: len(whole) // 2])
    assert "'b.heic'" in doubts(tmp_path)[0]


def test_a_thumbnail_in_exif_is_not_the_end(tmp_path: Path) -> None:
    whole = jpeg_with_thumbnail()
    (tmp_path / "a.jpg").write_bytes(whole)
    (tmp_path / "b.jpg").write_bytes(whole[:-200])
    assert doubts(tmp_path)[0].endswith(": 'b.jpg'.")


@pytest.mark.parametrize("behind", [b"\0" * 9000, b"\xff\xda" * 5000, b"MotionPhoto_Data" * 1000])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_bytes_behind_the_picture_are_no_doubt(tmp_path: Path, kind: str, behind: bytes) -> None:
    (tmp_path / "a.jpg").write_bytes(saved(kind) + behind)
    assert doubts(tmp_path) == []


@pytest.mark.parametrize("options", [{}, {"progressive": True}])
def test_whole_files_are_no_doubt(tmp_path: Path, options: dict[str, Any]) -> None:
    for ending in ("jpg", "png", "webp", "avif", "gif", "bmp", "tif"):
        noise().save(tmp_path / f"{ending}.{ending}", **options)
    assert doubts(tmp_path) == []


def test_a_preview_ahead_of_a_tiff_is_named(tmp_path: Path) -> None:
    small = noise().resize((16, 12))
    small.save(tmp_path / "preview.tif", save_all=True, append_images=[noise()])
    noise().save(tmp_path / "pages.tif", save_all=True, append_images=[noise()])
    noise().save(tmp_path / "reduced.tif", save_all=True, append_images=[small])
    small.save(tmp_path / "marked.tif", save_all=True, append_images=[noise()], tiffinfo={254: 1})
    assert [line for line in doubts(tmp_path) if "'preview.tif'" in line] == [
        "1 TIFF image has a larger page than the first, which is taken as it is not marked as a preview: "
        "'preview.tif'."
    ]


def test_a_damaged_tiff_is_no_error(tmp_path: Path) -> None:
    whole = saved("TIFF")
    for length in (8, 12, len(whole) - 20):
        (tmp_path / f"{length}.tif").write_bytes(whole[:length])
    assert doubts(tmp_path) == []
