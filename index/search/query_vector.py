"""One query vector from several: text and image together, examples that were liked and disliked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from index.errors import QueryError
from index.scoring.background import Background
from index.search.request import QueryKind
from index.vectors.protocol import Vectors

# A sum this much shorter than its parts is what rounding leaves of parts that cancel each other out.
_NOTHING: Final = 1e-5
# Weight of the collection's mean, in disliked examples (measured); the query counts as one liked example.
_BACKGROUND: Final = 8.0


@dataclass(frozen=True, slots=True)
class Part:
    """A vector (D,) of length one that a search is made of, and what it is of, where that is known.

    Attributes:
        vector: Vector (D,) of length one.
        kind: Kind of the query; None if unknown.
        text: The text that it is of.
    """

    vector: Vectors
    kind: QueryKind | None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """Vectors of a query: of its text and images, of positive and of negative examples."""

    asked: Sequence[Part] = ()
    liked: Sequence[Part] = ()
    disliked: Sequence[Part] = ()

    @property
    def single(self) -> Part | None:
        """The one vector of a search that is made of no more; None for every other."""
        wanted = (*self.asked, *self.liked)
        return wanted[0] if len(wanted) == 1 and not self.disliked else None

    @property
    def kind(self) -> QueryKind | None:
        """The kind of a search that is made of one vector; None for every other."""
        return None if self.single is None else self.single.kind

    @property
    def text(self) -> str | None:
        """The text of a search that is made of one; None for every other."""
        return None if self.single is None else self.single.text


def compose(parts: Parts, background: Background) -> Vectors:
    """Make one query vector (D,) of length one.

    A single vector is left as it is. Parts that are asked for together are added, each brought to the same
    spread of its scores: a text's lie closer together than an image's, so that a plain sum would hardly hear
    the text. Examples make a linear classifier between two shrunken centroids (Tibshirani et al., "Diagnosis
    of multiple cancer types by shrunken centroids of gene expression", 2002, with equal variances):

        w = (q + sum of liked) / (1 + n_liked) - (b m + sum of disliked) / (b + n_disliked)

    with what is asked for q, the collection's mean m and b = 8: a few dislikes, which may be wrong
    in many ways, say less than a few likes. Whitening by the collection's covariance made it worse
    (measured).

    Args:
        parts: Vectors of texts, images and examples; at least one.
        background: Background of the searched view.

    Raises:
        QueryError: The query has no part, its examples cancel each other out, or the model's
            vectors cannot be added.
    """
    if not (parts.asked or parts.liked or parts.disliked):
        raise QueryError("There is nothing to search for: give a text, an image, a vector or examples.")
    if parts.single is not None:
        return parts.single.vector
    if background.blades != 1 or background.unsigned:
        raise QueryError("This collection's model searches by one text, image, id or vector only.")
    asked, liked, disliked = (_sum(group, background) for group in (parts.asked, parts.liked, parts.disliked))
    total = asked
    if parts.liked or parts.disliked:
        mean = background.mean.astype(np.float64)
        wanted = asked / max(len(parts.asked), 1) + liked
        weight = bool(parts.asked) + len(parts.liked)
        unwanted = (_BACKGROUND * mean + disliked) / (_BACKGROUND + len(parts.disliked))
        total = (wanted / weight if weight else mean) - unwanted
    length = float(np.linalg.norm(total))
    if length <= _NOTHING:
        raise QueryError("The examples cancel each other out: like or dislike something else as well.")
    query: Vectors = (total / length).astype(np.float32)
    return query


def _sum(parts: Sequence[Part], background: Background) -> NDArray[np.float64]:
    """Return the sum (D,) of vectors, each as long as brings its scores to the usual spread."""
    if not parts:
        return np.zeros(background.sample.shape[1])
    vectors = np.stack([part.vector for part in parts])
    lengths = background.median_spread / background.spreads(vectors)
    return lengths @ vectors.astype(np.float64)
