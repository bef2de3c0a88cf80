"""Splits radiology reports into sentences."""

import re
from collections.abc import Iterable
from typing import Final

# A full stop that ends a sentence stands after no abbreviation and before a capital, a digit or a blank.
_END: Final = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9(\"'_])")
_ABBREVIATION: Final = re.compile(
    r"(?:^|[\s(])(?:dr|mr|mrs|ms|st|vs|no|approx|e\.g|i\.e|a\.m|p\.m|fig|dept|[a-z])\.$", re.IGNORECASE
)
_LIST_MARKER: Final = re.compile(r"^\(?\d{1,2}[.)]\s+|^[-*•]\s+")
_LIST_NUMBER: Final = re.compile(r"^\(?\d{1,2}[.)]$")
_WORD: Final = re.compile(r"[A-Za-z]{2,}")
_FEWEST_WORDS: Final = 2
_FEWEST_LETTERS: Final = 10


def split_sentences(text: str) -> tuple[str, ...]:
    """Split running text into sentences, without list numbers and without fragments.

    A fragment has fewer than two words and fewer than ten letters: "Normal." goes, "Cardiomegaly." stays.
    """
    sentences = (_LIST_MARKER.sub("", sentence) for sentence in _pieces(" ".join(text.split())))
    return tuple(sentence for sentence in sentences if _says_something(sentence))


def report_sentences(sections: Iterable[str]) -> tuple[str, ...]:
    """The sentences of several sections, each once, in order."""
    return tuple(dict.fromkeys(sentence for section in sections for sentence in split_sentences(section)))


def _pieces(text: str) -> list[str]:
    pieces: list[str] = []
    for part in _END.split(text):
        if pieces and (_ABBREVIATION.search(pieces[-1]) or _LIST_NUMBER.match(pieces[-1])):
            pieces[-1] = f"{pieces[-1]} {part}"
        elif part:
            pieces.append(part)
    return pieces


def _says_something(sentence: str) -> bool:
    words = _WORD.findall(sentence)
    return len(words) >= _FEWEST_WORDS or sum(map(len, words)) >= _FEWEST_LETTERS
