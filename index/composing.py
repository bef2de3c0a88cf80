"""One query vector from several: text and image together, examples that were liked and disliked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from index.background import Background, QueryKind
from index.errors import QueryError
from index.vectors.protocol import Vectors

# A sum this much shorter than its parts is what rounding leaves of parts that cancel each other out.
_NOTHING: Final = 1e-5
_DISLIKED_WEIGHT: Final = 0.5


@dataclass(frozen=True, slots=True)
class Part:
    """A vector (D,) of length one that a search is made of, and what it is of, where that is known."""

    vector: Vectors
    kind: QueryKind | None


@dataclass(frozen=True, slots=True)
class Parts:
    """What a search is made of: what is asked for, and examples of what is wanted and of what is not."""

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


def compose(parts: Parts, background: Background) -> Vectors:
    """Make one query vector (D,) of length one.

    A single vector is left as it is. Otherwise every part counts by how unusual its scores are: a text's
    lie closer together than an image's, so that a plain sum would hardly hear the text.

    Args:
        parts: What the search is made of; something must be asked for, liked or disliked.
        background: That of the view which is searched.

    Raises:
        QueryError: There is nothing to search for, the examples cancel each other out, or the model's
            vectors cannot be added.
    """
    count = len(parts.asked) + len(parts.liked) + len(parts.disliked)
    if count == 0:
        raise QueryError("There is nothing to search for: give a text, an image, a vector or examples.")
    if parts.single is not None:
        return parts.single.vector
    if background.blades != 1 or background.unsigned:
        raise QueryError("This collection's model searches by one text, image, id or vector only.")
    total = np.zeros_like(background.mean, dtype=np.float64)
    for part in parts.asked:
        total += _weighed(part.vector, background)
    for examples, weight in ((parts.liked, 1.0), (parts.disliked, -_DISLIKED_WEIGHT)):
        if examples:
            total += weight * _weighed(np.mean([part.vector for part in examples], axis=0), background)
    length = float(np.linalg.norm(total))
    if length <= _NOTHING:
        raise QueryError("The examples cancel each other out: like or dislike something else as well.")
    query: Vectors = (total / length).astype(np.float32)
    return query


def _weighed(vector: Vectors, background: Background) -> NDArray[np.float64]:
    return vector.astype(np.float64) / background.scale(vector, None).spread
