"""The matrix of DICOM images beside the rendering of a real archive, Orthanc, of the same instances.

Orthanc 1.10 windows and inverts. It applies no lookup table, shows padding like any other value, and reads
neither 32 bits, signed bytes and high bits above those stored nor the forms that `_UNREAD` lists:
`test_matrix.py` compares these with the reference of the standard alone.
"""

import io
from typing import Final

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.dicom_colour_forms import COLOUR_FORMS
from tests.dicom_forms import PADDED_ROWS
from tests.dicom_grey_forms import GREY_FORMS, GreyForm
from tests.orthanc import OrthancServer
from training.imaging.images import decode_whole

pytestmark = pytest.mark.slow

# Orthanc ends at a palette of 8-bit entries in words.
_NOT_SENT: Final = frozenset({"palette of 8-bit colours"})
_UNREAD: Final = frozenset(
    {"YBR_FULL_422", "YBR_FULL_422 that is not shared", "palette of 16 bits", "palette big-endian"}
)
_LEAST: Final = 0.99


def rendered(orthanc: OrthancServer, content: bytes, how: str) -> NDArray[np.float64] | None:
    """Return what Orthanc shows of a file; None where it cannot."""
    (name,) = orthanc.store([content])
    answer = orthanc.http.get(f"/instances/{name}/{how}", headers={"Accept": "image/png"})
    if answer.status_code in (httpx.codes.UNSUPPORTED_MEDIA_TYPE, httpx.codes.INTERNAL_SERVER_ERROR):
        return None
    image = Image.open(io.BytesIO(answer.raise_for_status().content))
    return np.asarray(image.convert("RGB"), dtype=np.float64)


def correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return float(np.corrcoef(one.ravel(), other.ravel())[0, 1])


def reads_like_us(form: GreyForm) -> bool:
    """Tell if Orthanc applies all that the form states."""
    plain = form.high is None and form.allocated < 32 and not (form.allocated == 8 and form.signed)
    return plain and form.modality != "table" and form.voi != "table"


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
