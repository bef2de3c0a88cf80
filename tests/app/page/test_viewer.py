"""The viewer alone: it leads to the page that shows one study."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.app.page.test_texts import evaluated

CONFIGURATION: Final = Path(__file__).resolve().parents[3] / "app" / "page" / "viewer" / "ohif-config.js"
WINDOW: Final = """
const went = [];
const window = { location: { origin: 'http://x', search: v.search, replace: (to) => went.push(to) } };
window.parent = v.framed ? {} : window;
const document = { currentScript: { src: `http://x${v.base}viewer/app-config.js` }, addEventListener() {} };
const localStorage = { setItem() {} };
"""


def opened(search: str, *, framed: bool = False, base: str = "/") -> Any:
    """Return where the browser was sent, and whether OHIF has a configuration to start with."""
    values = json.dumps({"search": search, "framed": framed, "base": base})
    return evaluated(
        f"const v = {values};{WINDOW}{CONFIGURATION.read_text(encoding='utf-8')}\n"
        "process.stdout.write(JSON.stringify({ went, starts: window.config !== undefined }));"
    )


@pytest.mark.parametrize(
    ("search", "base", "address"),
    [
        ("?StudyInstanceUIDs=1.2,3.4", "/", "/reading#study=1.2"),
        ("?StudyInstanceUIDs=1.2&StudyInstanceUIDs=3.4", "/", "/reading#study=1.2"),
        (
            "?StudyInstanceUIDs=1.2&initialSeriesInstanceUID=5&initialSopInstanceUID=6",
            "/films/",
            "/films/reading#study=1.2&series=5&image=6",
        ),
        ("?studyinstanceuids=1.2&initialSOPInstanceUID=6", "/", "/reading#study=1.2&image=6"),
        ("?StudyInstanceUIDs=1%26image%3D2", "/", "/reading#study=1%26image%3D2"),
        ("", "/", "/reading"),
    ],
)
def test_the_viewer_alone_leads_to_the_page_with_one_study(search: str, base: str, address: str) -> None:
    assert opened(search, base=base) == {"went": [address], "starts": False}
    # In the page it starts, with all studies.
    assert opened(search, base=base, framed=True) == {"went": [], "starts": True}
