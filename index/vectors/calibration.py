"""Measures after a build how deep must be searched for the promised recall, and what that costs."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from index.vectors.codec import unit
from index.vectors.finder import Finder
from index.vectors.judging import enough_candidates, judge, places_of, recall_of, steps, with_spare
from index.vectors.passing import Passing
from index.vectors.planner import Planner, Probe, Usual
from index.vectors.positions import Mask, Rows
from index.vectors.protocol import Vectors
from index.vectors.stored import Guard, StoredRows

# What is near rows that come later must be found with this recall, the mean of that down to some depths. The
# queries are few: held to as much as at the build, rows of the same kind would often seem to fail; held to no
# more than is promised, a kind that grows denser would be found a little less surely each time.
_LATER_RECALL: Final = 0.991
_LATER_TRIED: Final = 100
_LATER_DEPTH: Final = 160
_LATER_ONE_OF: Final = 3
# Fewer rows are no kind of their own.
_FEWEST: Final = 64
# A query encoder does not say quite what the other encoder says.
NOISE: Final = 0.45
# How many queries are tried at least and at most, which share of them may seem hard, and for which depths.
# A page of ten looks for an eleventh hit. Deep searches need far more candidates for fewer hard queries.
_DEPTHS: Final = (
    (200, 1000, 0.1, (10, 11, 14, 17, 21, 27, 33, 41)),
    (60, 60, 0.15, (80, 160, 320, 640)),
    (20, 20, 0.15, (1250, 2500, 5000, 10_000)),
)
# More than the least are tried where that takes no more comparisons than this, and a build takes long anyway.
_COMPARED: Final = 100_000_000
_TRIED_ONE_OF: Final = 40
# How many lists are searched, each time half as many again or a third more.
_LISTS: Final = tuple(sorted({base << power for base in (4, 6) for power in range(12)}))
# More lists than so many times the fewest that do are not tried: what their candidates save they cost.
_MORE_LISTS: Final = 3
# How many candidates are taken for each hit at most: first fewer, which mostly do.
_WIDTHS: Final = (4, 10, 40)
# How many queries are timed, at least and one in how many, and how often each: what else the machine does
# only ever takes longer. Few would find all that they touch in the processor's cache.
_TIMED: Final = 8
_TIMED_ONE_OF: Final = 20
_ROUNDS: Final = 3
# Nanoseconds of all of them from which on once is enough.
_LONG: Final = 1e9
_GATHERED: Final = 1000
_ONE_OF: Final = 20
_SEED: Final = 0
# The row that a query is near which was made of none.
_NONE: Final = -2


@dataclass(frozen=True)
class _Tried:
    """Queries (Q, D) near rows of one kind.

    Attributes:
        own: The row (Q,) that each is near, which is not to be counted.
        truth: The rows (Q, T) that are nearest, best first.
    """

    queries: Vectors
    own: Rows
    truth: Rows

    @classmethod
    def of(
        cls,
        rows: StoredRows,
        queries: Vectors,
        own: Rows,
        depth: int,
        alive: Mask,
        guard: Guard,
        threads: int | None = None,
    ) -> "_Tried":
        """Find what is nearest to queries (Q, D), down to a depth.

        Queries that have equal rows on both sides of it are left out, unless all have: any of these would do.
        """
        truth = rows.nearest_many(queries, depth + 1, alive, guard, threads)
        with guard():
            last = rows.get(truth[:, -2:].ravel()).reshape(len(queries), 2, -1)
        products = np.vecdot(last, queries[:, None])
        clear = products[:, 0] != products[:, 1]
        return cls(queries[clear], own[clear], truth[clear]) if clear.any() else cls(queries, own, truth)

    def places(self, search: Callable[[Vectors, Probe], Rows], probe: Probe) -> Rows:
        """Return where true neighbours (Q, T) down to the probe's depth stand; see `places_of`."""
        truth = self.truth[:, : probe.depth + 1]
        return places_of(np.where(truth == self.own[:, None], -1, truth), search(self.queries, probe))


class _Searches:
    """What is found for queries of some kinds, each search of the finder done once."""

    def __init__(self, finder: Finder, tried: Sequence[_Tried]) -> None:
        self._finder = finder
        self._tried = tried
        self._deepest = tried[0].truth.shape[1] - 1
        self._found: dict[tuple[int, int], list[Rows]] = {}

    def sure(self, lists: int, depth: int, hard: float, *, many_hard: bool) -> Probe | None:
        """Return the search of so many lists that finds the hits down to a depth, if there is one."""
        widths = [min(len(self._finder), factor * depth) for factor in _WIDTHS]
        tries = (
            enough_candidates(self._places(lists, most, depth), depth, most, hard, many_hard=many_hard)
            for most in widths
        )
        first = next((one for one in tries if one is not None), None)
        if first is None:
            return None
        counts = steps(first.candidates, widths[-1])
        judged = (judge(self._places(lists, one, depth), one, many_hard=many_hard) for one in counts)
        enough = next((one for one in judged if one.sure), None)
        if enough is None:
            return None
        count = with_spare(enough.candidates, widths[-1])
        found = judge(self._places(lists, count, depth), count, many_hard=many_hard)
        return Probe(depth, lists, count, found.recall, 0, found.usual)

    def _places(self, lists: int, candidates: int, depth: int) -> list[Rows]:
        """Return where the neighbours (Q, T) down to a depth stand for queries of each kind."""
        if self._finder.nested:
            candidates = next(
                factor * self._deepest for factor in _WIDTHS if factor * self._deepest >= candidates
            )
        if (lists, candidates) not in self._found:
            probe = Probe(self._deepest, lists, min(len(self._finder), candidates), 0, 0, Usual(0, 0))
            places = [kind.places(self._finder.search, probe) for kind in self._tried]
            self._found[lists, candidates] = places
        return [places[:, : depth + 1] for places in self._found[lists, candidates]]


def calibrate(
    finder: Finder,
    rows: StoredRows,
    alive: Mask,
    guard: Guard,
    newest: int,
    asked: Vectors | None = None,
) -> Planner:
    """Find the cheapest search for each depth, and measure what an exact scan costs.

    Args:
        finder: What has learnt all rows.
        rows: The vectors.
        alive: Which rows (N,) may be found.
        guard: Held whenever rows are read, and let go in between.
        newest: From this row on they may be of another kind: they must be found as surely as all together.
        asked: Queries (Q, D) like those to come, which may lie apart from all vectors; they count if many.
    """
    living = np.flatnonzero(alive)
    probes: list[Probe] = []
    came = living[living >= newest]
    kinds = [living, came] if len(came) >= _FEWEST else [living]
    with guard():
        tried = [queries_near(rows, kind, min(_DEPTHS[0][1], len(kind))) for kind in kinds]
    if asked is not None and len(asked) >= _FEWEST:
        tried.append((asked[: _DEPTHS[0][1]], np.full(len(asked[: _DEPTHS[0][1]]), _NONE)))
    for least, most, hard, depths in _DEPTHS:
        reached = [depth for depth in depths if 4 * depth <= len(living)]
        if not reached:
            break
        more = min(_COMPARED // len(living), len(living) // _TRIED_ONE_OF) if finder.nested else least
        count = min(max(least, more), most)
        searches = _Searches(
            finder,
            [
                _Tried.of(rows, queries[:count], own[:count], reached[-1], alive, guard)
                for queries, own in tried
            ],
        )
        for depth in reached:
            # What lies deeper lies in no fewer lists.
            fewest = probes[-1].lists if probes else 0
            for many_hard in (False, True):
                sure = partial(searches.sure, depth=depth, hard=hard, many_hard=many_hard)
                probe = _cheapest(finder, rows, tried[0][0][:count], sure, fewest, guard)
                if probe is not None:
                    probes.append(probe)
                    break
    return Planner(tuple(probes), *_scan_costs(rows, tried[0][0], guard))


def holds(
    search: Callable[[Vectors, Probe], Rows],
    planner: Planner,
    rows: StoredRows,
    alive: Mask,
    newest: int,
    guard: Guard,
) -> bool:
    """Tell whether a plan finds what is near the newest rows as well.

    Args:
        search: Of all rows.
        planner: Made when there were fewer.
        rows: The vectors.
        alive: Which rows (N,) may be found.
        newest: The first of the newest rows.
        guard: Held whenever rows are read, and let go in between.
    """
    living = np.flatnonzero(alive[newest:]) + newest
    deepest = min(_LATER_DEPTH, int(np.count_nonzero(alive)) // 4)
    probes = [probe for probe in planner.probes if probe.depth <= deepest][::_LATER_ONE_OF]
    if not len(living) or not probes:
        return True
    with guard():
        queries, own = queries_near(rows, living, min(_LATER_TRIED, len(living)))
    tried = _Tried.of(rows, queries, own, probes[-1].depth, alive, guard, threads=1)
    found = [recall_of(tried.places(search, probe), probe.candidates) for probe in probes]
    return float(np.mean(found)) >= _LATER_RECALL


def queries_near(rows: StoredRows, living: Rows, count: int, noise: float = NOISE) -> tuple[Vectors, Rows]:
    """Return queries (Q, D) near stored vectors, and the rows of these, which are not to be counted."""
    random = np.random.default_rng(_SEED)
    own, first, second = (random.choice(living, count) for _ in range(3))
    directions = unit(rows.get(first) - rows.get(second))
    return unit(rows.get(own) + np.float32(noise) * directions), own


def _cheapest(
    finder: Finder,
    rows: StoredRows,
    queries: Vectors,
    sure: Callable[[int], Probe | None],
    fewest: int,
    guard: Guard,
) -> Probe | None:
    """Return the search that is fastest with its exact ranking.

    Args:
        finder: What is searched.
        rows: The vectors.
        queries: By which it is timed (Q, D).
        sure: Gives the search of so many lists that finds the hits, if there is one.
        fewest: How many lists are searched at least.
        guard: Held whenever rows are read, and let go in between.
    """
    probes: list[Probe] = []
    for lists in [*(lists for lists in _LISTS if fewest <= lists < finder.lists), finder.lists]:
        if probes and lists > _MORE_LISTS * probes[0].lists:
            break
        probe = sure(lists)
        if probe is not None:
            probes.append(probe)
    if not probes:
        return None
    works = [partial(_rank, finder=finder, probe=probe, rows=rows) for probe in probes]
    ranked = _fastest(works, queries, guard)
    best = probes[int(np.argmin(ranked))]
    (cost,) = _fastest([partial(finder.search, probe=best)], queries, guard)
    return replace(best, cost=cost)


def _rank(query: Vectors, finder: Finder, probe: Probe, rows: StoredRows) -> None:
    candidates = finder.search(query, probe)[0]
    rows.best_of(query[0], probe.depth, candidates[candidates >= 0])


def _fastest(
    works: Sequence[Callable[[Vectors], object]],
    queries: Vectors,
    guard: Guard,
    clock: Callable[[], int] = time.thread_time_ns,
) -> list[float]:
    """Return the nanoseconds that each work takes for one of some queries (1, D), each at its quickest.

    The guard is let go after each: whoever writes would hold up all searches as long as it waits.
    """
    asked = [query[None] for query in queries[: max(_TIMED, len(queries) // _TIMED_ONE_OF)]]
    quickest = np.full((len(works), len(asked)), np.inf)
    # In turn: what the same query touched a moment ago is quicker than it will be, and at times all is slow.
    for _ in range(_ROUNDS):
        for times, work in zip(quickest, works, strict=True):
            for place, query in enumerate(asked):
                with guard():
                    started = clock()
                    work(query)
                    times[place] = min(times[place], clock() - started)
        if quickest.sum() > _LONG:
            break
    return [float(times.mean()) for times in quickest]


def _scan_costs(rows: StoredRows, queries: Vectors, guard: Guard) -> tuple[float, float, float]:
    """Return the nanoseconds of a row that is compared, of one that is passed over, and of a candidate."""
    everything, few = np.ones(len(rows), dtype=bool), np.zeros(len(rows), dtype=bool)
    few[::_ONE_OF] = True
    all_pass, few_pass = (Passing(None, mask, int(np.count_nonzero(mask))) for mask in (everything, few))
    some = np.random.default_rng(_SEED).choice(len(rows), min(_GATHERED, len(rows)), replace=False)
    # Several threads scan.
    wall = time.perf_counter_ns
    scans = [partial(_scan, rows=rows, passing=passing) for passing in (all_pass, few_pass)]
    scanned, picked = _fastest(scans, queries, guard, wall)
    (gathered,) = _fastest([lambda query: rows.nearest_of(query[0], 10, some)], queries, guard)
    compared = scanned / len(rows)
    passed = (picked - few_pass.count * compared) / (len(rows) - few_pass.count)
    return compared, max(0.0, passed), gathered / len(some)


def _scan(query: Vectors, rows: StoredRows, passing: Passing) -> None:
    rows.nearest(query[0], 10, passing)
