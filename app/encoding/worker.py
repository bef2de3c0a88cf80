"""A thread of an encoding queue, as its supervisor watches it."""

import threading
import time
from collections.abc import Callable

from app.encoding.batches import AbandonedError
from app.encoding.jobs import Job


class Worker(threading.Thread):
    """A thread that encodes; the supervisor sees how long its pass takes and may give it up.

    Attributes:
        lane: Number of this encoding thread, from 0.
        batch: The queries in work.
        busy: Whether the batch before held several.
    """

    def __init__(self, lane: int, work: Callable[["Worker"], None]) -> None:
        super().__init__(name="encoding-worker", daemon=True)
        self._todo = work
        self._guard = threading.Lock()
        self._abandoned = False
        self._pass_began: float | None = None
        self.lane = lane
        self.batch: list[Job] = []
        self.busy = False

    @property
    def pass_seconds(self) -> float:
        """Seconds that the pass in work has taken; 0 between passes."""
        began = self._pass_began
        return 0.0 if began is None else time.monotonic() - began

    def run(self) -> None:
        """Encode until the queue is closed or the thread given up."""
        self._todo(self)

    def lives(self, seconds: float) -> bool:
        """Wait for the thread's end; whether it still runs."""
        self.join(seconds)
        return self.is_alive()

    def abandon(self) -> None:
        """Let the thread end as soon as its pass does."""
        with self._guard:
            self._abandoned = True

    def begin_pass(self) -> None:
        """Take note that a forward pass begins."""
        with self._guard:
            if self._abandoned:
                raise AbandonedError
            self._pass_began = time.monotonic()

    def end_pass(self) -> None:
        """Take note that the forward pass is over."""
        with self._guard:
            self._pass_began = None
            if self._abandoned:
                raise AbandonedError
