"""The Accept header by RFC 9110, section 12.5.1."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.edge.headers import preferred

OFFERED = ["image/jpeg", "image/webp", "image/png"]
CHROMIUM = "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", "image/jpeg"),
        (" ", "image/jpeg"),
        ("*/*", "image/jpeg"),
        ("image/*", "image/jpeg"),
        ("image/png", "image/png"),
        ("IMAGE/PNG", "image/png"),
        ("image/webp, image/png", "image/webp"),
        ("image/png, image/webp;q=0.9", "image/png"),
        ("image/png;q=0.5, image/webp;q=0.9, image/jpeg;q=0.1", "image/webp"),
        ("image/*;q=0.5, image/png", "image/png"),
        ("*/*;q=0.1, image/webp;q=0.2", "image/webp"),
        ("image/jpeg;q=0, */*", "image/webp"),
        ("image/*;q=0, */*", None),
        ("image/jpeg;q=0, image/webp;q=0.000, image/*;q=0.001", "image/png"),
        ("image/png; q = 0.5 , image/webp;Q=0.25", "image/png"),
        ("image/png;level=1", "image/png"),
        ("image/png;", "image/png"),
        ("image/png;;q=0.5;", "image/png"),
        ("image/png;quality=high", "image/png"),
        (CHROMIUM, "image/jpeg"),
        ("text/html, application/json", None),
        ("image/avif", None),
        ("image/png;q=2", None),
        ("image/png;q=nan", None),
        ("image/png;q=0.1234", None),
        (",,;;q=1,", None),
    ],
)
def test_the_best_of_the_acceptable_is_chosen(accept: str, chosen: str | None) -> None:
    assert preferred(accept, OFFERED) == chosen


def test_nothing_is_chosen_of_nothing() -> None:
    assert preferred("*/*", []) is None


@given(st.text(max_size=60))
def test_any_text_is_read(accept: str) -> None:
    assert preferred(accept, OFFERED) in {None, *OFFERED}


@given(st.permutations(range(4)))
def test_the_order_of_a_header_has_no_meaning(order: list[int]) -> None:
    parts = ["image/jpeg;q=0.3", "image/webp;q=0.7", "image/*;q=0.5", "*/*;q=0.9"]
    assert preferred(",".join(parts[position] for position in order), OFFERED) == "image/webp"
