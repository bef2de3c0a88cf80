"""Contestants run one after the other, each step in a fresh process; what was built is kept."""

import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import index
from tests.benchmarks.search import contestants
from tests.benchmarks.search.measuring import UNFILTERED, Point
from tests.benchmarks.search.registry import CONTESTANTS
from tests.benchmarks.search.workload import Workload
from training.common.atomic import atomic_file, atomic_folder

_CHILD: Final = "tests.benchmarks.search.child"
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
_BUILT: Final = "built.json"


class FailedError(Exception):
    """A contestant's process ended with an error; its last words are the message."""


@dataclass(frozen=True, slots=True)
class Result:
    """Everything about one contestant.

    Attributes:
        setting: How it was set up.
        carries_payload: Whether its hits came with what is stored beside the vectors.
        build_seconds: From vectors in memory to files on disk.
        disk_bytes: What those take.
        start_seconds: From the start of a process to its first answer, with the files in the page cache.
        resident_bytes: Memory of that process after 200 searches, Python and mapped files included.
        curve: Recall and speed by effort.
        chosen: At the recall asked for, or at the most effort.
        cases: The same with filters or images as queries, by name.
        as_sure: At the recall of ours, where that is reached; see `Measured`.
    """

    setting: str
    carries_payload: bool
    build_seconds: float
    disk_bytes: int
    start_seconds: float
    resident_bytes: int
    curve: tuple[Point, ...]
    chosen: Point
    cases: dict[str, Point]
    as_sure: dict[str, Point]


def run(name: str, workload: Workload, threads: int, recall: float, ours: Result | None = None) -> Result:
    """Build a contestant unless that is done, then measure it.

    Args:
        name: The contestant.
        workload: What is searched, and for what.
        threads: On how many.
        recall: What it must reach.
        ours: What it is compared with, if that was measured: it is to reach its recall as well.

    Raises:
        FailedError: Its process failed.
    """
    kind = CONTESTANTS[name].load()
    files, build = built(name, workload, threads)
    reached = {} if ours is None else {case: point.recall for case, point in ours.cases.items()}
    if ours is not None:
        reached[UNFILTERED] = ours.chosen.recall
    found = _call("search", name, workload, files, threads, str(recall), json.dumps(reached))
    chosen = Point(**found["chosen"])
    start_seconds, resident = _start(name, workload, files, threads, chosen.effort)
    return Result(
        setting=kind.setting,
        carries_payload=kind.carries_payload,
        build_seconds=build["seconds"],
        disk_bytes=build["disk_bytes"],
        start_seconds=start_seconds,
        resident_bytes=resident,
        curve=tuple(Point(**point) for point in found["curve"]),
        chosen=chosen,
        cases={case: Point(**point) for case, point in found["cases"].items()},
        as_sure={case: Point(**point) for case, point in found["as_sure"].items()},
    )


def beside_writes(name: str, workload: Workload, threads: int, recall: float) -> dict[str, Any]:
    """Build a contestant unless that is done, then search a copy of it while it is written to.

    Raises:
        FailedError: Its process failed.
    """
    files, _ = built(name, workload, threads)
    with tempfile.TemporaryDirectory(dir=workload.folder.parent) as copy:
        shutil.copytree(files, copy, dirs_exist_ok=True)
        return _call("write", name, workload, Path(copy), threads, str(recall))


def scan(workload: Workload, threads: int) -> dict[str, float]:
    """Measure the exact scan and the memory's bandwidth; see `ScanSpeed`.

    Raises:
        FailedError: Its process failed.
    """
    return _call("scan", "recoquest view", workload, workload.folder, threads)


def built(name: str, workload: Workload, threads: int) -> tuple[Path, dict[str, Any]]:
    """Return the files of a contestant, built if they are not there, and what was measured of that.

    Raises:
        FailedError: Its process failed.
    """
    builds = workload.folder.parent / f"{workload.folder.name}-builds"
    home = builds / _build_name(name, CONTESTANTS[name].load().package)
    if not home.exists():
        with atomic_folder(home) as part:
            files = part / "files"
            files.mkdir()
            answer = _call("build", name, workload, files, threads)
            with atomic_file(part / _BUILT) as file:
                file.write(json.dumps(answer).encode())
    return home / "files", json.loads((home / _BUILT).read_text())


def _build_name(name: str, package: str) -> str:
    """Name a build so that another version or another setting has another name."""
    folder = Path(contestants.__path__[0])
    sources = [folder / "contestant.py", folder / f"{CONTESTANTS[name].module}.py"]
    if package == "recoquest":
        sources += sorted(Path(index.__path__[0]).rglob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources))
    version = importlib.metadata.version(package)
    return f"{name.replace(' ', '-')}-{version}-{digest.hexdigest()[:12]}"


def _start(name: str, workload: Workload, files: Path, threads: int, effort: int) -> tuple[float, int]:
    """Return the seconds to the first answer, of three processes the shortest, and the memory held."""
    seconds, resident = [], 0
    for _ in range(3):
        started = time.perf_counter()
        with _process("start", name, workload, files, threads, str(effort)) as process:
            first = process.stdout.readline() if process.stdout else ""
            seconds.append(time.perf_counter() - started)
            rest, errors = process.communicate()
        if process.returncode or not first:
            raise FailedError(_last_words(errors))
        resident = int(json.loads(rest.splitlines()[-1])["resident_bytes"])
    return min(seconds), resident


def _call(
    action: str, name: str, workload: Workload, files: Path, threads: int, *values: str
) -> dict[str, Any]:
    with _process(action, name, workload, files, threads, *values) as process:
        output, errors = process.communicate()
    if process.returncode:
        raise FailedError(_last_words(errors))
    answer: dict[str, Any] = json.loads(output.splitlines()[-1])
    return answer


@contextmanager
def _process(
    action: str, name: str, workload: Workload, files: Path, threads: int, *values: str
) -> Iterator[subprocess.Popen[str]]:
    """Run a child, which ends at the latest with the block, or with this process."""
    parent = str(os.getpid())
    arguments: Sequence[str] = (parent, action, name, str(workload.folder), str(files), str(threads), *values)
    with subprocess.Popen(
        [sys.executable, "-m", _CHILD, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | dict.fromkeys(_THREADS, str(threads)),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _last_words(errors: str) -> str:
    lines = errors.strip().splitlines()
    return lines[-1] if lines else "it ended without a word"
