"""Links of the pages lead to files and headings that there are."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
# docs/build.py writes these pages.
REFERENCE: Final = ROOT / "docs" / "reference"
PAGES: Final = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "clients").glob("*/*.md")], key=str
)
_LINK: Final = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def _anchors(page: Path) -> Iterator[str]:
    """Give the names that GitHub makes of headings."""
    for heading in re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE):
        kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
        yield kept.replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in _LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists() or place.parent == REFERENCE, target
        if anchor and place.suffix == ".md" and place.parent != REFERENCE:
            assert anchor in set(_anchors(place)), target
