"""Addresses of an archive in its JSON."""

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from app.radiology.archive_proxy import AddressRewriter

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


def _rewritten(pieces: list[bytes]) -> bytes:
    rewriter = AddressRewriter(ROOT)
    return b"".join([*map(rewriter.feed, pieces), rewriter.close()])


@given(st.lists(st.integers(0, 1500)), st.booleans())
def test_addresses_lead_to_the_service_however_the_json_is_cut(cuts: list[int], ascii_only: bool) -> None:
    content = json.dumps(FOUND, ensure_ascii=ascii_only).encode()
    places = [0, *sorted(cuts), len(content)]
    pieces = [content[start:end] for start, end in pairwise(places)]
    assert json.loads(_rewritten(pieces)) == EXPECTED


def test_a_long_text_without_a_quote_is_not_kept_back() -> None:
    rewriter = AddressRewriter(ROOT)
    assert len(rewriter.feed(b'["' + b"x" * 10_000)) > 9_000
