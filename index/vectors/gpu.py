"""Exact search on a GPU: a float16 copy of all vectors in one of FAISS's flat indexes.

FAISS raises an exception only if the GPU runs out of memory; any other CUDA error aborts the process. A child
process therefore tries the GPU before the first copy (`Gpu.check`).
"""

import logging
import subprocess
import sys
import threading
import weakref
from functools import cached_property
from typing import Any, Final

import faiss
import numpy as np

from index.vectors.protocol import Vectors
from index.vectors.rows import FilterMask
from index.vectors.store import ScoredRows, scan_error

# Memory for intermediate results. FAISS's own default is 1.5 GiB on a GPU of more than 8 GiB.
SCRATCH_BYTES: Final = 512 * 1024**2
# FAISS's limit of neighbors for one query.
_MAX_NEIGHBORS: Final = 2048
# A filtered search takes the nearest rows of all; so many times more rows than needed should pass.
_MARGIN: Final = 2
_CPU: Final = "cpu"
_TRIAL_SECONDS: Final = 120
_TRIAL_ROWS: Final = 4096
_TRIAL_DIM: Final = 64

_log = logging.getLogger(__name__)


class Gpu:
    """The GPU that a setting names. Threads may share it.

    Attributes:
        lock: Held while FAISS uses the GPU: its resources must not be used by two threads at once.

    Args:
        name: "auto", "cuda" or "cuda:N"; "cpu" for none.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # Reentrant: garbage collection inside a search may free another index in the same thread.
        self.lock = threading.RLock()
        self._checked = False
        self._refusal: str | None = None

    @cached_property
    def number(self) -> int | str:
        """Number of the GPU, or why there is none."""
        if self._name == _CPU:
            return "the device is set to cpu"
        count = int(faiss.get_num_gpus())
        _, _, number = self._name.partition(":")
        index = int(number) if number.isdecimal() else 0
        if index < count:
            return index
        if count == 0 and "GPU" not in faiss.get_compile_options():
            return "FAISS is installed without GPU support"
        return f"FAISS finds {count} GPUs, none of them number {index}" if count else "FAISS finds no GPU"

    def free(self) -> int | str:
        """Return the bytes of GPU memory that are free, or why vectors can't be searched there."""
        if isinstance(self.number, str):
            return self.number
        if self._refusal is not None:
            return self._refusal
        # Most installations have no GPU and never pay for this import.
        import torch

        try:
            return int(torch.cuda.mem_get_info(self.number)[0])
        # The second is what a build without CUDA raises.
        except (RuntimeError, AssertionError) as error:
            return f"PyTorch can't use the GPU: {str(error).partition(chr(10))[0]}"

    def check(self) -> None:
        """Search on the GPU in a child process, once; a GPU that fails there isn't used again."""
        if self._checked:
            return
        command = [sys.executable, "-m", __name__, str(self.number)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_TRIAL_SECONDS, check=False
            )
            last = done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        except subprocess.TimeoutExpired:
            done, last = None, f"no answer within {_TRIAL_SECONDS} s"
        if done is None or done.returncode != 0:
            self._refusal = f"a trial search on the GPU failed: {last}"
            raise RuntimeError(self._refusal)
        self._checked = True

    @cached_property
    def _resources(self) -> Any:
        resources = faiss.StandardGpuResources()
        resources.setTempMemory(SCRATCH_BYTES)
        return resources

    def new_index(self, dim: int) -> Any:
        """Return an empty flat index of float16 vectors on the GPU; call it under the lock."""
        if isinstance(self.number, str):
            raise RuntimeError(self.number)
        config = faiss.GpuIndexFlatConfig()
        config.useFloat16, config.device = True, self.number
        return faiss.GpuIndexFlatIP(self._resources, dim, config)


class GpuScan:
    """float16 vectors on a GPU, which searches all of them.

    Attributes:
        error: Upper bound of the difference between an inner product from the GPU and the cosine.
        failed: Whether the GPU ran out of memory, so that the CPU scans everything.
    """

    def __init__(self, dim: int, gpu: Gpu) -> None:
        # The GPU also rounds the query to float16.
        self.error = 2 * scan_error(dim)
        self.failed = False
        self._dim = dim
        self._lock = gpu.lock
        with gpu.lock:
            self._indexes = [gpu.new_index(dim)]
        # Freeing an index uses the resources as well.
        weakref.finalize(self, _free, gpu.lock, self._indexes)

    def __len__(self) -> int:
        return int(self._indexes[0].ntotal)

    @property
    def device_bytes(self) -> int:
        """Memory that the vectors take on the GPU."""
        return 2 * self._dim * len(self)

    def add(self, vectors: Vectors) -> None:
        """Append vectors (N, D)."""
        if len(vectors):
            with self._lock:
                self._indexes[0].add(np.ascontiguousarray(vectors))

    def nearest(self, queries: Vectors, count: int, passing: FilterMask) -> list[ScoredRows | None]:
        """Return for each query (Q, D) the `count` largest inner products of rows that pass, and the rows.

        FAISS's flat index has no filter on a GPU: rows that pass are picked from the 2,048 nearest of all.
        None means that some of a query's rows may be missing from these: the CPU must scan.
        """
        neighbours: list[ScoredRows | None] = [None] * len(queries)
        total, left_out = len(self), len(passing.mask) - passing.count
        if self.failed or len(passing.mask) != total:
            return neighbours
        fetched = min(count + left_out, total, _MAX_NEIGHBORS)
        certain = fetched == min(count + left_out, total)
        if not certain and passing.count * fetched < _MARGIN * count * total:
            return neighbours
        try:
            with self._lock:
                products, rows = self._indexes[0].search(np.ascontiguousarray(queries), fetched)
        except RuntimeError as error:
            self.give_up(error)
            return neighbours
        for row, (scores, near) in enumerate(zip(products, rows, strict=True)):
            passed = passing.mask[near] & (near >= 0)
            if np.count_nonzero(passed) >= min(count, passing.count):
                neighbours[row] = scores[passed][:count], near[passed][:count]
        return neighbours

    def give_up(self, error: RuntimeError) -> None:
        """Leave everything to the CPU from now on."""
        self.failed = True
        _log.warning("the CPU searches vectors from now on, because the GPU failed: %s", error)


def _free(lock: Any, indexes: list[Any]) -> None:
    with lock:
        indexes.clear()


def _try(number: int) -> None:
    """Compare a search on the GPU with NumPy's. A CUDA error aborts the process."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((_TRIAL_ROWS, _TRIAL_DIM)).astype(np.float16).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    scan = GpuScan(_TRIAL_DIM, Gpu(f"cuda:{number}"))
    scan.add(vectors)
    everything = FilterMask(np.ones(_TRIAL_ROWS, dtype=bool), _TRIAL_ROWS)
    for query, neighbours in zip(vectors[:8], scan.nearest(vectors[:8], 10, everything), strict=True):
        expected = np.sort(vectors @ query)[::-1][:10]
        if neighbours is None or np.abs(neighbours[0] - expected).max() > 2 * scan.error:
            raise RuntimeError("its scores are not those of the CPU")


if __name__ == "__main__":
    _try(int(sys.argv[1]))
