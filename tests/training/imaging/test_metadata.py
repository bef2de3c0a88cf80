"""Metadata removal: every pixel, the turn and the colours of a file stay, and no word about anybody."""

import io
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageOps, ImageSequence

from index.writes.intake import stored_form
from tests.dicom_colour_forms import COLOUR_FORMS, ColourForm
from tests.dicom_grey_forms import GREY_FORMS, GreyForm
from tests.image_files import encoded
from tests.image_form import ImageForm
from tests.image_formats import IMAGE_FORMS
from tests.training.imaging.metadata_files import (
    FILES,
    HOSTILE,
    PROFILE,
    SECRET,
    avif_of,
    exif,
    jpeg,
    png,
    tiff,
)
from training.common.errors import ImageError
from training.imaging.formats import sniff_format
from training.imaging.images import decode_whole
from training.imaging.metadata import strip_metadata


def frames(content: bytes) -> Iterator[tuple[NDArray[np.generic], str]]:
    """Every frame of a file as it is stored, with its mode."""
    with Image.open(io.BytesIO(content)) as image:
        for frame in ImageSequence.Iterator(image):
            yield np.array(frame), frame.mode


@pytest.mark.parametrize("name", FILES)
def test_pixels_and_colours_stay_and_words_go(name: str) -> None:
    content = FILES[name]()
    assert SECRET in content
    stripped = strip_metadata(content)
    assert SECRET not in stripped
    assert strip_metadata(stripped) == stripped
    before, after = list(frames(content)), list(frames(stripped))
    assert len(before) == len(after)
    for (pixels, mode), (kept, kept_mode) in zip(before, after, strict=True):
        assert (mode, pixels.dtype, pixels.tolist()) == (kept_mode, kept.dtype, kept.tolist())
    seen, shown = decode_whole(content), decode_whole(stripped)
    assert (seen.width, seen.height) == (shown.width, shown.height)
    assert seen.pixels.tobytes() == shown.pixels.tobytes()
    with Image.open(io.BytesIO(stripped)) as image:
        image.load()
        # Positions, and details such as serial numbers.
        assert not image.getexif().get_ifd(0x8825) and not image.getexif().get_ifd(0x8769)
        assert not {"comment", "XML:com.adobe.xmp", "Author", "photoshop"} & set(image.info)
        # In an AVIF it is overwritten.
        assert not image.info.get("xmp", b"").strip()
        assert name not in ("jpeg", "png", "webp", "tiff") or image.info["icc_profile"] == PROFILE


@pytest.mark.parametrize(
    "form", [*IMAGE_FORMS, *GREY_FORMS[::5], *COLOUR_FORMS[::5]], ids=lambda form: form.name
)
def test_every_form_of_file_shows_the_same_afterwards(form: ImageForm | GreyForm | ColourForm) -> None:
    content = form.make()
    stripped = stored_form(content, keep_metadata=False)
    assert decode_whole(stripped).pixels.tobytes() == decode_whole(content).pixels.tobytes()
    assert stored_form(stripped, keep_metadata=False) == stripped


@pytest.mark.parametrize("orientation", [*range(1, 9), 9, 0])
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_pictures_stay_upright(form: str, orientation: int) -> None:
    if form == "TIFF":
        content = tiff(orientation=orientation)
    else:
        picture = Image.linear_gradient("L").resize((40, 24)).convert("RGB")
        content = encoded(picture, form, exif=exif(orientation))
    stripped = strip_metadata(content)
    with Image.open(io.BytesIO(content)) as before, Image.open(io.BytesIO(stripped)) as after:
        turned = ImageOps.exif_transpose(before)
        assert np.array_equal(np.asarray(turned), np.asarray(ImageOps.exif_transpose(after)))
        assert turned.size == ((24, 40) if orientation in range(5, 9) else (40, 24))


def test_a_plain_file_is_returned_as_it_is() -> None:
    for form in ("JPEG", "PNG", "WEBP", "GIF", "BMP"):
        content = encoded(Image.new("RGB", (9, 7), "teal"), form)
        assert strip_metadata(content) == content, form


@pytest.mark.parametrize("cut", [30, 12, 40])
def test_a_png_that_was_cut_behind_its_pixels_is_read_as_before(cut: int) -> None:
    content = encoded(Image.linear_gradient("L"), "PNG")[:-12] + png()[-cut:]
    stripped = decode_whole(strip_metadata(content))
    assert stripped.pixels.tobytes() == Image.linear_gradient("L").convert("RGB").tobytes()


def test_an_exif_block_in_several_segments_is_read_as_one() -> None:
    whole = exif(8)
    first, second = whole[:30], b"Exif\0\0" + whole[30:]
    plain = encoded(Image.new("RGB", (40, 24)), "JPEG")
    marked = b"".join(b"\xff\xe1" + (len(part) + 2).to_bytes(2) + part for part in (first, second))
    content = plain[:2] + marked + plain[2:]
    assert decode_whole(content).pixels.size == (24, 40)
    assert decode_whole(strip_metadata(content)).pixels.size == (24, 40)


_BROKEN = {
    "jpeg": jpeg()[:200],
    "png": png()[:40],
    "png-unknown": png().replace(b"prVt", b"PrVt"),
    "webp": FILES["webp"]()[:-40],
    "gif": FILES["gif"]()[:20],
    "tiff": FILES["tiff-lzw"]()[:400],
    "jpeg-length": b"\xff\xd8\xff\xe0\0\1",
    "tiff-head": b"II*\0\x08\0\0\0",
    "avif": FILES["avif"]()[:400],
    "avif-no-items": avif_of(b"\0\0\0\x08iinf"),
    "avif-no-item": avif_of(b"\0\0\0\x16iinf" + bytes(6) + b"\0\0\0\x08infe"),
    "avif-no-places": avif_of(b"\0\0\0\x08iloc"),
    "tiff-beyond": b"II+\0\x08\0\0\0" + b"\xff" * 8,
    "none": b"no image at all",
    **HOSTILE,
}


@pytest.mark.parametrize("content", _BROKEN.values(), ids=_BROKEN)
def test_a_file_that_cannot_be_followed_is_refused(content: bytes) -> None:
    with pytest.raises(ImageError):
        strip_metadata(content)


@settings(deadline=None, max_examples=150)
@given(data=st.data(), name=st.sampled_from(sorted(FILES)))
def test_damage_is_refused_or_stripped_like_any_file(data: st.DataObject, name: str) -> None:
    """A few bytes are changed at random: no other error comes, and the file stays of its format."""
    content = bytearray(FILES[name]())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        stripped = strip_metadata(bytes(content))
    except ImageError:
        return
    assert sniff_format(stripped) == sniff_format(bytes(content))
