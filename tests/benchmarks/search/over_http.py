"""Searches over HTTP, as a caller meets them: filters never used before, and writes beside.

Run `python -m tests.benchmarks.search.over_http`. It serves the home folder that the benchmark of contestants
builds, and searches it by query vectors, so that no encoder is in the figures. One client waits for each
answer; then eight do; then one does while another process writes an image each second.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import numpy as np
import typer

from tests.benchmarks.search.contestants.our_engine import COLLECTION
from tests.benchmarks.search.made_vectors import Vectors
from tests.benchmarks.search.runs import built
from tests.benchmarks.search.workload import FILTERS, Case, K, Workload, prepare
from tests.benchmarks.service import serving
from training.common.atomic import atomic_file

_CASES: Final = (
    "all",
    *(f"{share} %, {kind}" for share in ("50", "10", "1", "0.1") for kind in ("any", "both")),
)
_SEARCHES: Final = 400
# A slow case makes fewer searches, but each filter is used twice.
_CASE_SECONDS: Final = 12.0
_MIN_SEARCHES: Final = 2 * FILTERS
_CLIENTS: Final = 8
_WARMING: Final = 20


@dataclass(frozen=True, slots=True)
class OverHttp:
    """Milliseconds of the searches of one case, and their rate.

    Attributes:
        first: Median of the first search with each filter; without filters, the first search of all.
        p50: Median of the later ones.
        p99: 99th percentile of the later ones.
        longest: The slowest of all.
        rate: Searches a second of eight clients.
        written_p50: Median while another process writes an image each second.
        written_p99: 99th percentile of those.
        written_longest: The slowest of those.
    """

    first: float
    p50: float
    p99: float
    longest: float
    rate: float
    written_p50: float
    written_p99: float
    written_longest: float


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=100_000, help="made vectors (default: 100,000)")
    parser.add_argument("--dim", type=int, default=512, help="numbers in a made vector (default: 512)")
    parser.add_argument("--cache", type=Path, default=Path(".bench"), help="as for make bench-search")
    arguments = parser.parse_args()
    workload = prepare(arguments.cache, arguments.count, arguments.dim)
    files, _ = built("recoquest", workload, 2)
    with tempfile.TemporaryDirectory(dir=arguments.cache) as folder:
        home = Path(folder) / "home"
        shutil.copytree(files, home)
        with serving(home) as port:
            found = _measure(port, home, workload)
    rows = {case: asdict(one) for case, one in found.items()}
    with atomic_file(arguments.cache / f"{workload.folder.name}-http.json") as file:
        file.write(json.dumps(rows, indent=1).encode())
    _print(found)
    return 0


def _measure(port: int, home: Path, workload: Workload) -> dict[str, OverHttp]:
    cases = {case.name: case for case in workload.cases() if case.name in _CASES}
    fresh = cycle(workload.fresh)
    quiet: dict[str, tuple[list[float], float]] = {}
    for name in _CASES:
        times = _times(port, _bodies(cases[name], fresh, _SEARCHES))
        quiet[name] = times, _rate(port, _bodies(cases[name], fresh, 2 * _SEARCHES))
    found = {}
    with _writer(home):
        for name in _CASES:
            beside = _times(port, _bodies(cases[name], fresh, 4 * _SEARCHES))
            times, rate = quiet[name]
            filters = max(1, len(cases[name].conditions))
            found[name] = OverHttp(
                float(np.median(times[:filters])),
                *_percentiles(times[max(filters, _WARMING) :]),
                max(times),
                rate,
                *_percentiles(beside),
                max(beside),
            )
    return found


def _percentiles(times: list[float]) -> tuple[float, float]:
    return float(np.percentile(times, 50)), float(np.percentile(times, 99))


def _bodies(case: Case, fresh: Iterator[Vectors], count: int) -> list[bytes]:
    """Return bodies of searches that were not made before."""
    bodies = []
    for place in range(count):
        query: dict[str, Any] = {"like": [{"vector": next(fresh).tolist()}], "limit": K}
        if case.conditions:
            query["filter"] = case.conditions[place % len(case.conditions)].as_filter
        bodies.append(json.dumps(query).encode())
    return bodies


def _times(port: int, bodies: list[bytes], fewest: int = _MIN_SEARCHES) -> list[float]:
    """Return the milliseconds of searches one after the other, as long as there is time."""
    times: list[float] = []
    ended = time.perf_counter() + _CASE_SECONDS
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        for body in bodies:
            if len(times) >= fewest and time.perf_counter() > ended:
                break
            times.append(_search(connection, body))
    return times


def _search(connection: HTTPConnection, body: bytes) -> float:
    """Return the milliseconds of one search."""
    started = time.perf_counter()
    connection.request(
        "POST", f"/v1/collections/{COLLECTION}/search", body, {"Content-Type": "application/json"}
    )
    answer = connection.getresponse()
    content = answer.read()
    took = (time.perf_counter() - started) * 1000
    if answer.status != HTTPStatus.OK:
        raise RuntimeError(content.decode())
    return took


def _rate(port: int, bodies: list[bytes]) -> float:
    """Return the searches a second of several clients."""
    started = time.perf_counter()
    with ThreadPoolExecutor(_CLIENTS) as pool:
        shares = [bodies[place::_CLIENTS] for place in range(_CLIENTS)]
        done = sum(len(times) for times in pool.map(partial(_times, port, fewest=1), shares))
    return done / (time.perf_counter() - started)


@contextmanager
def _writer(home: Path) -> Iterator[None]:
    """Write an image each second from another process, as a job does."""
    command = [sys.executable, "-m", "tests.benchmarks.search.writer", str(home)]
    with subprocess.Popen(command) as writer:
        try:
            time.sleep(5)
            yield
            if writer.poll() is not None:
                raise RuntimeError("the process that writes has ended")
        finally:
            writer.send_signal(signal.SIGTERM)


def _print(found: dict[str, OverHttp]) -> None:
    columns = ("first", "p50", "p99", "longest", "eight clients, q/s", "beside writes: p50", "p99", "longest")
    typer.echo(f"| milliseconds | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
    for name, one in found.items():
        typer.echo(f"| {name} | {' | '.join(f'{value:,.1f}' for value in asdict(one).values())} |")


if __name__ == "__main__":
    sys.exit(main())
