"""How much of the machine's memory bandwidth the exact scan uses."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch

from tests.benchmarks.search.contestants.our_view import filled_view
from tests.benchmarks.search.workload import K, Workload

_ROUNDS: Final = 50


@dataclass(frozen=True, slots=True)
class ScanSpeed:
    """Bytes of vectors a second: scanned, and only read."""

    scan: float
    read: float


def measure_scan(workload: Workload, threads: int) -> ScanSpeed:
    """Scan all vectors one query at a time, and sum up as many bytes as they have with the same threads."""
    torch.set_num_threads(threads)
    plain = filled_view(workload)
    size = 2 * plain.dim * len(plain)
    numbers = torch.ones(size // 4)
    scan = read = float("inf")
    # In turns, so that all have the same share of a machine that does other things too.
    for query in workload.fresh[:_ROUNDS]:
        scan = min(scan, _seconds(partial(plain.search, query, K)))
        read = min(read, _seconds(numbers.sum))
    return ScanSpeed(size / scan, size / read)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
