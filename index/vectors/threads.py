"""How many threads FAISS takes: one for a query, as others run beside it, and every core for many."""

import os
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import lru_cache

import faiss


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def use_threads(count: int) -> None:
    """Let what this thread asks of FAISS from now on run on `count` threads."""
    # OpenMP keeps the number for each thread that asks. A query that waits for a second thread waits for a
    # whole time slice of the scheduler whenever the other cores are busy.
    faiss.omp_set_num_threads(count)


def scanners() -> Executor:
    """Return the threads of this process that do the parts of a scan, one on each core."""
    return _scanners(os.getpid())


@lru_cache(maxsize=1)
def _scanners(_process: int) -> Executor:
    # After a fork there are other ones: a child has none of its parent's threads.
    return ThreadPoolExecutor(cores(), "scan", initializer=use_threads, initargs=(1,))
