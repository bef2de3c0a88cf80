"""Text of HTML and RTF, which information systems put into fields of text: blocks become lines."""

import re
from html import unescape
from html.parser import HTMLParser
from typing import Final

_BLOCKS: Final = (
    *("address", "article", "blockquote", "br", "dd", "div", "dl", "dt", "h1", "h2", "h3", "h4", "h5", "h6"),
    *("hr", "li", "ol", "p", "pre", "section", "table", "tbody", "thead", "tr", "ul"),
)
_INLINE: Final = (
    "a",
    "b",
    "body",
    "em",
    "font",
    "html",
    "i",
    "span",
    "strong",
    "sub",
    "sup",
    "td",
    "th",
    "u",
)
_HIDDEN: Final = ("script", "style", "head", "title")
_TAG: Final = re.compile(
    rf"</?(?:{'|'.join((*_BLOCKS, *_INLINE, *_HIDDEN))})(?:\s[^<>]*)?/?>|<!DOCTYPE\b", re.IGNORECASE
)
_ESCAPED_TAG: Final = re.compile(rf"&lt;/?(?:{'|'.join((*_BLOCKS, *_INLINE))})\b", re.IGNORECASE)
RTF: Final = "{\\rtf"
# A control word, a byte in hexadecimal, a sign behind a backslash, a brace, or text.
_RTF_PART: Final = re.compile(
    r"\\(?P<word>[a-z]{1,32})(?P<number>-?\d{1,10})? ?|\\'(?P<byte>[0-9a-f]{2})|\\(?P<sign>[^a-z])|"
    r"(?P<brace>[{}])|(?P<text>[^\\{}]+)",
    re.IGNORECASE | re.DOTALL,
)
# Groups without text of the document; page headers and footers name people.
_RTF_HIDDEN: Final = (
    *("fonttbl", "colortbl", "stylesheet", "info", "pict", "object", "generator", "filetbl", "fldinst"),
    *("header", "headerl", "headerr", "headerf", "footer", "footerl", "footerr", "footerf", "annotation"),
)
_RTF_WORDS: Final = {
    **dict.fromkeys(("par", "line", "sect", "page", "row", "column"), "\n"),
    **dict.fromkeys(("tab", "cell", "emspace", "enspace"), " "),
    **{"emdash": "—", "endash": "–", "bullet": "•", "lquote": "‘", "rquote": "’"},
    **{"ldblquote": "“", "rdblquote": "”"},
}
_RTF_SIGNS: Final = {"~": " ", "_": "-", "\n": "\n", "\r": "\n", "{": "{", "}": "}", "\\": "\\"}


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
        # "<br/>" has ended where it began.
        if tag in _BLOCKS and tag not in ("br", "hr"):
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data)


def plain_text(text: str) -> str:
    """Return a text in which RTF documents and HTML are replaced by what they say.

    Raises:
        ValueError: It has marked sections that are none of HTML.
    """
    parts, position = list[str](), 0
    while (start := text.find(RTF, position)) >= 0:
        content, end = _text_of_rtf(text, start)
        parts += (text[position:start], "\n", content, "\n")
        position = end
    text = "".join((*parts, text[position:]))
    if _ESCAPED_TAG.search(text):
        text = unescape(text)
    return text_of_html(text) if _TAG.search(text) else text


def text_of_html(html: str) -> str:
    """Return what a page says, without scripts, styles and its title.

    Raises:
        ValueError: It has marked sections that are none of HTML.
    """
    reader = _Reader()
    try:
        reader.feed(html)
        reader.close()
    except AssertionError:
        raise ValueError("marked sections that are none of HTML") from None
    lines = (" ".join(line.split()) for line in "".join(reader.parts).split("\n"))
    return "\n".join(lines).strip()


def _text_of_rtf(text: str, start: int) -> tuple[str, int]:
    """Return what the RTF document that begins at a position says, and where it ends."""
    parts: list[str] = []
    # For each open group, whether it is hidden, and how many signs replace one of Unicode.
    groups: list[tuple[bool, int]] = []
    encoding, hidden, width, skip, end = "windows-1252", False, 1, 0, len(text)
    for match in _RTF_PART.finditer(text, start):
        word, number, said = match["word"], match["number"] or "", ""
        if match["brace"] == "{":
            groups.append((hidden, width))
        elif match["brace"]:
            hidden, width = groups.pop()
            if not groups:
                end = match.end()
                break
        elif match["sign"] == "*" or word in _RTF_HIDDEN:
            hidden = True
        elif word == "v":
            hidden = number != "0"
        elif word == "uc":
            width = int(number or 1)
        elif word == "ansicpg":
            encoding = f"cp{number}" if re.fullmatch(r"125[0-8]", number) else encoding
        elif word == "u" and number:
            parts.append("" if hidden else chr(int(number) % 0x10000))
            skip = width
        elif word:
            said = _RTF_WORDS.get(word, "")
        elif match["sign"]:
            said = _RTF_SIGNS.get(match["sign"], "")
        elif match["byte"]:
            said = bytes.fromhex(match["byte"]).decode(encoding, "replace")
        else:
            said = match["text"].replace("\r", "").replace("\n", "")
        if said and not hidden:
            parts.append(said[skip:])
        skip = max(0, skip - len(said))
    # Signs beyond the first plane are written as two halves.
    written = "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return "\n".join(" ".join(line.split()) for line in written.split("\n")).strip(), end
