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
    """Bytes a second: `scan` of the vectors as the exact view holds them, `read` of memory at the best."""

    scan: float
    read: float
    bytes_a_vector: float


def measure_scan(workload: Workload, threads: int) -> ScanSpeed:
    """Scan all vectors one query at a time, and sum up the same number of bytes with the same threads."""
    torch.set_num_threads(threads)
    view = filled_view(workload)
    size = view.memory_bytes
    plain = torch.ones(size // 4)
    scan = read = float("inf")
    # In turns, so that both have the same share of a machine that does other things too.
    for query in workload.queries[:_ROUNDS]:
        scan = min(scan, _seconds(partial(view.search, query, K)))
        read = min(read, _seconds(plain.sum))
    return ScanSpeed(size / scan, plain.numel() * 4 / read, size / len(view))


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
