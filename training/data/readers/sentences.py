"""Splits radiology reports into sentences."""

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from training.models.inputs.sentences import sentence_starts

_LIST_MARKER: Final = re.compile(r"^\(?\d{1,2}[.)]\s+|^[-*•]\s+")
_WORD: Final = re.compile(r"[A-Za-z]{2,}")
_FEWEST_WORDS: Final = 2
_FEWEST_LETTERS: Final = 10


def split_sentences(text: str) -> tuple[str, ...]:
    """Split running text into sentences, without list numbers and without fragments.

    A fragment has fewer than two words and fewer than ten letters: "Normal." goes, "Cardiomegaly." stays.
    """
    line = " ".join(text.split())
    pieces = (line[start:end].rstrip() for start, end in pairwise([*sentence_starts(line), len(line)]))
    sentences = (_LIST_MARKER.sub("", piece) for piece in pieces)
    return tuple(sentence for sentence in sentences if _says_something(sentence))


def report_sentences(sections: Iterable[str]) -> tuple[str, ...]:
    """The sentences of several sections, each once, in order."""
    return tuple(dict.fromkeys(sentence for section in sections for sentence in split_sentences(section)))


def _says_something(sentence: str) -> bool:
    words = _WORD.findall(sentence)
    return len(words) >= _FEWEST_WORDS or sum(map(len, words)) >= _FEWEST_LETTERS
