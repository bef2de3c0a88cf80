"""The request of a search: one query vector from texts, images and examples, and everything else."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json

from index.catalogue.collections import Target
from index.catalogue.words import MAX_WORDS, parse_words, tokens
from index.errors import QueryError
from index.filters.grammar import Filter, HasFinding
from index.scoring import Background
from index.vectors.protocol import Vectors
from training.clinical.findings import State, find_findings, image_states

# Scores of texts and of images have different ranges.
QueryKind = Literal["text", "image"]
# Orders of a list without a query, of `index.search.orders.LIST_ORDERS`.
Sort = Literal["added", "newest"]
# A sum this much shorter than its parts is what rounding leaves of parts that cancel each other out.
_NOTHING: Final = 1e-5
# Weight of the collection's mean, in disliked examples (measured); the query counts as one liked example.
_BACKGROUND: Final = 8.0


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """Filter, exclusions, order and size of a page of hits.

    Attributes:
        k: Hits on the page; fewer only if fewer match.
        filter: Filter on the images.
        cursor: `next_cursor` of the page before.
        exclude: Images to leave out, by id.
        exclude_groups_of: Images, by id, that are left out with all others of their groups.
        exclude_groups_by: The field that makes these groups.
        exclude_patients_of: Images, by id, whose patients are left out where images are of studies.
        words: Words whose exact matches are fused with the ranking by vectors.
        words_state: Matches of words only where the texts say this of the findings that the words name.
        stated: What the query's text says of findings if it says that one is absent: images whose texts say
            all of it are a ranking of their own, fused with that by vectors.
        target: Whether images are searched or their texts; a filter is about the image either way.
        group_by: A field: one hit, the best, for all images that have the same value in it.
        min_score: Lowest cosine of a hit; None: any.
        diversity: Weight of differences between hits, from 0 to 1; None ranks by similarity alone.
        sort: Order of a list without a query; None: by the rank of words, or as the images were added.
        kind: Kind of the query vector; None for a composed or unknown one.
        parts: Parts of a composed query vector as text: the vector itself varies with the collection.
    """

    k: int = 10
    filter: Filter | None = None
    cursor: str | None = None
    exclude: tuple[str, ...] = ()
    exclude_groups_of: tuple[str, ...] = ()
    exclude_groups_by: str = "group"
    exclude_patients_of: tuple[str, ...] = ()
    words: str | None = None
    words_state: State | None = None
    stated: tuple[HasFinding, ...] = ()
    target: Target = "images"
    group_by: str | None = None
    min_score: float | None = None
    diversity: float | None = None
    sort: Sort | None = None
    kind: QueryKind | None = None
    parts: str | None = None

    @property
    def words_findings(self) -> tuple[HasFinding, ...]:
        """The findings that the words name, in the requested state."""
        if self.words is None or self.words_state is None:
            return ()
        names = image_states(find_findings(self.words))
        return tuple(HasFinding(finding=name, state=self.words_state) for name in names)

    @property
    def is_remade(self) -> bool:
        """Whether the order depends on all earlier hits, and is recomputed for every page."""
        return self.words is not None or self.group_by is not None or self.diversity is not None

    def check(self) -> None:
        """Refuse what cannot be searched for.

        Raises:
            QueryError: A value is out of its range, or two of them exclude each other.
        """
        if self.k < 1:
            raise QueryError("limit, the number of hits, must be at least 1.", field="limit")
        if self.diversity is not None and not 0 <= self.diversity <= 1:
            raise QueryError("diversity must be between 0 and 1.", field="diversity")
        if self.min_score is not None and not -1 <= self.min_score <= 1:
            raise QueryError("min_score, a cosine, must be between -1 and 1.", field="min_score")
        if self.words is not None:
            different = parse_words(self.words).size
            if not different:
                raise QueryError(
                    "There is no word in `keywords`: give some, or leave it out.", field="keywords"
                )
            if different > MAX_WORDS:
                raise QueryError(
                    f"There are {different:,} different words in `keywords`: give at most {MAX_WORDS}.",
                    field="keywords",
                )
        if self.words_state is not None and not self.words_findings:
            raise QueryError(
                "keywords_state goes with `keywords` that name a finding, such as effusion: "
                "name one, or leave it out.",
                field="keywords_state",
            )

    def bound(self) -> str:
        """Return everything that must be the same for all pages of one search, as a text."""
        values = {
            "filter": None if self.filter is None else self.filter.text,
            "exclude": sorted(self.exclude),
            "exclude_groups_of": sorted(self.exclude_groups_of),
            "exclude_groups_by": self.exclude_groups_by,
            "words": None if self.words is None else tokens(self.words),
            "words_state": self.words_state,
            "stated": [finding.value for finding in self.stated] if self.stated else (),
            "target": self.target,
            "group_by": self.group_by,
            "min_score": None if self.min_score is None else float(self.min_score),
            "diversity": None if self.diversity is None else float(self.diversity),
            "kind": self.kind,
            "parts": self.parts,
        }
        # Cursors of requests without these stay as they were.
        if self.exclude_patients_of:
            values["exclude_patients_of"] = sorted(self.exclude_patients_of)
        if self.sort is not None:
            values["sort"] = self.sort
        return to_json(values).decode()


class BatchEntry(NamedTuple):
    """A search of a batch: its query vector (D,), the rest, and its text as in `SearchEngine.search`."""

    vector: Vectors
    request: SearchRequest
    text: str | None


def stated_findings(text: str) -> tuple[HasFinding, ...]:
    """Return what a query's text says of findings; nothing unless it says that one is absent."""
    findings = find_findings(text)
    states = image_states(findings) if findings else {}
    if "absent" not in states.values():
        return ()
    return tuple(HasFinding(finding=name, state=state) for name, state in sorted(states.items()))


@dataclass(frozen=True, slots=True)
class Part:
    """A vector (D,) of length one that a search is made of, and the kind of its source, if known."""

    vector: Vectors
    kind: QueryKind | None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """Vectors of a query: of its text and images, of positive and of negative examples."""

    queries: Sequence[Part] = ()
    liked: Sequence[Part] = ()
    disliked: Sequence[Part] = ()

    @property
    def single(self) -> Part | None:
        """The one vector of a search that is made of no more; None for every other."""
        parts = (*self.queries, *self.liked)
        return parts[0] if len(parts) == 1 and not self.disliked else None


def compose(parts: Parts, background: Background) -> Vectors:
    """Make one query vector (D,) of length one.

    A single vector is left as it is. Parts of the query are added, each brought to the same
    spread of its scores: a text's are closer together than an image's, so that a plain sum would almost
    ignore the text. Examples make a linear classifier between two shrunken centroids (Tibshirani et al.,
    "Diagnosis of multiple cancer types by shrunken centroids of gene expression", 2002, with equal
    variances):

        w = (q + sum of liked) / (1 + n_liked) - (b m + sum of disliked) / (b + n_disliked)

    with the query q, the collection's mean m and b = 8: a few dislikes, which may be wrong
    in many ways, say less than a few likes. Whitening by the collection's covariance made it worse
    (measured).

    Raises:
        QueryError: The query has no part, its examples cancel each other out, or the model's
            vectors cannot be added.
    """
    if not (parts.queries or parts.liked or parts.disliked):
        raise QueryError("There is nothing to search for: give a text, an image, a vector or examples.")
    if parts.single is not None:
        return parts.single.vector
    if background.blades != 1 or background.unsigned:
        raise QueryError("This collection's model searches by one text, image, id or vector only.")
    queried, liked, disliked = (
        _sum(group, background) for group in (parts.queries, parts.liked, parts.disliked)
    )
    total = queried
    if parts.liked or parts.disliked:
        mean = background.mean.astype(np.float64)
        target = queried / max(len(parts.queries), 1) + liked
        weight = bool(parts.queries) + len(parts.liked)
        unwanted = (_BACKGROUND * mean + disliked) / (_BACKGROUND + len(parts.disliked))
        total = (target / weight if weight else mean) - unwanted
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


def unit_query(vector: Vectors, dim: int) -> Vectors:
    """Return a query vector (D,) at length one.

    Raises:
        QueryError: The vector has another shape, or no direction.
    """
    if vector.shape != (dim,):
        numbers = " by ".join(map(str, vector.shape))
        raise QueryError(f"The query vector has {numbers} numbers, the collection's have {dim}.")
    wide = vector.astype(np.float64)
    length = math.sqrt(wide.dot(wide))
    if not math.isfinite(length) or length == 0:
        raise QueryError("The query vector must have finite numbers that are not all zero.")
    # In float32 the length of large numbers would be infinite.
    query: Vectors = (wide / length).astype(np.float32)
    return query
