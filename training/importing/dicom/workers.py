"""Processes that examine files: one that a file ends, or that takes too long, costs that file alone."""

import math
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Final, cast

from training.common.errors import DataError
from training.common.host import end_with_parent
from training.imaging.processes.worker import allow_cpu
from training.importing.dicom.examination import Examined, Rules, limit_memory
from training.importing.dicom.places import Place

# JPEG 2000 takes 7 for 50 megapixels, so 60 for a run of 100 frames with 4 each.
CPU_S: Final = 120
# Reading from a slow medium counts, too.
WALL_S: Final = 300.0
# Outcomes of each process that may wait for one before them.
_WAITING: Final = 4

Work = Callable[[Place, Rules], Examined]


def examine_all(
    examine: Work, places: Sequence[Place], rules: Rules, *, cpu_s: int = CPU_S, wall_s: float = WALL_S
) -> Generator[Examined, None, None]:
    """Examine files in processes, and give the outcomes in order; closed, it ends them.

    Args:
        examine: What is done for each, in one of the processes.
        places: The files.
        rules: What is taken.
        cpu_s: Seconds of CPU time that a file may take.
        wall_s: Seconds that a file may take.

    Raises:
        DataError: The films cannot be written.
    """
    count = max(1, min(len(os.sched_getaffinity(0)), len(places)))
    workers = [_Worker(examine, rules, cpu_s, wall_s) for _ in range(count)]
    left = iter(places)
    # Outcomes by number, in order; None: not there yet.
    outcomes: dict[int, Examined | None] = {}
    try:
        while True:
            for worker in workers:
                if worker.place is None and len(outcomes) < _WAITING * count:
                    place = next(left, None)
                    if place is not None:
                        worker.give(place)
                        outcomes[place.number] = None
            if not outcomes:
                return
            for outcome in _answers(workers):
                outcomes[outcome.number] = outcome
            while outcomes and (first := next(iter(outcomes.values()))) is not None:
                del outcomes[first.number]
                yield first
    finally:
        for worker in workers:
            worker.end()


def _answers(workers: Sequence["_Worker"]) -> Iterator[Examined]:
    """Wait for processes at work, and give what has come of their files."""
    busy = {worker.connection: worker for worker in workers if worker.place is not None}
    deadline = min(worker.deadline for worker in busy.values())
    ready = wait(list(busy), max(0.0, deadline - time.monotonic()))
    for connection in ready:
        yield busy[cast(Connection, connection)].answer()
    for connection, worker in busy.items():
        if connection not in ready and worker.deadline <= time.monotonic():
            yield worker.overrun()


class _Worker:
    """A process that examines one file after the other; another one follows where it ends."""

    def __init__(self, examine: Work, rules: Rules, cpu_s: int, wall_s: float) -> None:
        self.place: Place | None = None
        self.deadline = math.inf
        self._work = examine, rules, cpu_s
        self._wall_s = wall_s
        self._start()

    def give(self, place: Place) -> None:
        """Have it examine a file."""
        self.place, self.deadline = place, time.monotonic() + self._wall_s
        try:
            self.connection.send(place)
        except OSError:
            # Told by the answer: the process has ended.
            return

    def answer(self) -> Examined:
        """Return what has come of its file.

        Raises:
            DataError: The films cannot be written.
        """
        place = self._taken()
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            slow = self._process.exitcode == -signal.SIGXCPU
            self._restart()
            cpu_s = self._work[2]
            reason = f"decoding it takes over {cpu_s} seconds" if slow else "decoding it ended the process"
            return Examined(place.number, refused=reason)
        if isinstance(answer, DataError):
            raise answer
        return cast(Examined, answer)

    def overrun(self) -> Examined:
        """Give up its file, whose time is over."""
        place = self._taken()
        self._restart()
        return Examined(place.number, refused=f"it could not be read within {self._wall_s:,.0f} seconds")

    def end(self) -> None:
        """Kill the process, and wait for its end."""
        self._process.kill()
        self._process.join()
        self.connection.close()

    def _taken(self) -> Place:
        place, self.place, self.deadline = self.place, None, math.inf
        assert place is not None
        return place

    def _restart(self) -> None:
        self.end()
        self._start()

    def _start(self) -> None:
        # The command has threads, which a fork would not take along.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        with theirs:
            self._process = context.Process(
                target=_serve, args=(theirs, os.getpid(), *self._work), daemon=True
            )
            self._process.start()


def _serve(connection: Connection, parent: int, examine: Work, rules: Rules, cpu_s: int) -> None:
    """Examine each file that comes, and answer with what has come of it."""
    end_with_parent(parent)
    # A stop is told to the command, which ends its processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit_memory(rules.memory_bytes)
    # Words of decoders may be those of a file.
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), 2)
    while True:
        place = connection.recv()
        allow_cpu(cpu_s)
        try:
            answer: Examined | DataError = examine(place, rules)
        except DataError as error:
            answer = error
        connection.send(answer)
