"""The words that a collection's texts and labels use, and whether a query is made of these."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Final

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from index.catalogue.full_text import pieces
from index.catalogue.tables import ImageRow, TextRow

# A text is out of vocabulary below this quantile of the token coverage of the collection's own texts.
_COVERAGE_QUANTILE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The words of the texts and labels of some images.

    Attributes:
        weights: Inverse document frequency of each word.
        unknown: Weight of an unknown word: the mean weight of the texts' words.
        coverage_threshold: 5 % quantile of the token coverage of texts, by words of other images.
    """

    weights: Mapping[str, float]
    unknown: float
    coverage_threshold: float

    @classmethod
    def of(cls, texts: Sequence[Sequence[str]]) -> "Vocabulary":
        """Return the vocabulary of the texts of each image."""
        words = [[_words(text) for text in of_image] for of_image in texts]
        counts = Counter(word for of_image in words for word in set().union(*of_image))
        weights = {word: log((len(texts) + 1) / count) for word, count in counts.items()}
        uses = max(counts.total(), 1)
        unknown = sum(count * weights[word] for word, count in counts.items()) / uses
        others = {word: weight for word, weight in weights.items() if counts[word] > 1}
        shares = [_coverage(text, others, unknown) for of_image in words for text in of_image]
        coverage_threshold = float(np.quantile(shares, _COVERAGE_QUANTILE, method="lower")) if shares else 0.0
        return cls(weights, unknown, coverage_threshold)

    def knows(self, text: str) -> bool:
        """Tell whether no larger share of a text's words is unknown than of the collection's own texts."""
        return _coverage(_words(text), self.weights, self.unknown) >= self.coverage_threshold


def _words(text: str) -> list[str]:
    """Return the different words of a text; pairs of characters where a script has no spaces."""
    return list(dict.fromkeys(pieces(text)))


def _coverage(words: Sequence[str], weights: Mapping[str, float], unknown: float) -> float:
    """Return the token coverage: the share of words with a weight, by weight; 0 for a text without words."""
    known = sum(weights.get(word, 0.0) for word in words)
    weight = known + unknown * sum(word not in weights for word in words)
    return known / weight if weight else 0.0


def read_vocabulary(session: Session, images: Sequence[int]) -> Vocabulary:
    """Read the vocabulary of the texts and labels of images, by key."""
    labels = select(ImageRow.id, ImageRow.labels).where(ImageRow.id.in_(images))
    texts: dict[int, list[str]] = {image: list(named) for image, named in session.execute(labels)}
    for image, text in session.execute(
        select(TextRow.image_id, TextRow.text).where(TextRow.image_id.in_(images))
    ):
        texts[image].append(text)
    return Vocabulary.of(list(texts.values()))
