"""One contestant in a process of its own; prints what it found as a line of JSON.

Its arguments are the process that it ends with, an action, the contestant's name, the workload's folder, the
folder of its files, the number of threads, and for `search` and `write` the recall to reach, for `start` the
effort; for `search` also what another reached.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
import typer

from tests.benchmarks.search.registry import CONTESTANTS
from training.common.host import end_with_parent

_SEARCHES: Final = 200
_K: Final = 10


def main() -> None:
    """Do what the arguments say."""
    parent, action, name, workload, files, threads, *value = sys.argv[1:]
    end_with_parent(int(parent))
    _ACTIONS[action](name, Path(workload), Path(files), int(threads), *value)


def build(name: str, workload: Path, files: Path, threads: int) -> None:
    """Build a contestant into a folder."""
    from tests.benchmarks.search.workload import Workload

    contestant = CONTESTANTS[name].load()(threads)
    opened = Workload(workload)
    started = time.perf_counter()
    contestant.build(opened, files)
    seconds = time.perf_counter() - started
    disk_bytes = sum(path.stat().st_blocks * 512 for path in files.rglob("*"))
    _answer({"seconds": seconds, "disk_bytes": disk_bytes})


def start(name: str, workload: Path, files: Path, threads: int, effort: str) -> None:
    """Answer one query as soon as possible, then some more, and say how much memory is held."""
    contestant = CONTESTANTS[name].load()(threads)
    contestant.open(files)
    queries = np.load(workload / "text-queries.npy", mmap_mode="r")
    found = contestant.search(queries[0], _K, int(effort))
    _answer({"hits": len(found)})
    from tests.benchmarks.search.measuring import resident_bytes

    for query in queries[:_SEARCHES]:
        contestant.search(query, _K, int(effort))
    _answer({"resident_bytes": resident_bytes()})


def search(name: str, workload: Path, files: Path, threads: int, recall: str, other: str) -> None:
    """Measure recall and speed, with and without filters."""
    from tests.benchmarks.search.measuring import as_json, measure
    from tests.benchmarks.search.workload import Workload

    contestant = CONTESTANTS[name].load()(threads)
    contestant.open(files)
    contestant.finalise()
    _answer(as_json(measure(contestant, Workload(workload), float(recall), json.loads(other))))


def write(name: str, workload: Path, files: Path, threads: int, recall: str) -> None:
    """Measure searches beside writes."""
    from tests.benchmarks.search.workload import Workload
    from tests.benchmarks.search.writes import as_json, measure_beside_writes

    contestant = CONTESTANTS[name].load()(threads)
    contestant.open(files)
    _answer(as_json(measure_beside_writes(name, contestant, Workload(workload), float(recall))))


def scan(_name: str, workload: Path, _files: Path, threads: int) -> None:
    """Measure the exact scan against the memory's bandwidth."""
    from tests.benchmarks.search.bandwidth import measure_scan
    from tests.benchmarks.search.workload import Workload

    _answer(asdict(measure_scan(Workload(workload), threads)))


def _answer(value: Mapping[str, Any]) -> None:
    typer.echo(json.dumps(value))
    sys.stdout.flush()


_ACTIONS: Final[Mapping[str, Callable[..., None]]] = {
    "build": build,
    "start": start,
    "search": search,
    "write": write,
    "scan": scan,
}

if __name__ == "__main__":
    main()
