"""Elements of data sets as pydicom writes them, walked over in every coding."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydicom.dataset import Dataset
from pydicom.filebase import DicomBytesIO
from pydicom.filewriter import write_dataset

from training.common.errors import ImageError, ImageTooLargeError
from training.imaging.dicom.elements import Tag, Walk

_WORDS = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="\\"), max_size=20)


@st.composite
def data_sets(draw: Any, depth: int = 2) -> Dataset:
    """A data set with texts, numbers, bytes and sequences of all forms."""
    made = Dataset()
    made.Rows = draw(st.integers(0, 65_535))
    made.WindowCenter = [str(number) for number in draw(st.lists(st.integers(-9999, 9999), max_size=3))]
    made.PatientComments = draw(_WORDS)
    made.ICCProfile = draw(st.binary(max_size=9))
    if depth:
        for keyword in ("SharedFunctionalGroupsSequence", "RequestAttributesSequence"):
            setattr(made, keyword, draw(st.lists(data_sets(depth=depth - 1), max_size=3)))
            made[keyword].is_undefined_length = draw(st.booleans())
            for item in made[keyword].value:
                item.is_undefined_length_sequence_item = draw(st.booleans())
    return made


def written(made: Dataset, *, implicit: bool, big: bool) -> bytes:
    file = DicomBytesIO()
    file.is_implicit_VR, file.is_little_endian = implicit, not big
    write_dataset(file, made)
    return file.getvalue()


_WANTED = frozenset({Tag.ROWS, Tag.WINDOW_CENTER, Tag.SHARED_FUNCTIONAL_GROUPS_SEQUENCE})


def compare(found: Any, made: Dataset) -> None:
    assert found.numbers(Tag.ROWS, "H") == [made.Rows]
    centres = made["WindowCenter"]
    expected = [centres.value] if centres.VM == 1 else centres.value or []
    assert found.numbers(Tag.WINDOW_CENTER) == [float(centre) for centre in expected]
    items = made.get("SharedFunctionalGroupsSequence") or []
    for number, item in enumerate(items):
        inner = found.item(Tag.SHARED_FUNCTIONAL_GROUPS_SEQUENCE, _WANTED, number)
        assert inner is not None
        compare(inner, item)
    assert found.item(Tag.SHARED_FUNCTIONAL_GROUPS_SEQUENCE, _WANTED, len(items)) is None


@pytest.mark.slow
@given(made=data_sets(), implicit=st.booleans(), big=st.booleans())
def test_elements_are_found_in_every_coding(made: Dataset, implicit: bool, big: bool) -> None:
    content = written(made, implicit=implicit and not big, big=big)
    walk = Walk(content, big=big)
    compare(walk.elements(0, len(content), _WANTED, implicit=implicit and not big), made)


@pytest.mark.slow
@given(made=data_sets(), end=st.integers(0, 2000))
def test_cut_elements_are_refused_or_end_early(made: Dataset, end: int) -> None:
    content = written(made, implicit=False, big=False)[:end]
    try:
        Walk(content).elements(0, len(content), _WANTED, implicit=False)
    except ImageError as error:
        assert str(error).startswith("The DICOM file is damaged: ")


def test_elements_are_counted_over_all_walks_of_a_file() -> None:
    walk = Walk(b"\x08\0\x08\0CS\0\0" * 10, left=25)
    for _ in range(2):
        walk.elements(0, 80, _WANTED, implicit=False)
    with pytest.raises(ImageTooLargeError, match="elements and fragments"):
        walk.elements(0, 80, _WANTED, implicit=False)
