"""Every form of DICOM image next to what the standard says of it, computed in float64, and to a real archive.

Orthanc 1.10 windows and inverts. It applies no lookup table, shows padding like any other value, and reads
neither 32 bits, signed bytes and high bits above those stored nor the forms that `_UNREAD` lists.
"""

import io
from typing import Any, Final

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.dicom_colour_forms import COLOUR_FORMS, ColourForm, colours
from tests.dicom_forms import PADDED_ROWS, film
from tests.dicom_grey_forms import GREY_FORMS, GreyForm
from tests.orthanc import OrthancServer
from training.imaging.images import decode_whole, read_header

# Of lossy compression, behind a window that shows most of a film.
_LOSSY_LEVELS = 14.0
# Orthanc ends at a palette of 8-bit entries in words.
_NOT_SENT: Final = frozenset({"palette of 8-bit colours"})
_UNREAD: Final = frozenset(
    {"YBR_FULL_422", "YBR_FULL_422 that is not shared", "palette of 16 bits", "palette big-endian"}
)
_LEAST: Final = 0.99


def correlation(one: NDArray[Any], other: NDArray[Any]) -> float:
    return float(np.corrcoef(one.ravel(), other.ravel())[0, 1])


@pytest.mark.parametrize("form", GREY_FORMS, ids=lambda form: form.name)
def test_grey_images_are_seen_as_the_standard_says(form: GreyForm) -> None:
    content, reference = form.make(), form.reference()
    header = read_header(content)
    assert (header.format, header.media_type, header.frames) == ("DICOM", "application/dicom", 1)
    assert (header.width, header.height) == reference.shape[::-1]
    pixels = np.asarray(decode_whole(content).pixels, dtype=np.float64)
    assert (pixels == pixels[..., :1]).all()
    seen = pixels[..., 0]
    assert np.abs(seen - reference).max() <= (_LOSSY_LEVELS if form.lossy else 1.0)
    assert correlation(seen, reference) > 0.998
    # A negative of the film would be the other way round.
    inside = reference > 0
    assert correlation(seen[inside], film()[inside]) > 0.9


@pytest.mark.parametrize("form", COLOUR_FORMS, ids=lambda form: form.name)
def test_colours_are_those_that_were_stored(form: ColourForm) -> None:
    pixels = np.asarray(decode_whole(form.make()).pixels, dtype=np.float64)
    assert np.abs(pixels - colours()).max() <= form.tolerance
    for channel in range(3):
        assert correlation(pixels[..., channel], colours()[..., channel]) > 0.98


def rendered(orthanc: OrthancServer, content: bytes, how: str) -> NDArray[np.float64] | None:
    """Return what Orthanc shows of a file; None where it cannot."""
    (name,) = orthanc.store([content])
    answer = orthanc.http.get(f"/instances/{name}/{how}", headers={"Accept": "image/png"})
    if answer.status_code in (httpx.codes.UNSUPPORTED_MEDIA_TYPE, httpx.codes.INTERNAL_SERVER_ERROR):
        return None
    image = Image.open(io.BytesIO(answer.raise_for_status().content))
    return np.asarray(image.convert("RGB"), dtype=np.float64)


def reads_like_us(form: GreyForm) -> bool:
    """Tell if Orthanc applies all that the form states."""
    plain = form.high is None and form.allocated < 32 and not (form.allocated == 8 and form.signed)
    return plain and form.modality != "table" and form.voi != "table"


@pytest.mark.slow
def test_grey_images_look_as_in_an_archive(orthanc: OrthancServer) -> None:
    compared = 0
    for form in GREY_FORMS:
        content = form.make()
        seen = np.asarray(decode_whole(content).pixels, dtype=np.float64)
        # Without a window, only the preview spreads what there is over the grey levels.
        theirs = rendered(orthanc, content, "preview" if form.voi == "none" else "rendered")
        if theirs is None or form.high is not None or form.allocated == 32:
            assert not reads_like_us(form), form.name
            continue
        # Padding is black here, and there as any other value.
        inside = np.ones(seen.shape, bool)
        if form.padding != "none":
            inside[:PADDED_ROWS] = False
        found = correlation(seen[inside], theirs[inside])
        if form.modality != "table":
            assert found > 0, f"{form.name} is the negative: {found}"
        if reads_like_us(form):
            assert found > _LEAST, f"{form.name}: {found}"
            compared += 1
    assert compared >= 48


@pytest.mark.slow
def test_colours_look_as_in_an_archive(orthanc: OrthancServer) -> None:
    compared = 0
    for form in COLOUR_FORMS:
        if form.name in _NOT_SENT:
            continue
        content = form.make()
        theirs = rendered(orthanc, content, "rendered")
        assert (theirs is None) == (form.name in _UNREAD), form.name
        if theirs is not None:
            seen = np.asarray(decode_whole(content).pixels, dtype=np.float64)
            for channel in range(3):
                found = correlation(seen[..., channel], theirs[..., channel])
                assert found > _LEAST, f"{form.name}, channel {channel}: {found}"
            compared += 1
    assert compared >= 20
