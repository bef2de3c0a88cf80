"""Text of HTML, such as the narrative of FHIR: blocks and lines become lines."""

from html.parser import HTMLParser
from typing import Final

from training.data.reports.study_report import ReportError

_BLOCKS: Final = (
    *("address", "article", "blockquote", "br", "dd", "div", "dl", "dt", "h1", "h2", "h3", "h4", "h5", "h6"),
    *("hr", "li", "ol", "p", "pre", "section", "table", "tbody", "thead", "tr", "ul"),
)
_HIDDEN: Final = ("script", "style", "head", "title")


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, _: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in _HIDDEN
        if tag in _BLOCKS:
            self.parts.append("\n")
        elif tag in ("td", "th"):
            self.parts.append(" ")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in _HIDDEN and self._hidden > 0
        if tag in _BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data)


def text_of_html(html: str) -> str:
    """Return what a page says, without scripts, styles and its title.

    Raises:
        ReportError: It has marked sections that are none of HTML.
    """
    reader = _Reader()
    try:
        reader.feed(html)
        reader.close()
    except AssertionError:
        raise ReportError("its HTML cannot be read") from None
    lines = (" ".join(line.split()) for line in "".join(reader.parts).split("\n"))
    return "\n".join(lines).strip()
