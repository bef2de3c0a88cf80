"""Addresses of studies in a viewer."""

import pytest

from app.radiology.viewer import viewer_link

KNOWN = {"study": "1.2", "series": "1.2.3", "sop": "1.2.3.4"}


def test_places_are_filled_and_encoded() -> None:
    template = "https://v.example.org/?s={study}&e={series}&i={sop}"
    assert viewer_link(template, KNOWN, prefix="/in") == "https://v.example.org/?s=1.2&e=1.2.3&i=1.2.3.4"
    assert viewer_link("/v?s={study}", {"study": "a&b=c d"}) == "/v?s=a%26b%3Dc%20d"


def test_a_path_is_behind_the_prefix_of_a_proxy() -> None:
    assert viewer_link("/v?s={study}", KNOWN, prefix="/in") == "/in/v?s=1.2"


@pytest.mark.parametrize("metadata", [{}, {"study": ""}, {"study": 7}, {"study": "1.2"}])
def test_an_image_without_a_uid_has_no_address(metadata: dict[str, str | int]) -> None:
    assert viewer_link("/v?s={study}&i={sop}", metadata) is None
    assert viewer_link(None, KNOWN) is None
