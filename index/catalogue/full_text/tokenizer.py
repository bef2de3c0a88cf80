"""The words of a text, the same on every database.

A word is a run of letters, digits and their marks. Runs of Han, Kana, Hangul, Thai, Lao, Khmer and Burmese
hold several words: they are indexed as their overlapping pairs of characters and their last character, so
that any part of a run is a phrase of pairs, or the beginning of a pair.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Final, NamedTuple

from training.common.scripts import UNSPACED

# Limit of an image's text in characters.
MAX_CHARACTERS: Final = 200_000
# PostgreSQL takes words of up to 2,047 bytes, of which a character may need four.
MAX_WORD_LENGTH: Final = 500
# A tsvector holds 1,048,575 bytes.
_MAX_BYTES: Final = 1_000_000
# Bytes of a tsvector for a new word, beside its letters, and for a place of a word, with their alignment.
_WORD_BYTES, _PLACE_BYTES = 4, 2
# Characters whose pairs fit, if each of them is another one of eight bytes.
_SURELY_FITS: Final = _MAX_BYTES // (8 + _WORD_BYTES + _PLACE_BYTES)
_ASCII_WORD: Final = re.compile("[a-z0-9]+")

# Accents of Latin, Greek and Cyrillic, points of Hebrew and Arabic, variation selectors, soft hyphens.
_LEFT_OUT: Final = re.compile(
    "[\u00ad\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u061c\u0640"
    "\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u1ab0-\u1aff\u1dc0-\u1dff\u200c-\u200f\u202a-\u202e\u2060-\u206f\u20d0-\u20f0\u2de0-\u2dff\u3164\ufe00-\ufe0f"
    "\ufe20-\ufe2f\ufeff\uffa0\U000e0000-\U000e0fff]"
)
# Letters of Turkish, Polish, Vietnamese, Danish and others whose accents are parts of them.
_STROKED: Final = str.maketrans(
    {"ı": "i", "ł": "l", "đ": "d", "ø": "o", "ħ": "h", "ŧ": "t", "æ": "ae", "œ": "oe"}
)
_FIRST_MARK: Final = 0x300
_LAST_MARK: Final = 0x1FFFF
# Vowels and final consonants of decomposed Hangul, which join the character before.
_JOINING_JAMO: Final = range(0x1160, 0x1200)


class Word(NamedTuple):
    """A word of a folded text and its place there; `unspaced` if it is a run without spaces."""

    text: str
    start: int
    end: int
    unspaced: bool


class FoldedText(NamedTuple):
    """A folded text; its character i stands for those from `starts[i]` to `ends[i]` of the original."""

    text: str
    starts: list[int]
    ends: list[int]


def fold(text: str) -> str:
    """Return a text without the differences that words are compared without.

    Compatibility forms (full width, ligatures), case, accents and invisible characters are folded.
    """
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text).casefold())
    return unicodedata.normalize("NFC", _LEFT_OUT.sub("", plain)).translate(_STROKED)


def fold_aligned(text: str) -> FoldedText:
    """Fold a text, and keep where its characters come from."""
    if text.isascii():
        return FoldedText(text.lower(), list(range(len(text))), list(range(1, len(text) + 1)))
    parts: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    borders = [place for place, character in enumerate(text) if place == 0 or not _joins(character)]
    for start, end in pairwise([*borders, len(text)]):
        part = fold(text[start:end])
        parts.append(part)
        starts += [start] * len(part)
        ends += [end] * len(part)
    return FoldedText("".join(parts), starts, ends)


def split_words(folded: str) -> Iterator[Word]:
    """Give the words and runs of a folded text in order."""
    for found in _pattern().finditer(folded):
        yield Word(found.group(), found.start(), found.end(), found.lastgroup == "run")


def pieces(text: str) -> list[str]:
    """Return the pieces of a text in order, as they are indexed: its words, and the pairs of its runs."""
    return indexed_pieces(fold(text))


def pairs(run: str) -> list[str]:
    """Return the overlapping pairs of characters of a run; none of a single character."""
    return [run[place : place + 2] for place in range(len(run) - 1)]


def indexed_text(text: str) -> str:
    """Return the folded beginning of an image's text whose pieces fit into the index of either database."""
    folded = fold(text[:MAX_CHARACTERS])
    while len(folded) > _SURELY_FITS and _size(indexed_pieces(folded)) > _MAX_BYTES:
        folded = folded[: len(folded) * 3 // 4]
    return folded


def indexed_pieces(folded: str) -> list[str]:
    """Return the pieces of a folded text in order."""
    if folded.isascii():
        return [word[:MAX_WORD_LENGTH] for word in _ASCII_WORD.findall(folded)]
    found: list[str] = []
    for word in split_words(folded):
        if word.unspaced:
            found += pairs(word.text)
            found.append(word.text[-1])
        else:
            found.append(word.text[:MAX_WORD_LENGTH])
    return found


def runs(folded: str) -> str:
    """Return the runs of a folded text that are longer than a pair, with spaces between them."""
    return " ".join(word.text for word in split_words(folded) if word.unspaced and len(word.text) > 2)


def _size(found: list[str]) -> int:
    words = sum(len(word.encode()) + _WORD_BYTES for word in set(found))
    return words + _PLACE_BYTES * len(found)


def _joins(character: str) -> bool:
    """Tell whether a character may be composed with those before it, or is left out."""
    first = unicodedata.normalize("NFKC", character)[0]
    return (
        unicodedata.category(character)[0] == "M"
        or unicodedata.category(first)[0] == "M"
        or ord(first) in _JOINING_JAMO
        or _LEFT_OUT.match(character) is not None
    )


@cache
def _pattern() -> re.Pattern[str]:
    unspaced = re.compile(f"[{UNSPACED}]")
    marks = "".join(
        mark
        for mark in map(chr, range(_FIRST_MARK, _LAST_MARK))
        if unicodedata.category(mark)[0] == "M" and not unspaced.match(mark)
    )
    letters = rf"[^\W_{UNSPACED}]"
    return re.compile(rf"(?P<run>[{UNSPACED}]+)|{letters}+(?:[{_ranges(marks)}]+{letters}*)*")


def _ranges(characters: str) -> str:
    """Write characters in rising order as the ranges of a class of a regular expression."""
    ranges: list[list[str]] = []
    for character in characters:
        if ranges and ord(character) == ord(ranges[-1][1]) + 1:
            ranges[-1][1] = character
        else:
            ranges.append([character, character])
    return "".join(f"{first}-{last}" for first, last in ranges)
