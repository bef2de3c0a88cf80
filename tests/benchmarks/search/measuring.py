"""Recall and speed of one contestant, in the process that runs it; no timed search is made twice."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.benchmarks.search.brute_force import Keys
from tests.benchmarks.search.contestants.contestant import Contestant, Found
from tests.benchmarks.search.made_vectors import Vectors
from tests.benchmarks.search.workload import FILTERS, Case, K, Workload

# Speeds are the best of so many rounds: what else runs on the machine only ever slows one down.
_ROUNDS: Final = 3
_ROUND_QUERIES: Final = 1000
# A slow contestant makes fewer searches.
_ROUND_SECONDS: Final = 1.0
_CASE_SECONDS: Final = 6.0
_RECALL_SECONDS: Final = 0.8
_MIN_SEARCHES: Final = 5
_CHUNK: Final = 25
_BATCH: Final = 500
_HARDLY: Final = 0.001
# How far the curve continues behind the recall that is asked for.
_BEYOND: Final = 2
# The name of searches for texts without a filter.
UNFILTERED: Final = "all"


@dataclass(frozen=True, slots=True)
class Point:
    """Searches at one effort.

    Attributes:
        effort: The search parameter.
        recall: Mean recall@10.
        lowest: The lowest recall@10 of a single query.
        single: Queries a second one at a time; with filters, each of which has been used before.
        first: Queries a second one at a time, each with a filter that was never used before; 0 without.
        slowest: Seconds of the slowest one in a hundred, and of the slowest of all.
        batch: Queries a second in batches; 0 with filters.
        hits: Hits a query.
        queries: Whose recall it is.
    """

    effort: int
    recall: float
    lowest: float
    single: float
    first: float
    slowest: tuple[float, float]
    batch: float
    hits: float
    queries: int


@dataclass(frozen=True, slots=True)
class Measured:
    """All that is measured of a contestant's searches; what is below the recall asked for is its best.

    Attributes:
        curve: By effort.
        chosen: Texts without a filter, at the recall asked for.
        cases: All others at the recall asked for, by name; none where it is not reached without a filter.
        as_sure: At another's recall, where that is reached, by the names of cases.
    """

    curve: tuple[Point, ...]
    chosen: Point
    cases: dict[str, Point]
    as_sure: dict[str, Point]


def measure(
    contestant: Contestant, workload: Workload, recall: float, other: Mapping[str, float]
) -> Measured:
    """Raise the effort until the recall is enough, without filters and then in each case.

    Args:
        contestant: Who searches.
        workload: For what.
        recall: How much is enough.
        other: What another contestant reached, by the names of cases.
    """
    plain, *cases = workload.cases()
    fresh = iter(workload.fresh)
    searches = CaseSearches(contestant, workload, plain)
    curve: list[Point] = []
    most = max(recall, other.get(UNFILTERED, 0))
    for effort in contestant.efforts:
        point = searches.point(effort)
        curve.append(replace(point, batch=_batch_speed(contestant, cycle(plain.queries), effort)))
        if sum(point.recall >= most for point in curve) > _BEYOND:
            break
    # What never finds enough is shown where more effort hardly finds more.
    reachable = recall if curve[-1].recall >= recall else max(point.recall for point in curve) - _HARDLY

    def at(enough: float) -> Point:
        point = next(point for point in curve if point.recall >= enough)
        single = _best(lambda: _single_speed(contestant, fresh, point.effort))
        return replace(
            point, single=single, batch=_best(lambda: _batch_speed(contestant, fresh, point.effort))
        )

    chosen = at(reachable)
    as_sure = {UNFILTERED: at(most)} if other and any(point.recall >= most for point in curve) else {}
    found: dict[str, Point] = {}
    # A filter does not let anybody find more, and peers are compared by queries of texts.
    for case in cases if chosen.recall >= recall else ():
        if case.source == "image" and len(contestant.efforts) > 1:
            continue
        searches = CaseSearches(contestant, workload, case)
        point = found[case.name] = searches.at(recall)
        if case.name in other:
            if point.recall < other[case.name]:
                point = searches.at(other[case.name])
            if point.recall >= other[case.name]:
                as_sure[case.name] = point
    return Measured(tuple(curve), chosen, found, as_sure)


def as_json(measured: Measured) -> dict[str, Any]:
    """Return plain lists and dictionaries."""
    return asdict(measured)


def recalls(found: Sequence[Sequence[int]], truth: Keys) -> list[float]:
    """Return for each query the share of its true neighbours (Q, k) that were found."""
    pairs = zip(found, truth.tolist(), strict=True)
    return [len(set(ours) & set(true)) / len(true) for ours, true in pairs]


def resident_bytes() -> int:
    """Return the memory of this process that lies in RAM, mapped files included."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not say how much memory a process holds")


class CaseSearches:
    """The searches of one case.

    Args:
        contestant: Who searches.
        workload: For what.
        case: For which queries, with which filters.
    """

    def __init__(self, contestant: Contestant, workload: Workload, case: Case) -> None:
        self._contestant = contestant
        self._case = case
        self._filters = [contestant.prepare(workload, condition) for condition in case.conditions] or [None]
        self._recalls: dict[int, float] = {}

    def at(self, recall: float) -> Point:
        """Find the smallest effort of enough recall, taking it for granted that more effort finds more."""
        efforts = self._contestant.efforts
        low, high = 0, len(efforts) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._recall(efforts[middle]) >= recall else (middle + 1, high)
        return self.point(efforts[low])

    def point(self, effort: int) -> Point:
        """Search for each query, one at a time, as long as there is time."""
        found, times = self._search(effort, FILTERS + _MIN_SEARCHES, _CASE_SECONDS)
        own = recalls(found, self._case.truth[: len(found)])
        first, later = np.array(times), np.array(times)
        if self._case.conditions:
            first, later = first[:FILTERS], first[FILTERS:]
        return Point(
            effort=effort,
            recall=sum(own) / len(own),
            lowest=min(own),
            single=float(1 / later.mean()),
            first=float(1 / first.mean()) if self._case.conditions else 0.0,
            slowest=(float(np.percentile(times, 99)), max(times)),
            batch=0.0,
            hits=sum(map(len, found)) / len(found),
            queries=len(found),
        )

    def _recall(self, effort: int) -> float:
        if effort not in self._recalls:
            found, _ = self._search(effort, _MIN_SEARCHES, _RECALL_SECONDS)
            own = recalls(found, self._case.truth[: len(found)])
            self._recalls[effort] = sum(own) / len(own)
        return self._recalls[effort]

    def _search(self, effort: int, fewest: int, seconds: float) -> tuple[Found, list[float]]:
        """Return what was found for the first queries, and how long each took."""
        found: Found = []
        times: list[float] = []
        ended = time.perf_counter() + seconds
        for place, query in enumerate(self._case.queries):
            filter = self._filters[place % len(self._filters)]
            started = time.perf_counter()
            if started > ended and place >= fewest:
                break
            found.append(self._contestant.search(query, K, effort, filter, self._case.source))
            times.append(time.perf_counter() - started)
        return found, times


def _best(speed: Callable[[], float]) -> float:
    return max(speed() for _ in range(_ROUNDS))


def _single_speed(contestant: Contestant, fresh: Iterator[Vectors], effort: int) -> float:
    started = time.perf_counter()
    done = 0
    for query in islice(fresh, _ROUND_QUERIES):
        contestant.search(query, K, effort)
        done += 1
        if time.perf_counter() - started > _ROUND_SECONDS:
            break
    return done / (time.perf_counter() - started)


def _batch_speed(contestant: Contestant, fresh: Iterator[Vectors], effort: int) -> float:
    done, taken = 0, 0.0
    size = _CHUNK
    while done < _ROUND_QUERIES and taken < _ROUND_SECONDS:
        # The first batch tells whether the contestant is one of the slow.
        queries = np.stack(list(islice(fresh, size)))
        started = time.perf_counter()
        contestant.search_batch(queries, K, effort)
        seconds = time.perf_counter() - started
        if size == _BATCH or seconds * _BATCH / size > _ROUND_SECONDS:
            done, taken = done + size, taken + seconds
        else:
            size = _BATCH
    return done / taken
