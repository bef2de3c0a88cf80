"""Every form of DICOM image beside what the standard says of it, computed in float64 from what was stored."""

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.dicom_colour_forms import COLOUR_FORMS, ColourForm, colours
from tests.dicom_forms import film
from tests.dicom_grey_forms import GREY_FORMS, GreyForm
from training.imaging.images import decode_whole, read_header

# Of lossy compression, behind a window that shows most of a film.
_LOSSY_LEVELS = 14.0


def correlation(one: NDArray[np.floating], other: NDArray[np.floating]) -> float:
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


def test_the_matrix_has_every_value_of_every_property() -> None:
    assert len(GREY_FORMS) + len(COLOUR_FORMS) >= 100
    assert len({form.syntax for form in GREY_FORMS}) == 13
    assert {form.stored for form in GREY_FORMS} >= {8, 10, 12, 14, 15, 16}
    for name, values in {
        "signed": {True, False},
        "inverted": {True, False},
        "modality": {"none", "rescale", "table"},
        "voi": {"none", "linear", "exact", "sigmoid", "several", "table"},
        "padding": {"none", "value", "range"},
    }.items():
        assert {getattr(form, name) for form in GREY_FORMS} == values
