"""Passes of an encoder, and their threads on the CPU: given, or what is quickest in a short measurement."""

import os
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import structlog
from PIL import Image

from app.encoding.processes import ServedEncoder

# One more number of threads is tried only while time is left, so a start is delayed by about a second.
_MEASURE_S = 0.8
_MIN_PASSES = 2
_MIN_COUNTS = 2
# Batches that wait in a full queue of the default size.
_MAX_LANES = 4

_log = structlog.stdlib.get_logger(__name__)


def warm_up(encoder: ServedEncoder) -> None:
    """Embed an image, and a text if the encoder reads any: a broken encoder fails before a query needs it."""
    for one in passes_of(encoder, size=1, text="ready"):
        one()


def passes_of(encoder: ServedEncoder, *, size: int, text: str) -> Sequence[Callable[[], object]]:
    """A pass of a batch for each kind of query that the encoder takes."""
    images = np.stack([encoder.prepare_image(Image.new("RGB", (8, 8)))] * size)
    passes: list[Callable[[], object]] = [lambda: encoder.embed_images(images)]
    if "text" in encoder.modalities:
        passes.append(lambda: encoder.embed_texts([text] * size))
    return passes


class ComputeThreads:
    """Lanes of one encoder, the passes that run side by side, and the threads of torch in each.

    A pass that runs alone takes the quickest number of threads. Under load, passes side by side share the
    cores: threads of one pass wait for the slowest of them at each layer, threads of different passes for
    none. torch keeps the number, and a pool, for each thread that computes. All other threads of the process
    keep one, so that no pool but the encoder's competes for the cores.

    Args:
        count: Given by an operator, for all lanes together; None measures.
        use: Sets the number for passes of the calling thread.

    Attributes:
        lanes: Concurrent passes.
        side_by_side: Threads of each of them.
    """

    def __init__(self, count: int | None = None, use: Callable[[int], None] | None = None) -> None:
        self._use = use or use_torch_threads
        self._given = count
        total = count or cores()
        self._alone = count or 1
        self.lanes = min(total, _MAX_LANES)
        self.side_by_side = total // self.lanes
        self._of_thread = threading.local()

    def enter(self, alone: bool = True) -> None:
        """Set up the calling thread, which is an encoder's, for a pass alone or beside others."""
        count = self._alone if alone else self.side_by_side
        if getattr(self._of_thread, "count", None) != count:
            self._use(count)
            self._of_thread.count = count

    def measure(self, passes: Sequence[Callable[[], object]]) -> None:
        """Choose the number under which these passes are quickest alone, unless one was given.

        Call it in the encoder's thread, after a first pass.
        """
        if self._given is None and passes:
            self._alone = quickest_count(passes, cores(), use=self._use)
            self._of_thread.count = None
            _log.info("threads measured", threads=self._alone)
        self.enter()


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def use_torch_threads(count: int) -> None:
    """Let torch compute on `count` threads in this thread, and on one in threads that come later."""
    # A service whose bundles have ONNX graphs needs no torch.
    import torch

    # A thread takes over the number that was set last, by whichever thread, when it first asks or computes.
    torch.get_num_threads()
    torch.set_num_threads(count)
    later = threading.Thread(target=torch.set_num_threads, args=(1,))
    later.start()
    later.join()


def quickest_count(
    passes: Sequence[Callable[[], object]],
    most: int,
    clock: Callable[[], float] = time.perf_counter,
    use: Callable[[int], None] | None = None,
) -> int:
    """The number of threads, 1 to `most`, with the least time over all passes.

    The times of different passes, such as texts and images, are weighed as shares of their times on one
    thread. Numbers are doubled, and `most` itself is tried; after the second, the measurement ends when time
    is up. `use` sets the number for passes of the calling thread.
    """
    use = use or use_torch_threads
    counts = [*(2**power for power in range(most.bit_length()) if 2**power < most), most]
    end, share_s = clock() + _MEASURE_S, _MEASURE_S / (len(counts) * len(passes))
    best, least = 1, float("inf")
    alone: list[float] = []
    for tried, count in enumerate(counts):
        if tried >= _MIN_COUNTS and clock() > end:
            break
        use(count)
        times = [_min_time(one, share_s, clock) for one in passes]
        alone = alone or times
        cost = sum(time_s / alone_s for time_s, alone_s in zip(times, alone, strict=True))
        if cost < least:
            best, least = count, cost
    return best


def _min_time(one: Callable[[], object], seconds: float, clock: Callable[[], float]) -> float:
    """The least time of a few passes within the seconds given, after one that is not counted."""
    one()
    times: list[float] = []
    end = clock() + seconds
    while len(times) < _MIN_PASSES or clock() < end:
        began = clock()
        one()
        times.append(clock() - began)
    return min(times)
