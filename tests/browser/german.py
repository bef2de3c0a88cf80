"""Finds texts of a page that are neither German texts of its tables nor words of the data shown."""

import re
from collections.abc import Container, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tests.app.page.test_texts import tables

if TYPE_CHECKING:
    from playwright.sync_api import Page

GERMAN: Final[dict[str, Any]] = {"locale": "de-DE"}
# Words of the drawn shapes, of their fields and of the models.
DATA: Final = frozenset(
    re.findall(
        r"\w+",
        """a there is in the middle picture shows its red green blue orange purple circle square triangle
        colour round acquired taken shape train test patient shapes tiles tiny retrained s rsum recoquest
        img src x onerror document title owned b bold giraffe ms""",
    )
)
_COLLECT: Final = """() => {
  const found = [];
  const take = (text) => { if (/\\p{L}/u.test(text ?? '')) found.push(text.trim()); };
  const walk = (node) => {
    if (node.nodeType === Node.TEXT_NODE) { take(node.data); return; }
    if (node.nodeType === Node.ELEMENT_NODE) {
      if (node.matches('script, style, noscript, code, pre, [lang=en]')) return;
      const laid = getComputedStyle(node).display !== 'contents' && node.localName !== 'option';
      if (laid && !node.checkVisibility()) return;
      for (const name of ['aria-label', 'title', 'placeholder', 'aria-valuetext']) {
        take(node.getAttribute(name));
      }
    }
    for (const child of (node.shadowRoot ?? node).childNodes) walk(child);
    if (node.shadowRoot) for (const child of node.childNodes) walk(child);
  };
  walk(document.body);
  take(document.title);
  return found;
}"""
_VALUE: Final = re.compile(r"\{\w+\}")
_LETTERS: Final = re.compile(r"[^\W\d_]+")
_DIGEST: Final = re.compile(r"\b[0-9a-f]{8,}\b")
# A text that is little but its values says nothing of its language.
_LEAST_LETTERS: Final = 3


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    """Whole texts, and their pieces between values that are elements."""
    result = set()
    for texts in tables("de").values():
        for text in (text for forms in texts.values() for text in forms.values()):
            pieces = [piece.strip() for piece in _VALUE.split(text)]
            result |= {re.escape(piece) for piece in pieces if _LETTERS.search(piece)}
            if len("".join(_LETTERS.findall("".join(pieces)))) >= _LEAST_LETTERS:
                result.add(".+".join(re.escape(piece) for piece in _VALUE.split(text.strip())))
    return tuple(re.compile(pattern, re.DOTALL) for pattern in sorted(result))


def strangers(page: "Page", names: Iterable[str] = ()) -> list[str]:
    """Return the visible texts, labels and hints that neither a German text nor a name explains."""
    known_words = DATA | {name.lower() for name in names}
    texts: list[str] = page.evaluate(_COLLECT)
    assert any(_is_german(text) for text in texts), "no German text at all"
    return [text for text in texts if not _is_german(text) and not _is_composed(text, known_words)]


def _is_german(text: str) -> bool:
    return any(pattern.fullmatch(one) for pattern in _patterns() for one in (text, text.removesuffix(".")))


def _is_composed(text: str, known_words: Container[str]) -> bool:
    """Whether it is a list of German names and of values."""
    pieces = [piece.strip(") ") for piece in re.split(r"[,\n(;\u00b7]|: ", text)]
    return all(
        _is_german(piece)
        or all(word.lower() in known_words for word in _LETTERS.findall(_DIGEST.sub("", piece)))
        for piece in pieces
    )
