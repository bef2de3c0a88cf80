"""Addresses of an archive in its JSON."""

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from app.radiology.archive_proxy import rewritten

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
