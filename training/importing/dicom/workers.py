"""Processes that examine files: one that a file ends, or that takes too long, costs that file alone."""

import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final

from training.common.errors import DataError
from training.common.host import end_with_parent
from training.common.workers import (
    BrokenMessageError,
    Worker,
    WorkerLostError,
    WorkerPool,
    receive,
    send,
    start_process,
)
from training.imaging.processes.pool import DecoderStartError
from training.imaging.processes.worker import allow_cpu
from training.importing.dicom.examination import Examined, Rules, limit_memory
from training.importing.dicom.places import Place

# JPEG 2000 takes 7 for 50 megapixels, so 60 for a run of 100 frames with 4 each.
CPU_S: Final = 120
# Reading from a slow medium counts, too.
WALL_S: Final = 300.0
# Outcomes of each process that may wait for one before them.
_WAITING: Final = 4
_MOST_BYTES: Final = 1 << 40
_NO_PROCESS: Final = (
    "No process that examines files can be started: free memory, or allow more processes, and run this again."
)

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
        DecoderStartError: No process can be started.
    """
    count = max(1, min(len(os.sched_getaffinity(0)), len(places)))
    pool = WorkerPool(partial(_start, examine, rules, cpu_s), count, lambda _: None)
    # A process ends with the thread that has started it, so the threads stay to the end.
    threads = ThreadPoolExecutor(count, "examining")
    outcomes: deque[Future[Examined]] = deque()
    try:
        for place in places:
            outcomes.append(threads.submit(_examined, pool, place, cpu_s, wall_s))
            while outcomes and (outcomes[0].done() or len(outcomes) == _WAITING * count):
                yield outcomes.popleft().result()
        while outcomes:
            yield outcomes.popleft().result()
    finally:
        pool.close()
        threads.shutdown(cancel_futures=True)


def _start(examine: Work, rules: Rules, cpu_s: int) -> Worker:
    # Words of decoders may be those of a file.
    worker = start_process(__name__, stderr=subprocess.DEVNULL)
    # The end of a process is told to the one that waits until it is ready.
    with suppress(OSError):
        send(worker.connection, {"cpu_s": cpu_s}, pickle.dumps((examine, rules)))
    return worker


def _examined(pool: WorkerPool, place: Place, cpu_s: int, wall_s: float, *, again: bool = False) -> Examined:
    worker: Worker | None = None
    try:
        with pool.taken() as worker:
            _, answer = worker.ask({}, pickle.dumps(place), _MOST_BYTES, time.monotonic() + wall_s)
    except WorkerLostError as lost:
        if worker is None:
            raise DecoderStartError(_NO_PROCESS) from lost
        # The system kills processes where memory is short, whatever they read.
        if lost.reason in ("stopped", "crash") and not again:
            return _examined(pool, place, cpu_s, wall_s, again=True)
        reason = "decoding it ended the process"
        if lost.reason == "cpu":
            reason = f"decoding it takes over {cpu_s} seconds"
        elif lost.reason == "wall":
            reason = f"it could not be read within {wall_s:,.0f} seconds"
        return Examined(place.number, refused=reason)
    outcome: Examined | DataError = pickle.loads(answer)
    if isinstance(outcome, DataError):
        raise outcome
    return outcome


def main(parent: int, descriptor: int) -> None:
    """Examine each file that comes, and answer with what has come of it, until the other side ends."""
    end_with_parent(parent)
    # A stop is told to the command, which ends its processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with socket.socket(fileno=descriptor) as connection, suppress(BrokenMessageError):
        order, content = receive(connection, _MOST_BYTES)
        examine, rules = pickle.loads(content)
        limit_memory(rules.memory_bytes)
        send(connection, {"outcome": "ready"})
        while True:
            _, content = receive(connection, _MOST_BYTES)
            allow_cpu(order["cpu_s"])
            try:
                answer: Examined | DataError = examine(pickle.loads(content), rules)
            except DataError as error:
                answer = error
            send(connection, {}, pickle.dumps(answer))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
