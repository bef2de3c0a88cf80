"""Bodies of several files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.radiology.archive import MultipartError, boundary_of, read_parts

_BOUNDARY = b"frontier"


def _body(parts: list[bytes]) -> bytes:
    head = b"\r\n--frontier\r\nContent-Type: Application/DICOM; transfer-syntax=1.2\r\nX: y\r\n\r\n"
    return b"".join(head + part for part in parts) + b"\r\n--frontier--"


@given(
    st.lists(st.binary(max_size=60), min_size=1, max_size=4).filter(
        lambda parts: not any(b"\r\n--frontier" in part + b"\r\n--fron" for part in parts)
    )
)
def test_parts_are_as_they_were_sent(parts: list[bytes]) -> None:
    found = read_parts(_body(parts), _BOUNDARY, 100, 9)
    assert [part.content for part in found] == parts
    assert {part.media_type for part in found} == {"application/dicom"}


def test_a_part_that_is_too_large_is_passed_over_and_the_next_is_read() -> None:
    found = read_parts(_body([bytes(11), b"small", bytes(10)]), _BOUNDARY, 10, 9)
    assert [part.content for part in found] == [None, b"small", bytes(10)]


def test_reading_ends_at_the_first_part_too_many() -> None:
    found = read_parts(_body([b"part"] * 5)[:-20], _BOUNDARY, 10, 2)
    assert [part.content for part in found] == [b"part"] * 3


@pytest.mark.parametrize("left", [1, 2, 8, 40])
def test_a_body_that_is_cut_is_an_error(left: int) -> None:
    with pytest.raises(MultipartError, match="before its last boundary"):
        read_parts(_body([b"one", b"two"])[:-left], _BOUNDARY, 100, 9)


@pytest.mark.parametrize(
    "body",
    [
        b"no boundary at all",
        b"--frontier\r\nno header\r\n\r\n",
        b"--frontier\r\nno header\r\n\r\n\r\n--frontier--",
        b"--frontier\r\nX: " + bytes(9000) + b"\r\n\r\n\r\n--frontier--",
    ],
)
def test_a_body_of_another_form_is_an_error(body: bytes) -> None:
    with pytest.raises(MultipartError):
        read_parts(body, _BOUNDARY, 100, 9)


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        (b"This is a message in parts.\r\n\r\n--frontier\r\n\r\none\r\n--frontier--", [b"one"]),
        (b"--frontiers, and\r\n--frontier \t\r\n\r\none\r\n--frontier-- \r\nepilogue", [b"one"]),
        (b"--frontier\r\nX: a\r\n b\r\n\r\n--frontier\r\n\r\n\r\n\r\n--frontier--\r\n", [b"", b"\r\n"]),
        (
            b"--frontier\r\n\r\none\r\n--frontierland\r\n--fron\r\n--frontier--",
            [b"one\r\n--frontierland\r\n--fron"],
        ),
    ],
)
def test_bodies_are_read_as_the_standard_writes_them(body: bytes, parts: list[bytes]) -> None:
    assert [part.content for part in read_parts(body, _BOUNDARY, 100, 9)] == parts


@pytest.mark.parametrize(
    ("header", "boundary"),
    [
        ('multipart/related; type="application/dicom"; boundary=a-b', b"a-b"),
        ('Multipart/Related; boundary="a b"', b"a b"),
    ],
)
def test_boundaries_are_found(header: str, boundary: bytes) -> None:
    assert boundary_of(header) == boundary


@pytest.mark.parametrize(
    "header", ["", "application/dicom", "multipart/form-data; boundary=a", "multipart/related"]
)
def test_other_kinds_have_none(header: str) -> None:
    with pytest.raises(MultipartError):
        boundary_of(header)
