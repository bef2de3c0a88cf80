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
    """Bytes of vectors a second: scanned by their 8 bits, by float16 alone, and those that are only read."""

    coarse: float
    scan: float
    read: float


def measure_scan(workload: Workload, threads: int) -> ScanSpeed:
    """Scan all vectors one query at a time, and sum up as many bytes as they have with the same threads."""
    torch.set_num_threads(threads)
    plain, quick = filled_view(workload), filled_view(workload)
    quick.quicken()
    size = 2 * plain.dim * len(plain)
    numbers = torch.ones(size // 4)
    coarse = scan = read = float("inf")
    # In turns, so that all have the same share of a machine that does other things too.
    for query in workload.fresh[:_ROUNDS]:
        coarse = min(coarse, _seconds(partial(quick.search, query, K)))
        scan = min(scan, _seconds(partial(plain.search, query, K)))
        read = min(read, _seconds(numbers.sum))
    return ScanSpeed(size / coarse, size / scan, size / read)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
