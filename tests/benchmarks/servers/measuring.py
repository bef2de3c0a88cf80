"""One server in one case: what it finds, how fast it answers, and what that costs."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.benchmarks.search.made_vectors import Vectors
from tests.benchmarks.search.measuring import recalls
from tests.benchmarks.search.workload import FILTERS, FRESH, Case, Workload
from tests.benchmarks.servers import wrk
from tests.benchmarks.servers.callers import Job, Target, http_body
from tests.benchmarks.servers.peers import environment_of_peer
from tests.benchmarks.servers.report import MANY, Measured, Speed, speed_of
from tests.benchmarks.throughput.load import cpu_seconds, memory_bytes

# Of the peers' clients, which share the callers.
_PROCESSES: Final = 4
# So many queries are prepared for each second of a load, if there are as many.
_A_SECOND: Final = 1000
_GRACE_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Server:
    """One server, and how it is asked.

    Attributes:
        name: What the report calls it.
        target: What callers have to know.
        python: Has its client.
        process: Its own; none where the callers' process does the work.
    """

    name: str
    target: Target
    python: str = sys.executable
    process: int | None = None


class Measuring:
    """Measures servers one after the other.

    Args:
        workload: What they serve, and what they are asked for.
        seconds: Of each load.
        threads: Of an engine that works in the callers' process.
        folder: For files that callers read.
    """

    def __init__(self, workload: Workload, seconds: float, threads: int, folder: Path) -> None:
        self._fresh = workload.fresh
        self._seconds = seconds
        self._threads = threads
        self._folder = folder
        self._turn = 0

    def found(self, server: Server, case: Case) -> tuple[Measured, int]:
        """Measure a server that finds something, and return the size of its answers as well."""
        job = self._job(server, case, case.queries, 2 * self._seconds)
        with self._callers(server, [job]) as (process,):
            asked = _told(process, job.seconds)
        found = recalls(asked["keys"], case.truth[: len(asked["keys"])])
        first = float(np.median(asked["times"][:FILTERS])) if case.conditions else None
        speeds = self.speeds(server, case)
        return replace(speeds, recall=float(np.mean(found)), lowest=min(found), first=first), asked["size"]

    def speeds(self, server: Server, case: Case) -> Measured:
        """Measure only how fast a server answers."""
        one, _ = self._load(server, case, 1)
        many, memory = self._load(server, case, MANY)
        callers = "wrk" if _takes_wrk(server) else "Python" if server.process else "-"
        return Measured(callers, None, None, None, one, many, memory)

    def _load(self, server: Server, case: Case, callers: int) -> tuple[Speed, int]:
        """Keep a server busy; return its speed, and its memory when half of the time has passed."""
        queries = self._queries()
        if _takes_wrk(server):
            return self._load_by_wrk(server, case, queries, callers)
        processes = min(callers, _PROCESSES) if server.process else 1
        job = self._job(server, case, queries, self._seconds, callers // processes)
        jobs = [replace(job, place=place, processes=processes) for place in range(processes)]
        with self._callers(server, jobs) as started:
            for process in started:
                _wait_until_prepared(process)
            worker = server.process or started[0].pid
            before = cpu_seconds(worker)
            for process in started:
                _write(process, "begin\n")
            time.sleep(self._seconds / 2)
            memory = memory_bytes(worker)
            told = [_told(process, self._seconds) for process in started]
            own = sum(one["processor"] for one in told)
            cpu = cpu_seconds(worker) - before if server.process else own
        times = np.concatenate([one["times"] for one in told])
        load = wrk.Load(times, max(one["seconds"] for one in told), own)
        return speed_of(load, cpu, same_process=server.process is None), memory

    def _load_by_wrk(self, server: Server, case: Case, queries: Vectors, callers: int) -> tuple[Speed, int]:
        worker = server.process or os.getpid()
        conditions = case.conditions or (None,)
        bodies, memory = self._folder / "bodies", []
        with bodies.open("wb") as file:
            for place, query in enumerate(queries):
                file.write(http_body(query, conditions[place % len(conditions)]) + b"\n")
        options, before = server.target.options, cpu_seconds(worker)
        load = wrk.load_by_wrk(
            f"http://127.0.0.1:{options['port']}{options['path']}",
            bodies,
            callers,
            self._seconds,
            self._folder / "script.lua",
            lambda: memory.append(memory_bytes(worker)),
        )
        return speed_of(load, cpu_seconds(worker) - before), memory[0]

    def _queries(self) -> Vectors:
        """Return queries for one load, others than those of the load before."""
        wanted = min(FRESH // 2, max(2 * FILTERS, round(_A_SECOND * self._seconds)))
        places = np.arange(self._turn * wanted, (self._turn + 1) * wanted)
        self._turn += 1
        return np.take(self._fresh, places, axis=0, mode="wrap")

    def _job(self, server: Server, case: Case, queries: Vectors, seconds: float, callers: int = 0) -> Job:
        file = self._folder / "queries.npy"
        np.save(file, queries)
        return Job(server.target, str(file), case.conditions, seconds, callers)

    @contextmanager
    def _callers(self, server: Server, jobs: Sequence[Job]) -> Iterator[list["subprocess.Popen[str]"]]:
        """Start a process for each job, which ends at the latest with the block, or with this process."""
        variables = environment_of_peer()
        if server.process is None:
            variables |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(self._threads))
        with ExitStack() as stack:
            started = []
            for place, job in enumerate(jobs):
                file = self._folder / f"job-{place}.json"
                job.write(file)
                module = "tests.benchmarks.servers.callers"
                process = subprocess.Popen(
                    [server.python, "-m", module, str(os.getpid()), str(file)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    env={**os.environ, **variables},
                    start_new_session=True,
                )
                stack.enter_context(process)
                stack.callback(process.kill)
                started.append(process)
            yield started


def _takes_wrk(server: Server) -> bool:
    return "path" in server.target.options and wrk.installed()


def _wait_until_prepared(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], _GRACE_S)
    if not ready or not process.stdout.readline():
        process.kill()
        raise RuntimeError(_last_words(process.communicate()[1]))


def _write(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line)
    process.stdin.flush()


def _told(process: "subprocess.Popen[str]", seconds: float) -> dict[str, Any]:
    output, errors = process.communicate(timeout=seconds + _GRACE_S)
    if process.returncode:
        raise RuntimeError(_last_words(errors))
    told: dict[str, Any] = json.loads(output.splitlines()[-1])
    return told


def _last_words(errors: str) -> str:
    lines = errors.strip().splitlines()
    return f"callers: {lines[-1]}" if lines else "callers ended without a word"
