"""Memory that lies in large pages holds what it held, and what is beside it stays."""

import mmap
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from index.vectors.half import HalfRows
from index.vectors.large_pages import move_to_large_pages, refill_in_large_pages
from index.vectors.written import write_rows

MIB = 1024**2
SIZE = 64 * MIB
# Fewer where memory is in small pieces.
WITHIN = 32 * MIB


def _memory(start: int, stop: int) -> NDArray[np.uint8]:
    """Return some memory in the middle of other."""
    return np.arange(SIZE // 8).view(np.uint8)[start : SIZE - stop]


def _in_large_pages(memory: NDArray[np.uint8]) -> int:
    """Return how many bytes lie in large pages of the piece of this process that has the middle of some."""
    middle, here = memory.ctypes.data + memory.nbytes // 2, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0]:
            start, stop = (int(edge, 16) for edge in line.split(" ")[0].split("-"))
            here = start <= middle < stop
        elif here and line.startswith("AnonHugePages:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the system does not say")


def _offered() -> bool:
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return sys.platform == "linux" and setting.exists() and "[never]" not in setting.read_text()


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (1, 5), (4096, 4096), (5000, 12_345)])
def test_memory_that_moves_keeps_its_bytes(start: int, stop: int) -> None:
    moved = _memory(start, stop)
    wanted = moved.copy()
    move_to_large_pages(moved)
    assert np.array_equal(moved, wanted)


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (1, 5), (4096, 4096), (5000, 12_345)])
def test_what_lies_beside_forgotten_memory_stays(start: int, stop: int) -> None:
    forgotten = _memory(start, stop)
    everything = forgotten.base
    assert everything is not None
    before, behind = everything.view(np.uint8)[:start].copy(), everything.view(np.uint8)[SIZE - stop :].copy()
    refill_in_large_pages(forgotten)
    forgotten[:] = 7
    assert (forgotten == 7).all()
    assert np.array_equal(everything.view(np.uint8)[:start], before)
    assert np.array_equal(everything.view(np.uint8)[SIZE - stop :], behind)


@pytest.mark.skipif(not _offered(), reason="the system has no large pages: set them to madvise")
def test_memory_lies_in_large_pages() -> None:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    written = np.frombuffer(mmap.mmap(-1, SIZE, flags=flags), dtype=np.uint8)
    written[:] = 1
    refill_in_large_pages(written)
    written[:] = 1
    assert _in_large_pages(written) >= WITHIN


def test_rows_that_are_read_are_those_that_were_written(tmp_path: Path) -> None:
    dim, count = 512, 40_000
    halves = np.random.default_rng(0).standard_normal((count, dim), dtype=np.float32).astype("<f2")
    written, read = HalfRows(dim), HalfRows(dim)
    written.append(halves)
    write_rows(tmp_path / "rows", written, count, nullcontext, nullcontext)
    read.read(tmp_path / "rows")
    assert len(read) == count
    assert np.array_equal(read.held, halves)
    read.append(halves[:10])
    assert np.array_equal(read.held, np.concatenate((halves, halves[:10])))
    read.use_large_pages()
    assert np.array_equal(read.held, np.concatenate((halves, halves[:10])))
