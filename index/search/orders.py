"""The orders that hits can come in: by likeness, fused with words and findings, one of each group, diverse.

The plain order can continue after any of its hits. Every other order depends on all earlier hits, so it
is made again from its top, and a page has its first hits that no earlier page had: whatever was removed in
between, no hit repeats and none is skipped.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from index.errors import QueryError
from index.filters.column_cache import contains_sorted
from index.search.cursors import MAX_RANKED, PagePosition
from index.search.grouping import Groups
from index.search.request import Sort
from index.vectors.protocol import NOTHING, Keys, Neighbours, Vectors
from index.vectors.view import VectorView
from training.evaluation.similarity import as_blades, similarity

# The lists that a hit can come from, as bits.
BY_VECTOR: Final = 1
BY_WORDS: Final = 2
BY_FINDINGS: Final = 4

# Length of the lists that are fused; the same for every page, so that all pages follow one order.
FUSED_DEPTH: Final = 1000
# Hits by likeness from which diverse ones are chosen.
DIVERSE_DEPTH: Final = 1000
# Gives the keys that a search may find, rising, of all keys; None: all.
Findable = Callable[[Keys], Keys | None]
# More are not searched for on top.
_MANY_HIDDEN: Final = 10_000


@dataclass(frozen=True, slots=True)
class Ranked:
    """Hits, best first.

    Attributes:
        keys: Keys of the hits, (N,).
        scores: Scores that order the hits, (N,): the cosine, or the sum of a fused ranking.
        cosines: Cosines with the query, (N,), of the model's own kind.
        lists: The lists that each comes from, (N,), as bits.
        exact: Whether nothing nearer can have been missed.
    """

    keys: Keys
    scores: NDArray[np.float32]
    cosines: NDArray[np.float32]
    lists: NDArray[np.uint8]
    exact: bool

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, indices: NDArray[np.int64] | slice) -> "Ranked":
        """Return the hits at these indices."""
        return Ranked(
            self.keys[indices], self.scores[indices], self.cosines[indices], self.lists[indices], self.exact
        )

    def then(self, other: "Ranked") -> "Ranked":
        """Return these hits with others behind them."""
        return Ranked(
            np.concatenate((self.keys, other.keys)),
            np.concatenate((self.scores, other.scores)),
            np.concatenate((self.cosines, other.cosines)),
            np.concatenate((self.lists, other.lists)),
            self.exact and other.exact,
        )


class Ranking(ABC):
    """An order of hits."""

    # Whether the order depends on all earlier hits, and is recomputed for every page.
    is_remade: ClassVar[bool] = False

    def total(self) -> int | None:
        """Return the number of hits on all pages; None if unknown."""
        return None

    @abstractmethod
    def page(self, count: int, position: PagePosition | None = None) -> Ranked:
        """Return the `count` hits behind a page, or from the top; fewer only where the order ends.

        Raises:
            QueryError: The order does not reach that far down.
        """

    def is_new(self, keys: Keys, seen: Keys) -> NDArray[np.bool_]:
        """Return which of the hits (N,) may follow those that were seen (S,)."""
        return ~np.isin(keys, seen)

    def seen_after(self, seen: Keys, shown: Keys) -> Keys:
        """Return the keys that the cursor behind a page holds: those of the pages before and of this one."""
        return np.append(seen, shown) if self.is_remade else seen


@dataclass(frozen=True, eq=False)
class VectorRanking(Ranking):
    """By likeness to the query, among vectors of a view that pass the filter and are not excluded.

    Attributes:
        view: View to search.
        query: Query vector (D,) of length one.
        allowed: Keys that pass the filter, rising; None for all.
        hidden: Keys that are left out, rising.
        min_score: Lowest cosine of a hit; None: any.
    """

    view: VectorView
    query: Vectors
    allowed: Keys | None
    hidden: Keys
    min_score: float | None = None

    def with_few_hidden(self) -> "VectorRanking":
        """Leave out hidden keys as a filter would where they are many."""
        if len(self.hidden) <= _MANY_HIDDEN:
            return self
        every = self.view.keys() if self.allowed is None else self.allowed
        return replace(self, allowed=every[~contains_sorted(self.hidden, every)], hidden=NOTHING)

    def findable(self, every: Keys) -> Keys | None:
        """Return the keys that a search may find, rising; None where these are `every` key that there is."""
        some = every if self.allowed is None else self.allowed
        if len(self.view) != len(every):
            some = np.intersect1d(some, self.view.keys(), assume_unique=True)
        if len(self.hidden):
            some = some[~contains_sorted(self.hidden, some)]
        return None if some is every else some

    def page(self, count: int, position: PagePosition | None = None) -> Ranked:
        """Return the hits behind a score and key; hidden ones are fetched on top: no view excludes them."""
        after = None if position is None else position.after
        nearest = self.view.search(self.query, count + len(self.hidden), allowed=self.allowed, after=after)
        if len(self.hidden):
            kept = ~contains_sorted(self.hidden, nearest.keys)
            nearest = Neighbours(nearest.keys[kept][:count], nearest.scores[kept][:count], nearest.exact)
        return self.near_enough(nearest)

    def near_enough(self, nearest: Neighbours) -> Ranked:
        """Return those of the nearest that have at least the lowest cosine."""
        keys, scores, exact = nearest
        if self.min_score is not None:
            kept = scores >= np.float32(self.min_score)
            keys, scores = keys[kept], scores[kept]
        return Ranked(keys, scores, scores, np.full(len(keys), BY_VECTOR, dtype=np.uint8), exact)


class RecomputedRanking(Ranking):
    """A ranking that is computed again from the top for every page."""

    is_remade = True

    @abstractmethod
    def _top(self, count: int) -> Ranked:
        """Return the first `count` hits."""

    def page(self, count: int, position: PagePosition | None = None) -> Ranked:
        """Return the first hits that have not been seen; see `Ranking`."""
        if position is not None and position.after.rank >= MAX_RANKED:
            raise QueryError(
                f"This kind of search goes {MAX_RANKED:,} hits deep: narrow it with a filter.",
                field="cursor",
            )
        seen = NOTHING if position is None else position.seen
        ranked = self._top(len(seen) + count)
        return ranked.take(np.flatnonzero(self.is_new(ranked.keys, seen))[:count])


@dataclass(frozen=True, eq=False)
class FusedRanking(RecomputedRanking):
    """By reciprocal rank in lists: likeness to the query, matches of exact words, and findings.

    Hits that none of the fused lists has follow by likeness, with a sum of zero.

    Attributes:
        nearest: The order by likeness.
        matches: Keys that match the words, best first, at most `FUSED_DEPTH`.
        saying: Keys, rising, of what says of findings what the query says, which likeness ranks once more.
    """

    nearest: VectorRanking
    matches: Keys
    saying: Keys

    def _top(self, count: int) -> Ranked:
        near = self.nearest.page(max(count, FUSED_DEPTH))
        head = near.take(slice(FUSED_DEPTH))
        # The view may not have the latest writes and removals yet.
        scored = self.nearest.view.scores(self.nearest.query, self.matches)
        matches = self.nearest.near_enough(Neighbours(*scored, exact=True))
        saying = head.take(slice(0))
        if len(self.saying):
            saying = replace(self.nearest, allowed=self.saying).page(FUSED_DEPTH)
        keys, sums = fuse([head.keys, matches.keys, saying.keys])
        cosine_of: dict[int, float] = {}
        for ranked in (matches, saying, head):
            cosine_of.update(zip(ranked.keys.tolist(), ranked.cosines.tolist(), strict=True))
        lists_of_bits = ((BY_VECTOR, head), (BY_WORDS, matches), (BY_FINDINGS, saying))
        lists = np.sum([bit * np.isin(keys, ranked.keys) for bit, ranked in lists_of_bits], axis=0)
        fused = Ranked(
            keys,
            sums.astype(np.float32),
            np.array([cosine_of[key] for key in keys.tolist()], dtype=np.float32),
            lists.astype(np.uint8),
            near.exact,
        )
        rest = near.take(slice(FUSED_DEPTH, None))
        rest = rest.take(np.flatnonzero(~np.isin(rest.keys, keys)))
        behind = Ranked(rest.keys, np.zeros_like(rest.scores), rest.cosines, rest.lists, rest.exact)
        return fused.then(behind).take(slice(count))


@dataclass(frozen=True, eq=False)
class GroupedRanking(RecomputedRanking):
    """One hit of each group, its first in another order; `findable` gives the keys that it may be of."""

    inner: Ranking
    groups: Groups
    findable: Findable

    def total(self) -> int | None:
        """Return the number of groups with a hit; see `Ranking`."""
        total = self.inner.total()
        return None if total is None else len(self.groups.first_indices(self.inner.page(total).keys))

    def is_new(self, keys: Keys, seen: Keys) -> NDArray[np.bool_]:
        """Return which hits are of groups that none was seen of; see `Ranking`."""
        new, numbers = self.groups.lookup(keys)
        new[new] = ~np.isin(numbers, self.groups.lookup(seen)[1])
        return new

    def _top(self, count: int) -> Ranked:
        fetched, at_most = count, None
        while True:
            ranked = self.inner.page(fetched)
            first = self.groups.first_indices(ranked.keys)
            if len(first) >= count or len(ranked) < fetched:
                return ranked.take(first[:count])
            if at_most is None:
                column = self.groups.column
                at_most = column.count(self.findable(column.keys))
            if len(first) >= at_most:
                return ranked.take(first)
            fetched *= 2


@dataclass(frozen=True, eq=False)
class DiverseRanking(RecomputedRanking):
    """Hits near the query that differ from each other, chosen among the first hits of another order.

    The rest follows in the other order.
    """

    inner: Ranking
    view: VectorView
    diversity: float
    blades: int
    unsigned: bool

    def _top(self, count: int) -> Ranked:
        ranked = self.inner.page(max(count, DIVERSE_DEPTH))
        head, rest = ranked.take(slice(DIVERSE_DEPTH)), ranked.take(slice(DIVERSE_DEPTH, None))
        present, vectors = self.view.stored_vectors(head.keys)
        head = head.take(np.flatnonzero(np.isin(head.keys, present)))
        chosen = diversify(
            head.keys,
            _relevance(head),
            vectors,
            diversity=self.diversity,
            count=min(count, len(head)),
            blades=self.blades,
            unsigned=self.unsigned,
        )
        return head.take(chosen).then(rest).take(slice(count))

    def is_new(self, keys: Keys, seen: Keys) -> NDArray[np.bool_]:
        """Return which hits the other order has not shown; see `Ranking`."""
        return self.inner.is_new(keys, seen)


@dataclass(frozen=True, eq=False)
class WordList(RecomputedRanking):
    """Without a query vector: keys by the rank of words, of which at most `most` are ranked."""

    keys: Keys
    most: int | None

    def total(self) -> int | None:
        """Return the number of keys on all pages; None where more match than are ranked."""
        return None if self.most is not None and len(self.keys) >= self.most else len(self.keys)

    def _top(self, count: int) -> Ranked:
        return _unscored(self.keys[:count], BY_WORDS)


@dataclass(frozen=True, eq=False)
class KeyList(Ranking):
    """Without a query vector: by key, so as the images were added, with the first of each group.

    Keys are never reused: a page begins after the last key of the page before, whatever is written or removed
    in between, and all pages cost the same.

    Attributes:
        keys: Keys of the list, rising.
        groups: Groups that have one hit each; None: every key is a hit.
        lists: The lists that the keys come from, as bits.
    """

    keys: Keys
    groups: Groups | None
    lists: int

    @cached_property
    def _hits(self) -> Keys:
        return self.keys if self.groups is None else self.groups.column.firsts(self.keys)

    def total(self) -> int | None:
        """Return the number of keys on all pages; see `Ranking`."""
        return len(self._hits)

    def page(self, count: int, position: PagePosition | None = None) -> Ranked:
        """Return the hits behind a key; see `Ranking`."""
        start = 0 if position is None else int(np.searchsorted(self._hits, position.after.key, "right"))
        return _unscored(self._hits[start : start + count], self.lists)


@dataclass(frozen=True, eq=False)
class NewestFirst(KeyList):
    """As `KeyList`, from the last key to the first; without groups, whose last one may change."""

    def page(self, count: int, position: PagePosition | None = None) -> Ranked:
        """Return the hits before a key; see `Ranking`."""
        end = len(self.keys) if position is None else int(np.searchsorted(self.keys, position.after.key))
        return _unscored(self.keys[max(end - count, 0) : end][::-1], self.lists)


def _newest(keys: Keys, groups: Groups | None, lists: int, findable: Findable) -> Ranking:
    newest = NewestFirst(keys, None, lists)
    return newest if groups is None else GroupedRanking(newest, groups, findable)


# Orders of a list without a query. Each is made of the rising keys of the list, its groups, the lists they
# come from, and what gives the keys that a group may have; `page`, `total`, `seen_after` say the rest.
LIST_ORDERS: Final[Mapping[Sort, Callable[[Keys, Groups | None, int, Findable], Ranking]]] = {
    "added": lambda keys, groups, lists, _findable: KeyList(keys, groups, lists),
    "newest": _newest,
}


def _unscored(keys: Keys, lists: int) -> Ranked:
    nothing = np.full(len(keys), np.nan, dtype=np.float32)
    return Ranked(keys, nothing, nothing, np.full(len(keys), lists, dtype=np.uint8), exact=True)


def _relevance(ranked: Ranked) -> NDArray[np.float32]:
    """Return scores (N,) that can be weighed against cosines.

    Sums of a fused ranking are stretched over the range of its hits' cosines.
    """
    if np.array_equal(ranked.scores, ranked.cosines):
        return ranked.cosines
    low, high = float(ranked.cosines.min()), float(ranked.cosines.max())
    least, most = float(ranked.scores.min()), float(ranked.scores.max())
    share = (ranked.scores - least) / ((most - least) or 1.0)
    stretched: NDArray[np.float32] = (low + share * (high - low)).astype(np.float32)
    return stretched


def diversify(
    keys: Keys,
    scores: NDArray[np.float32],
    vectors: Vectors,
    *,
    diversity: float,
    count: int,
    blades: int = 1,
    unsigned: bool = False,
) -> NDArray[np.int64]:
    """Choose hits one after another, each near the query and unlike those chosen before it.

    The next one has the largest (1 - diversity) * score - diversity * likeness, its likeness being its
    largest cosine with one already chosen (Carbonell and Goldstein, SIGIR 1998). Equals go by key.

    Args:
        keys: Keys of the candidates (N,).
        scores: Scores of the candidates (N,), larger is nearer.
        vectors: Vectors of the candidates (N, D), of length one.
        diversity: 0 leaves the order of scores, 1 looks for the most different only.
        count: Number of candidates to choose.
        blades: k of a k-blade model, whose vectors are oriented bases; else 1.
        unsigned: Whether a vector and its opposite are the same.

    Returns:
        The indices of the chosen among the candidates (min(count, N),), best first.
    """
    size = min(count, len(keys))
    chosen = np.empty(size, dtype=np.int64)
    # In order of key, the first of equals is the one with the smallest key.
    order = np.argsort(keys, kind="stable")
    relevance = (1 - diversity) * scores[order].astype(np.float64)
    ranked = as_blades(np.ascontiguousarray(vectors[order]), blades, unsigned=unsigned)
    likeness = np.zeros(len(keys), dtype=np.float64)
    best = int(np.argmax(scores[order])) if size else 0
    for step in range(size):
        chosen[step] = best
        alike = similarity(ranked[best : best + 1], ranked)[0].astype(np.float64)
        likeness = alike if step == 0 else np.maximum(likeness, alike)
        relevance[best] = -np.inf
        best = int(np.argmax(relevance - diversity * likeness))
    indices: NDArray[np.int64] = order[chosen]
    return indices


def fuse(rankings: Sequence[Keys], k0: int = 60) -> tuple[Keys, NDArray[np.float64]]:
    """Fuse rankings by the sum of 1 / (k0 + rank) over those that a key is in.

    Cormack, Clarke and Buettcher, "Reciprocal rank fusion outperforms Condorcet and individual rank learning
    methods", SIGIR 2009.

    Args:
        rankings: Distinct keys (N,) of each ranking, best first.
        k0: Rank constant; the larger, the less the first ranks dominate.

    Returns:
        The keys of all rankings and their sums, best first; equal sums are in order of key.
    """
    keys = np.concatenate([np.empty(0, dtype=np.int64), *rankings])
    fused, positions = np.unique(keys, return_inverse=True)
    sums = np.zeros(len(fused), dtype=np.float64)
    ranks = np.concatenate([np.empty(0), *(np.arange(1.0, len(ranking) + 1) for ranking in rankings)])
    np.add.at(sums, positions, 1 / (k0 + ranks))
    order = np.lexsort((fused, -sums))
    return fused[order], sums[order]
