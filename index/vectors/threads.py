"""Threads of FAISS: one for a query, as others run beside it, and every core for a batch."""

import os
import threading
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import lru_cache

import faiss

# A tenth of a core's time where others want all of it, and all of it where they do not.
_PRIORITY_OF_BUILDS = 10


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def use_threads(count: int) -> None:
    """Let what this thread asks of FAISS from now on run on `count` threads."""
    # OpenMP keeps the number for each thread that asks. A query that waits for a second thread waits for a
    # whole time slice of the scheduler whenever the other cores are busy.
    faiss.omp_set_num_threads(count)


def lower_priority() -> None:
    """Lower the priority of this thread, and of all that it begins, below those that answer searches.

    Linux keeps a priority for each thread. A pool of OpenMP takes that of the thread which begins it.
    """
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _PRIORITY_OF_BUILDS)


def scanners() -> Executor:
    """Return the threads of this process that do the parts of a scan, one on each core."""
    return _scanners(os.getpid())


@lru_cache(maxsize=1)
def _scanners(_process: int) -> Executor:
    # After a fork there are other ones: a child has none of its parent's threads.
    return ThreadPoolExecutor(cores(), "scan", initializer=use_threads, initargs=(1,))
