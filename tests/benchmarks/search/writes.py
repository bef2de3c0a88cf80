"""Searches with a filter while vectors are written: the whole engine beside Qdrant Edge.

Run `python -m tests.benchmarks.search.writes`. One thread searches with fifty filters in turn, and each
second writes a vector that passes the next; the first search after that looks for it.
"""

import argparse
import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import typer

from tests.benchmarks.search.contestants.contestant import Contestant
from tests.benchmarks.search.made_vectors import Vectors
from tests.benchmarks.search.measuring import CaseSearches
from tests.benchmarks.search.registry import CONTESTANTS
from tests.benchmarks.search.workload import FIELDS, Case, Condition, K, Workload, prepare

_CASES: Final = ("all", "50 %, any", "10 %, any", "10 %, far", "1 %, any", "1 %, both", "0.1 %, any")
_PERIOD: Final = 1.0
_SEARCHED_SECONDS: Final = 8.0

_Write = Callable[[int, Vectors, dict[str, int]], None]


@dataclass(frozen=True, slots=True)
class BesideWrites:
    """Searches of one case.

    Attributes:
        quiet: Queries a second where nothing is written.
        speed: Queries a second between writes, of the time that searches take.
        first: Median seconds of the first search after a write.
        slowest: The longest of those.
        writes: How many vectors were written.
        missed: How many of them that search did not find.
    """

    quiet: float
    speed: float
    first: float
    slowest: float
    writes: int
    missed: int


def measure_beside_writes(
    name: str, contestant: Contestant, workload: Workload, recall: float
) -> dict[str, BesideWrites]:
    """Search an opened contestant with each filter, and write a vector each half second."""
    write, keys = _WRITERS[name](contestant), itertools.count(len(workload.vectors))
    return {
        case.name: _beside_writes(contestant, workload, case, recall, write, keys)
        for case in workload.cases()
        if case.name in _CASES
    }


def _beside_writes(
    contestant: Contestant,
    workload: Workload,
    case: Case,
    recall: float,
    write: _Write,
    keys: Iterator[int],
) -> BesideWrites:
    quiet = CaseSearches(contestant, workload, case).at(recall)
    filters = [contestant.prepare(workload, condition) for condition in case.conditions] or [None]
    queries, missed = itertools.cycle(workload.fresh), 0
    spent: list[float] = []
    firsts: list[float] = []
    due = time.perf_counter() + _PERIOD
    for place in itertools.count():
        if sum(spent) > _SEARCHED_SECONDS:
            break
        query, turn = next(queries), place % len(filters)
        written = time.perf_counter() >= due
        if written:
            key = next(keys)
            write(key, query, _passing(case.conditions[turn] if case.conditions else Condition(())))
            due = time.perf_counter() + _PERIOD
        started = time.perf_counter()
        found = contestant.search(query, K, quiet.effort, filters[turn])
        spent.append(time.perf_counter() - started)
        if written:
            firsts.append(spent[-1])
            missed += key not in found
    speed = len(spent) / sum(spent)
    return BesideWrites(quiet.single, speed, statistics.median(firsts), max(firsts), len(firsts), missed)


def _passing(condition: Condition) -> dict[str, int]:
    """Return fields that pass."""
    fields: dict[str, int] = dict.fromkeys(FIELDS, 0)
    return fields | {part.field: part.low for part in condition.ranges}


def _ours(contestant: Any) -> _Write:
    from index.catalogue.collections import require_active
    from tests.benchmarks.search.contestants.our_engine import COLLECTION
    from tests.index.samples import put_vectors
    from training.common.manifest import Record

    engine = contestant._engine
    with engine.home.catalogue.read() as session:
        generation, _ = require_active(session, COLLECTION)

    def write(key: int, vector: Vectors, fields: dict[str, int]) -> None:
        record = Record(id=str(key), image=f"{key}.png", split="test", metadata=fields)
        put_vectors(engine, generation, [record], vector[None])

    return write


def _qdrant(contestant: Any) -> _Write:
    import qdrant_edge as qdrant

    def write(key: int, vector: Vectors, fields: dict[str, int]) -> None:
        point = qdrant.Point(key, vector.tolist(), {"id": f"image-{key}"} | fields)
        contestant._shard.update(qdrant.UpdateOperation.upsert_points([point]))

    return write


_WRITERS: Final[Mapping[str, Callable[[Contestant], _Write]]] = {"recoquest": _ours, "qdrant-edge": _qdrant}


def main() -> int:
    """Measure both, and print what they did; status 1 when one failed."""
    from tests.benchmarks.search.runs import FailedError, beside_writes

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=100_000, help="made vectors (default: 100,000)")
    parser.add_argument("--dim", type=int, default=512, help="numbers in a made vector (default: 512)")
    parser.add_argument("--cache", type=Path, default=Path(".bench"), help="as for make bench-search")
    arguments = parser.parse_args()
    workload = prepare(arguments.cache, arguments.count, arguments.dim)
    found: dict[str, dict[str, BesideWrites]] = {}
    for name in _WRITERS:
        if not CONTESTANTS[name].installed:
            typer.echo(f"{name} is left out: it is not installed", err=True)
            continue
        try:
            answer = beside_writes(name, workload, len(os.sched_getaffinity(0)), 0.99)
        except FailedError as error:
            typer.echo(f"{name} failed: {error}", err=True)
            return 1
        found[name] = {case: BesideWrites(**values) for case, values in answer.items()}
    _print(found)
    return 0


def _print(found: Mapping[str, Mapping[str, BesideWrites]]) -> None:
    columns = ("quiet, q/s", "beside writes, q/s", "first after a write, ms: median, longest", "missed")
    typer.echo(f"|  |  | {' | '.join(columns)} |\n|---|---|---:|---:|---:|---:|")
    for case in _CASES:
        for name, cases in found.items():
            one = cases[case]
            times = f"{1e3 * one.first:.1f}, {1e3 * one.slowest:.1f}"
            speeds = f"{one.quiet:,.0f} | {one.speed:,.0f}"
            typer.echo(f"| {case} | {name} | {speeds} | {times} | {one.missed} of {one.writes} |")
    if len(found) == len(_WRITERS):
        ours, theirs = found.values()
        ratios = ", ".join(f"{case}: {ours[case].speed / theirs[case].speed:.2f}" for case in _CASES)
        typer.echo(f"\nHow many times faster ours is beside writes: {ratios}")


def as_json(found: Mapping[str, BesideWrites]) -> dict[str, dict[str, Any]]:
    """Return plain dictionaries."""
    return {case: asdict(one) for case, one in found.items()}


if __name__ == "__main__":
    sys.exit(main())
