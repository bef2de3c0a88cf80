"""What holds on a machine with a GPU: exact hits, threads, batches, filters and writes, at a million vectors.

Run `make check-gpu`, which then trains a step of each objective in bfloat16 there. The GPU's searches are
compared with scans by the CPU of the same vectors; the exit status is 1 if any hit differs or a search fails.
"""

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
import typer

from index.vectors.gpu import Gpu, GpuScan
from index.vectors.protocol import Keys, Neighbours, Vectors
from index.vectors.view import CosineView
from tests.index.samples import CpuAsGpu

_BLOCK: Final = 50_000
_CENTERS: Final = 2000
_THREADS: Final = 16
_SEARCHES: Final = 200
_BATCH: Final = 1000
_COMPARED: Final = 200
_SHARES: Final = (None, 0.5, 0.1, 0.01, 0.001)
_WRITTEN: Final = 256


def main() -> None:
    """Run all checks and print a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--cpu", action="store_true", help="compute the GPU's index by the CPU, to try this")
    arguments = parser.parse_args()
    gpu = CpuAsGpu() if arguments.cpu else Gpu(arguments.device)
    free = gpu.free()
    if isinstance(free, str):
        sys.exit(f"There is nothing to check: {free}.")
    typer.echo(f"{free / 2**30:.1f} GiB of GPU memory are free; {arguments.rows:,} x {arguments.dim}")
    gpu.check()
    view, scanned = CosineView(arguments.dim), CosineView(arguments.dim)
    for start in range(0, arguments.rows, _BLOCK):
        count = min(_BLOCK, arguments.rows - start)
        vectors = _clustered(count, arguments.dim, start)
        for one in (view, scanned):
            one.add(np.arange(start, start + count), vectors)
    begun = time.perf_counter()
    if not view.upload(GpuScan(arguments.dim, gpu)):
        sys.exit("The vectors were not copied to the GPU.")
    typer.echo(f"copied to the GPU in {time.perf_counter() - begun:.1f} s")
    wrong = _one_by_one(view, scanned) + _batches(view, scanned) + _threads(view, scanned)
    wrong += _writes(view, scanned)
    if view.name != "gpu":
        sys.exit("The GPU failed meanwhile: see the log.")
    if wrong:
        sys.exit(f"{wrong} searches found other hits than the CPU.")


def _clustered(count: int, dim: int, seed: int) -> Vectors:
    random = np.random.default_rng(seed)
    centers = np.random.default_rng(7).standard_normal((_CENTERS, dim)).astype(np.float32)
    made = centers[random.integers(0, _CENTERS, count)] + random.standard_normal((count, dim), np.float32)
    vectors: Vectors = made / np.linalg.norm(made, axis=1, keepdims=True)
    return vectors


def _timed(search: Callable[[], Neighbours]) -> tuple[Neighbours, float]:
    begun = time.perf_counter()
    found = search()
    return found, (time.perf_counter() - begun) * 1000


def _differing(found: Sequence[Neighbours], expected: Sequence[Neighbours]) -> int:
    return sum(one.keys.tolist() != other.keys.tolist() for one, other in zip(found, expected, strict=True))


def _chosen(view: CosineView, share: float | None) -> Keys | None:
    if share is None:
        return None
    random = np.random.default_rng(3)
    return np.sort(random.choice(len(view), round(share * len(view)), replace=False)).astype(np.int64)


def _one_by_one(view: CosineView, scanned: CosineView) -> int:
    wrong = 0
    for share in _SHARES:
        allowed = _chosen(view, share)
        # Filters far from the queries let the CPU scan more, so that fewer are tried.
        queries = _clustered(_COMPARED if share is None else _COMPARED // 4, view.dim, 11)
        for one in (view, scanned):
            one.search(queries[0], 10, allowed=allowed)
        pairs = [
            (
                _timed(lambda query=query, allowed=allowed: view.search(query, 10, allowed=allowed)),  # type: ignore[misc]
                _timed(lambda query=query, allowed=allowed: scanned.search(query, 10, allowed=allowed)),  # type: ignore[misc]
            )
            for query in queries
        ]
        different = _differing([one for (one, _), _ in pairs], [other for _, (other, _) in pairs])
        ours, theirs = [ms for (_, ms), _ in pairs], [ms for _, (_, ms) in pairs]
        passing = "all rows" if share is None else f"{share:.1%} of rows"
        typer.echo(
            f"{passing:14} GPU {statistics.median(ours):7.2f} ms (worst {max(ours):7.2f}), "
            f"CPU {statistics.median(theirs):7.2f} ms; {different} of {len(queries)} searches differ"
        )
        wrong += different
    return wrong


def _batches(view: CosineView, scanned: CosineView) -> int:
    queries = _clustered(_BATCH, view.dim, 13)
    view.search_many(queries[:8], 10)
    begun = time.perf_counter()
    found = view.search_many(queries, 10)
    middle = time.perf_counter()
    expected = scanned.search_many(queries, 10)
    taken, compared = middle - begun, time.perf_counter() - middle
    different = _differing(found, expected)
    typer.echo(f"batch of {_BATCH}: GPU {taken:.2f} s, CPU {compared:.2f} s; {different} searches differ")
    return different


def _threads(view: CosineView, scanned: CosineView) -> int:
    queries = _clustered(_SEARCHES, view.dim, 17)
    expected = scanned.search_many(queries, 10)
    begun = time.perf_counter()
    with ThreadPoolExecutor(_THREADS) as threads:
        found = list(threads.map(lambda _: [view.search(query, 10) for query in queries], range(_THREADS)))
    rate = _THREADS * _SEARCHES / (time.perf_counter() - begun)
    different = sum(_differing(one, expected) for one in found)
    typer.echo(f"{_THREADS} threads: {rate:,.0f} searches a second; {different} searches differ")
    return different


def _writes(view: CosineView, scanned: CosineView) -> int:
    queries, stop = _clustered(_SEARCHES, view.dim, 19), threading.Event()
    rows, written = len(view), 0

    def write() -> int:
        count = 0
        while not stop.is_set() and count < 200:
            vectors = _clustered(_WRITTEN, view.dim, 10**6 + count)
            for one in (view, scanned):
                one.add(np.arange(rows + count * _WRITTEN, rows + (count + 1) * _WRITTEN), vectors)
            count += 1
        return count * _WRITTEN

    with ThreadPoolExecutor(_THREADS + 1) as threads:
        writing = threads.submit(write)
        list(threads.map(lambda _: [view.search(query, 10) for query in queries], range(_THREADS)))
        stop.set()
        written = writing.result()
    different = _differing(view.search_many(queries, 10), scanned.search_many(queries, 10))
    typer.echo(f"{written:,} vectors written meanwhile; {different} searches differ afterwards")
    return different


if __name__ == "__main__":
    main()
