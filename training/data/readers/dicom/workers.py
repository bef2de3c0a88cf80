"""Processes that examine files: one that a decoder ends is named, and the others go on."""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Final

from training.data.readers.dicom.examination import Examined, Rules, limit_memory
from training.data.readers.dicom.places import Place
from training.host import end_with_parent

_WAITING: Final = 4


Work = Callable[[Place, Rules], Examined]


def examine_all(examine: Work, places: Sequence[Place], rules: Rules) -> Iterator[Examined]:
    """Examine files in processes, and give the outcomes in order.

    Args:
        examine: What is done for each, in one of the processes.
        places: The files.
        rules: What is taken.

    Raises:
        DataError: The films cannot be written.
    """
    workers = max(1, min(len(os.sched_getaffinity(0)), len(places)))
    left = iter(places)
    again: deque[Place] = deque()
    while True:
        waiting: deque[tuple[Place, Future[Examined]]] = deque()
        pool = _pool(workers)
        try:
            while True:
                while len(waiting) < _WAITING * workers and (
                    place := again.popleft() if again else next(left, None)
                ):
                    waiting.append((place, pool.submit(examine, place, rules)))
                if not waiting:
                    return
                yield waiting[0][1].result()
                waiting.popleft()
        except BrokenProcessPool:
            # Any of them may have ended its process, so the first is tried alone.
            suspect, *others = (place for place, _ in waiting)
            again = deque([*others, *again])
            yield _examine_alone(examine, suspect, rules)
        finally:
            pool.shutdown(cancel_futures=True)


def _examine_alone(examine: Work, place: Place, rules: Rules) -> Examined:
    with _pool(1) as pool:
        try:
            return pool.submit(examine, place, rules).result()
        except BrokenProcessPool:
            return Examined(place.number, refused="decoding it ended the process")


def _pool(workers: int) -> ProcessPoolExecutor:
    # The command has threads, which a fork would not take along.
    return ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(os.getpid(),)
    )


def _begin(parent: int) -> None:
    end_with_parent(parent)
    # A stop is told to the command, which ends its processes in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_memory()
