"""Measures after a build how deep must be searched for the promised recall, and what that costs."""

import itertools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from index.planner import Planner, Probe, Usual
from index.vectors.codec import unit
from index.vectors.finder import Finder
from index.vectors.passing import Passing
from index.vectors.positions import Mask, Rows
from index.vectors.protocol import Vectors
from index.vectors.stored import Guard, StoredRows

# What is promised is 0.99; queries of another kind than those that are tried here are a little harder.
RECALL: Final = 0.997
# What is near rows that come later must be found with this recall, the mean of that down to some depths. The
# queries are few: held to as much as at the build, rows of the same kind would often seem to fail; held to no
# more than is promised, a kind that grows denser would be found a little less surely each time.
_LATER_RECALL: Final = 0.993
_LATER_TRIED: Final = 100
_LATER_DEPTH: Final = 160
_LATER_ONE_OF: Final = 3
# Fewer rows are no kind of their own.
_FEWEST: Final = 64
# A query encoder does not say quite what the other encoder says.
NOISE: Final = 0.45
# How many queries are tried, and for which depths. A page of ten looks for an eleventh hit.
_DEPTHS: Final = (
    (200, (10, 11, 14, 17, 21, 27, 33, 41)),
    (60, (80, 160, 320, 640)),
    (20, (1250, 2500, 5000, 10_000)),
)
# How many lists are searched, each time half as many again or a third more.
_LISTS: Final = tuple(sorted({base << power for base in (4, 6) for power in range(12)}))
# How many candidates are taken for each hit.
FACTORS: Final = (2, 3, 4, 5, 6, 8, 11, 16, 24, 40)
# How many queries are timed, and how often each: what else the machine does only ever takes longer.
_TIMED: Final = 8
_ROUNDS: Final = 3
# Nanoseconds of all of them from which on once is enough.
_LONG: Final = 1e9
_GATHERED: Final = 1000
# So large a share of the hits may be among the last half of the candidates: with more, too many queries would
# seem to need a deeper search.
_LATE: Final = 0.01
# The share of queries whose hits lie no farther back among the candidates than is usual.
_USUALLY: Final = 0.9
_ONE_OF: Final = 20
_SEED: Final = 0


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

    def recall(self, search: Callable[[Vectors, Probe], Rows], probe: Probe) -> float:
        """Return the share of true neighbours down to the probe's depth that a search finds."""
        return recall_of(self.places(search, probe), probe.candidates)


def calibrate(finder: Finder, rows: StoredRows, alive: Mask, guard: Guard, newest: int) -> Planner:
    """Find the cheapest search for each depth, and measure what an exact scan costs.

    Args:
        finder: What has learnt all rows.
        rows: The vectors.
        alive: Which rows (N,) may be found.
        guard: Held whenever rows are read, and let go in between.
        newest: From this row on they may be of another kind: they must be found as surely as all together.
    """
    living = np.flatnonzero(alive)
    probes: list[Probe] = []
    came = living[living >= newest]
    kinds = [living, came] if len(came) >= _FEWEST else [living]
    with guard():
        asked = [queries_near(rows, kind, min(_DEPTHS[0][0], len(kind))) for kind in kinds]
    for count, depths in _DEPTHS:
        reached = [depth for depth in depths if 4 * depth <= len(living)]
        if not reached:
            break
        tried = [
            _Tried.of(rows, queries[:count], own[:count], reached[-1], alive, guard) for queries, own in asked
        ]
        for depth in reached:
            # What lies deeper lies in no fewer lists.
            fewest = probes[-1].lists if probes else 0
            probe = _cheapest(finder, rows, tried, depth, fewest, guard)
            if probe is not None:
                probes.append(probe)
    with guard():
        costs = _scan_costs(rows, asked[0][0])
    return Planner(tuple(probes), *costs)


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
    return float(np.mean([tried.recall(search, probe) for probe in probes])) >= _LATER_RECALL


def places_of(rows: Rows, found: Rows) -> Rows:
    """Return where rows (Q, T) stand among those found (Q, C): far behind if they do not, -1 for no row."""
    places = np.full(rows.shape, np.iinfo(np.int64).max)
    for place, wanted, named in zip(places, rows, found, strict=True):
        order = np.argsort(named)
        at = order[np.minimum(np.searchsorted(named, wanted, sorter=order), len(named) - 1)]
        there = named[at] == wanted
        place[there] = at[there]
        place[wanted < 0] = -1
    return places


def recall_of(places: Rows, candidates: int) -> float:
    """Return the share of true neighbours that stand among the first candidates; see `places_of`."""
    there = places >= 0
    return float(np.count_nonzero(there & (places < candidates)) / np.count_nonzero(there))


def usual_of(kinds: Sequence[Rows], candidates: int) -> Usual:
    """Return where true neighbours usually stand among the first candidates; see `places_of`.

    Args:
        kinds: The places (Q, T) for queries of some kinds; what is usual for one of them is.
        candidates: How many there are.
    """
    late, far = [], []
    for places in kinds:
        there = (places >= 0) & (places < candidates)
        late.append(np.count_nonzero(there & (places >= candidates // 2)) / len(places))
        means = np.where(there, places, 0).sum(axis=1) / np.maximum(there.sum(axis=1), 1)
        far.append(np.quantile(means, _USUALLY) / candidates)
    return Usual(float(max(late)), float(max(far)))


def queries_near(rows: StoredRows, living: Rows, count: int, noise: float = NOISE) -> tuple[Vectors, Rows]:
    """Return queries (Q, D) near stored vectors, and the rows of these, which are not to be counted."""
    random = np.random.default_rng(_SEED)
    own, first, second = (random.choice(living, count) for _ in range(3))
    directions = unit(rows.get(first) - rows.get(second))
    return unit(rows.get(own) + np.float32(noise) * directions), own


def _cheapest(
    finder: Finder, rows: StoredRows, tried: Sequence[_Tried], depth: int, fewest: int, guard: Guard
) -> Probe | None:
    """Return the search of some lists for hits down to a depth that is fastest with its exact ranking."""
    queries = tried[0].queries
    most = min(len(finder), FACTORS[-1] * depth)
    best: Probe | None = None
    least = np.inf
    for lists in [*(lists for lists in _LISTS if fewest <= lists < finder.lists), finder.lists]:
        for candidates in [factor * depth for factor in FACTORS if factor * depth <= most] or [most]:
            probe = Probe(depth, lists, candidates, 0, 0, Usual(0, 0))
            places = [kind.places(finder.search, probe) for kind in tried]
            recall = min(recall_of(kind, candidates) for kind in places)
            usual = usual_of(places, candidates)
            if recall < RECALL or usual.late > _LATE * depth:
                continue
            search = partial(finder.search, probe=probe)
            probe = replace(probe, recall=recall, cost=_fastest(search, queries), usual=usual)
            with guard():
                ranked = _fastest(partial(_rank, search=search, rows=rows, depth=depth), queries)
            if ranked < least:
                best, least = probe, ranked
            break
        # More lists cost more: once two steps were worse, so is every further one.
        if best is not None and best.lists * 2 <= lists:
            break
    return best


def _rank(query: Vectors, search: Callable[[Vectors], Rows], rows: StoredRows, depth: int) -> None:
    candidates = search(query)[0]
    rows.best_of(query[0], depth, candidates[candidates >= 0])


def _fastest(
    work: Callable[[Vectors], object],
    queries: Iterable[Vectors],
    clock: Callable[[], int] = time.thread_time_ns,
) -> float:
    """Return the nanoseconds that some work takes for one of a few queries (1, D), each at its quickest."""
    asked = [query[None] for query in itertools.islice(queries, _TIMED)]
    quickest = [math.inf] * len(asked)
    # In turn: what the same query touched a moment ago is quicker than it will be.
    for _ in range(_ROUNDS):
        for place, query in enumerate(asked):
            started = clock()
            work(query)
            quickest[place] = min(quickest[place], clock() - started)
        if sum(quickest) > _LONG:
            break
    return float(np.mean(quickest))


def _scan_costs(rows: StoredRows, queries: Vectors) -> tuple[float, float, float]:
    """Return the nanoseconds of a row that is compared, of one that is passed over, and of a candidate."""
    everything, few = np.ones(len(rows), dtype=bool), np.zeros(len(rows), dtype=bool)
    few[::_ONE_OF] = True
    all_pass, few_pass = (Passing(None, mask, int(np.count_nonzero(mask))) for mask in (everything, few))
    some = np.random.default_rng(_SEED).choice(len(rows), min(_GATHERED, len(rows)), replace=False)
    # Several threads scan.
    wall = time.perf_counter_ns
    compared = _fastest(lambda query: rows.nearest(query[0], 10, all_pass), queries, wall) / len(rows)
    picked = _fastest(lambda query: rows.nearest(query[0], 10, few_pass), queries, wall)
    gathered = _fastest(lambda query: rows.nearest_of(query[0], 10, some), queries) / len(some)
    passed = (picked - few_pass.count * compared) / (len(rows) - few_pass.count)
    return compared, max(0.0, passed), gathered
