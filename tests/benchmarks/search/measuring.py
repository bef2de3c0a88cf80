"""Recall and speed of one contestant, in the process that runs it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.search.brute_force import Keys
from tests.benchmarks.search.contestants.contestant import Contestant, Found
from tests.benchmarks.search.made_vectors import Vectors
from tests.benchmarks.search.workload import FilteredQueries, K, Workload

# Speeds are the best of so many rounds: what else runs on the machine only ever slows one down.
_ROUNDS: Final = 3
_ROUND_SECONDS: Final = 0.7
# Points of the curve, and searches with one of many filters, get less.
_SHORT_SECONDS: Final = 0.25
# A recall of a slow search is taken from the queries that fit into this time.
_RECALL_SECONDS: Final = 0.8
# Before it is measured, a filter is used so long, and so long for each vector that passes.
_WARMED_SECONDS: Final = 3.0
_WARMED_SECONDS_A_VECTOR: Final = 60e-6
_CHUNK: Final = 25
_FEWEST: Final = 5
_HARDLY: Final = 0.001
# How far the curve goes on behind the recall that is asked for.
_BEYOND: Final = 2
# What searches without a filter are called.
UNFILTERED: Final = ""


@dataclass(frozen=True, slots=True)
class Point:
    """Searches at one effort: recall@10, queries a second one at a time and in batches, hits a query."""

    effort: int
    recall: float
    single: float
    batch: float
    hits: float


@dataclass(frozen=True, slots=True)
class Measured:
    """All that is measured of a contestant's searches; what is below the recall asked for is its best.

    Attributes:
        curve: By effort.
        chosen: At the recall asked for.
        filtered: The same with each filter, by name; none where the recall is not reached without.
        as_sure: At another's recall, where that is reached, by the names of filters and `UNFILTERED`.
    """

    curve: tuple[Point, ...]
    chosen: Point
    filtered: dict[str, Point]
    as_sure: dict[str, Point]


def measure(
    contestant: Contestant, workload: Workload, recall: float, other: Mapping[str, float]
) -> Measured:
    """Raise the effort until the recall is enough, without filters and then with each.

    Args:
        contestant: Who searches.
        workload: For what.
        recall: How much is enough.
        other: What another contestant reached, by the names of filters and `UNFILTERED`.
    """
    curve: list[Point] = []
    most = max(recall, other.get(UNFILTERED, 0))
    for effort in contestant.efforts:
        curve.append(_point(contestant, workload.queries, workload.truth, effort))
        if sum(point.recall >= most for point in curve) > _BEYOND:
            break
    # What never finds enough is shown where more effort hardly finds more.
    reachable = recall if curve[-1].recall >= recall else max(point.recall for point in curve) - _HARDLY

    def at(enough: float) -> Point:
        point = next(point for point in curve if point.recall >= enough)
        return replace(
            point,
            single=_best(lambda: _single_speed(contestant, workload.queries, point.effort, _ROUND_SECONDS)),
            batch=_best(lambda: _batch_speed(contestant, workload.queries, point.effort)),
        )

    chosen = at(reachable)
    as_sure = {UNFILTERED: at(most)} if other and any(point.recall >= most for point in curve) else {}
    filtered: dict[str, Point] = {}
    # A filter does not let anybody find more.
    for case in workload.filtered() if chosen.recall >= recall else ():
        searches = Filtered(contestant, workload, case)
        point = filtered[case.name] = searches.at(recall)
        if case.name in other:
            if point.recall < other[case.name]:
                point = searches.at(other[case.name])
            if point.recall >= other[case.name]:
                as_sure[case.name] = point
    return Measured(tuple(curve), chosen, filtered, as_sure)


def as_json(measured: Measured) -> dict[str, Any]:
    """Return plain lists and dictionaries."""
    return asdict(measured)


def recall_at(found: Sequence[Sequence[int]], truth: Keys) -> float:
    """Return the share of true neighbours (Q, k) that were found."""
    hits = sum(len(set(ours) & set(true)) for ours, true in zip(found, truth.tolist(), strict=True))
    return hits / truth.size


def resident_bytes() -> int:
    """Return the memory of this process that lies in RAM, mapped files included."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not say how much memory a process holds")


class Filtered:
    """Searches with one filter, whose recall is measured once for each effort.

    Args:
        contestant: Who searches.
        workload: For what.
        case: With which filter.
    """

    def __init__(self, contestant: Contestant, workload: Workload, case: FilteredQueries) -> None:
        self._contestant = contestant
        self._case = case
        self._prepared = contestant.prepare(workload, case.condition)
        self._reached: dict[int, tuple[float, float, float]] = {}
        if contestant.warms:
            self._speed(
                contestant.efforts[0], _WARMED_SECONDS + _WARMED_SECONDS_A_VECTOR * case.condition.limit
            )

    def at(self, recall: float) -> Point:
        """Find the smallest effort of enough recall, taking it for granted that more effort finds more."""
        efforts = self._contestant.efforts
        low, high = 0, len(efforts) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._found(efforts[middle])[0] >= recall else (middle + 1, high)
        reached, hits, batch = self._found(efforts[low])
        single = _best(lambda: self._speed(efforts[low], _SHORT_SECONDS))
        return Point(efforts[low], reached, single, batch, hits)

    def _found(self, effort: int) -> tuple[float, float, float]:
        """Return what `_recall` does."""
        if effort not in self._reached:
            queries, truth = self._case.queries, self._case.truth
            self._reached[effort] = _recall(self._contestant, queries, truth, effort, self._prepared)
        return self._reached[effort]

    def _speed(self, effort: int, seconds: float) -> float:
        return _single_speed(self._contestant, self._case.queries, effort, seconds, self._prepared)


def _point(contestant: Contestant, queries: Vectors, truth: Keys, effort: int) -> Point:
    recall, hits, batch = _recall(contestant, queries, truth, effort)
    single = _single_speed(contestant, queries, effort, _SHORT_SECONDS)
    return Point(effort, recall, single, batch, hits)


def _recall(
    contestant: Contestant, queries: Vectors, truth: Keys, effort: int, filter: Any = None
) -> tuple[float, float, float]:
    """Return recall@10, hits a query, and queries a second in batches."""
    found: Found = []
    # The first search of a kind finds nothing cached.
    contestant.search(queries[0], K, effort, filter)
    started = time.perf_counter()
    contestant.search(queries[0], K, effort, filter)
    fitting = round(_RECALL_SECONDS / (time.perf_counter() - started))
    first = min(max(fitting, _FEWEST), _CHUNK)
    started = time.perf_counter()
    while len(found) < len(queries) and (not found or time.perf_counter() - started < _RECALL_SECONDS):
        # Twice as many each time: a fast engine gets a batch worth its while, a slow one can stop early.
        size = max(first, len(found))
        found += contestant.search_batch(queries[len(found) : len(found) + size], K, effort, filter)
    taken = time.perf_counter() - started
    recall = recall_at(found, truth[: len(found)])
    return recall, sum(map(len, found)) / len(found), len(found) / taken


def _best(speed: Callable[[], float]) -> float:
    return max(speed() for _ in range(_ROUNDS))


def _batch_speed(contestant: Contestant, queries: Vectors, effort: int) -> float:
    started = time.perf_counter()
    done = 0
    while time.perf_counter() - started < _ROUND_SECONDS:
        done += len(contestant.search_batch(queries, K, effort))
    return done / (time.perf_counter() - started)


def _single_speed(
    contestant: Contestant, queries: Vectors, effort: int, seconds: float, filter: Any = None
) -> float:
    asked = cycle(queries)
    done, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        contestant.search(next(asked), K, effort, filter)
        done += 1
    return done / (time.perf_counter() - started)
