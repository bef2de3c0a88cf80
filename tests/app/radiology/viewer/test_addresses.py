"""Addresses of studies in a viewer, and addresses and paths of the archive behind it."""

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.radiology.archive_proxy import parse_path, rewritten
from app.radiology.viewer import viewer_link

ROOT = "https://images.example.org/dicomweb/"
FOUND = [
    {
        "00081190": {"vr": "UR", "Value": ["http://10.0.0.7:8042/dicom-web/studies/1.2/series/3"]},
        "00420011": {"vr": "OB", "BulkDataURI": "https://pacs/a/b/studies/1.2/bulk/00420011"},
        "00104000": {"vr": "LT", "Value": ['He said "http://x/y", and studies/1.2 too', "http://pacs/other/1"]},
        "00100010": {"vr": "PN", "Value": [{"Alphabetic": "Strauß^\u6c34\\\""}]},
    }
] * 3  # fmt: skip
EXPECTED = json.loads(
    json.dumps(FOUND).replace("http://10.0.0.7:8042/dicom-web/", ROOT).replace("https://pacs/a/b/", ROOT)
)


async def _sent(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def _rewritten(pieces: list[bytes]) -> list[bytes]:
    async def read() -> list[bytes]:
        return [piece async for piece in rewritten(_sent(pieces), ROOT)]

    return asyncio.run(read())


@given(st.lists(st.integers(0, 1500)), st.booleans())
def test_addresses_lead_to_the_service_however_the_json_is_cut(cuts: list[int], ascii_only: bool) -> None:
    content = json.dumps(FOUND, ensure_ascii=ascii_only).encode()
    places = [0, *sorted(cuts), len(content)]
    pieces = [content[start:end] for start, end in pairwise(places)]
    assert json.loads(b"".join(_rewritten(pieces))) == EXPECTED


def test_a_long_text_without_a_quote_is_not_kept_back() -> None:
    first, _ = _rewritten([b'["' + b"x" * 10_000])
    assert len(first) > 9_000


KNOWN = {"study": "1.2", "series": "1.2.3", "sop": "1.2.3.4"}


def test_places_are_filled_and_encoded_behind_the_prefix_of_a_proxy() -> None:
    template = "https://v.example.org/?s={study}&e={series}&i={sop}"
    assert viewer_link(template, KNOWN, prefix="/in") == "https://v.example.org/?s=1.2&e=1.2.3&i=1.2.3.4"
    assert viewer_link("/v?s={study}", KNOWN, prefix="/in") == "/in/v?s=1.2"
    assert viewer_link("/v?s={study}", {"study": "a&b=c d"}) == "/v?s=a%26b%3Dc%20d"
    # An image without a UID has no address.
    without: tuple[dict[str, str | int], ...] = ({}, {"study": ""}, {"study": 7}, {"study": "1.2"})
    for metadata in without:
        assert viewer_link("/v?s={study}&i={sop}", metadata) is None
    assert viewer_link(None, KNOWN) is None


@pytest.mark.parametrize(
    ("path", "uid", "is_query"),
    [
        ("studies", None, True),
        ("series", None, True),
        ("instances", None, True),
        ("studies/1.2.3/series", "1.2.3", True),
        ("studies/1.2.3/instances", "1.2.3", True),
        ("studies/1.2.3/series/4.5/instances", "4.5", True),
        ("studies/1.2", "1.2", False),
        ("studies/1.2/metadata", "1.2", False),
        ("studies/1.2/thumbnail", "1.2", False),
        ("studies/1.2/series/3.4/rendered", "3.4", False),
        ("studies/1.2/series/3.4/instances/5", "5", False),
        ("studies/1.2/series/3.4/instances/5/frames/1", "5", False),
        ("studies/1.2/series/3.4/instances/5/frames/1,2,30/rendered", "5", False),
        ("studies/1.2/series/3.4/instances/5/bulk/00420011", "5", False),
        ("studies/1.2/bulkdata/a/b-c/7", "1.2", False),
    ],
)
def test_queries_and_retrievals(path: str, uid: str | None, is_query: bool) -> None:
    assert parse_path(path) == (uid, is_query)


@pytest.mark.parametrize(
    "path",
    [
        "", "/", "studies/", "studies//series", "patients", "studies/1.2/..", "studies/../instances",
        "studies/1.2/series/.",
        "studies/1.2/bulkdata/../../instances", "studies/1.2/bulkdata/", "studies/a.b", "studies/1..2",
        "studies/1.2?x=1",
        "studies/1.2#x", "studies/1.2\n", "studies/1.2/series/3/instances/4/frames/", "studies/1.2/frames/1",
        "studies/1.2/series/3/instances/4/frames/1,", "studies/" + "1" * 65,
        "studies/1.2/bulkdata" + "/a" * 33,
        "studies/1.2/series/3/instances/4/frames/" + ",".join("1" * 600), "../system",
        "%2e%2e/system", "studies/\uff11.2",
    ],
)  # fmt: skip
def test_all_else_is_no_path(path: str) -> None:
    assert parse_path(path) is None
