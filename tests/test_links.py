"""Links of the pages lead to files and headings that there are."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "clients").glob("*/*.md")], key=str
)
_LINK: Final = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def _anchors(page: Path) -> Iterator[str]:
    """Give the names that GitHub makes of headings."""
    for heading in re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE):
        kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
        yield kept.replace(" ", "-")


def test_the_page_on_the_audit_trail_leads_to_the_section_on_wrong_keys() -> None:
    audit = (ROOT / "docs" / "audit.md").read_text("utf-8")
    (target,) = re.findall(r"\[wrong keys\]\((\S+)\)", audit)
    page, _, anchor = target.partition("#")
    sections = re.split(r"^#+ (.*)$", (ROOT / "docs" / page).read_text("utf-8"), flags=re.MULTILINE)
    told = {
        title.lower().replace(" ", "-"): text
        for title, text in zip(sections[1::2], sections[2::2], strict=True)
    }
    assert "wrong keys" in told[anchor]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in _LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), target
        if anchor and place.suffix == ".md":
            assert anchor in set(_anchors(place)), target
