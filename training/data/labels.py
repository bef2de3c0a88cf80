"""Classification targets of records: manifest labels, or words of their texts."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from training.common.record import Record

_WORD: Final = re.compile(r"[^\W\d_]{2,}")
# Replaces a part-of-speech tagger, which would select nouns, verbs and adjectives.
_ENGLISH: Final = """
about above after all along also an and another any are around as at away be been before behind being
below beside between both but by can do down each for from front has have he her here him his if in into
is it its just like looking near next no nor not of off on one or other out over she side so some that the
their them then there these they this those three through to together top two under up very was were what
when where which while who with without
"""
_FUNCTION_WORDS: Final = frozenset(_ENGLISH.split())


@dataclass(frozen=True, slots=True)
class Labelling:
    """Classes of a classifier, in the order of its outputs.

    Attributes:
        names: Labels or words.
        of_texts: Whether classes are words of a record's texts.
    """

    names: tuple[str, ...]
    of_texts: bool = False

    def of(self, records: Sequence[Record]) -> NDArray[np.bool_]:
        """(N, L), True where a record belongs to a class."""
        if not self.of_texts:
            return positives(records, self.names)
        return _matrix([words_of(record) for record in records], self.names)


def known_labels(records: Sequence[Record]) -> tuple[str, ...]:
    """All labels that occur, sorted."""
    return tuple(sorted({label for record in records for label in record.labels}))


def positives(records: Sequence[Record], labels: Sequence[str]) -> NDArray[np.bool_]:
    """(N, L), True where a record has a label."""
    return _matrix([record.labels for record in records], labels)


def frequent_words(records: Sequence[Record], count: int) -> tuple[str, ...]:
    """The at most `count` words that occur in most records' texts, without English function words."""
    counts = Counter(word for record in records for word in words_of(record))
    return tuple(sorted(counts, key=lambda word: (-counts[word], word))[:count])


def words_of(record: Record) -> frozenset[str]:
    """Lower-case words of a record's texts, without English function words."""
    words = {word for text in record.texts for word in _WORD.findall(text.lower())}
    return frozenset(words - _FUNCTION_WORDS)


def _matrix(items: Sequence[Collection[str]], names: Sequence[str]) -> NDArray[np.bool_]:
    rows = [[name in item for name in names] for item in items]
    return np.array(rows, dtype=np.bool_).reshape(len(items), len(names))
