"""Events of a service on their way to the audit trail: queued in the process, and written in batches."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from itertools import islice
from typing import Final

import structlog

from index.audit.chain import Trail
from index.audit.event import Event, in_parts
from index.errors import CatalogueBusyError, DiskFullError
from training.common.errors import RecoquestError

# Events of reads wait so long for others, so that a search pays for no transaction of its own.
_BATCH_SECONDS: Final = 0.5
_BATCH: Final = 500
_CAPACITY: Final = 5_000
# Ids of images bound a transaction and the memory of the queue as well.
_BATCH_IDS: Final = 20_000
_CAPACITY_IDS: Final = 500_000
_LOOK_SECONDS: Final = 0.02
_RETRY_SECONDS: Final = 0.5
# Attempts after which a batch is written event by event, and an event becomes a dead letter.
_TRIES: Final = 3
# Errors that pass, and are no event's fault.
_PASSING: Final = (CatalogueBusyError, DiskFullError)
# Shorter than the server gives the end of the application.
_CLOSE_SECONDS: Final = 2.0

_log = structlog.stdlib.get_logger(__name__)


class AuditUnavailableError(RecoquestError):
    """An event could not be written to the audit trail in time."""


class Recorder:
    """Writes the events of this process by one thread, in the order in which they come.

    A batch that could not be written is retried; `failed` is called each time. An event that is never written
    while others are is passed to `dead_letter`, which stores it and returns an event that records it. A
    request waits at most `patience_s` seconds for room in the queue, or for its event to be written.
    """

    def __init__(
        self,
        trail: Trail,
        written: Callable[[int], None],
        failed: Callable[[], None],
        dead_letter: Callable[[Trail, Event, Exception], Event],
        patience_s: float = 10.0,
    ) -> None:
        self._trail = trail
        self._count_written = written
        self._count_failed = failed
        self._dead_letter = dead_letter
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._events: deque[Event] = deque()
        self._ids = self._added = self._written = self._urgent = 0
        # Requests that wait until all events up to a number are on disk.
        self._waiting: deque[tuple[int, Future[None]]] = deque()
        self._closing: float | None = None
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """Return the number of events that wait to be written."""
        return len(self._events)

    async def record(self, event: Event, *, durable: bool) -> None:
        """Queue an event, in parts if it names many images; a full queue makes the request wait.

        A durable event is waited for, until it and all before it are on the disk.

        Raises:
            AuditUnavailableError: The trail takes no events; a durable one stays in the queue.
        """
        deadline = time.monotonic() + self._patience_s
        written: Future[None] | None = Future() if durable else None
        while True:
            with self._changed:
                before = len(self._events)
                if before < _CAPACITY and self._ids < _CAPACITY_IDS:
                    for part in in_parts(event, event.objects):
                        self._events.append(part)
                        self._ids += len(part.objects)
                        self._added += 1
                    if written is not None:
                        self._urgent = self._added
                        self._waiting.append((self._added, written))
                    if durable or before == 0 or before < _BATCH <= len(self._events):
                        self._changed.notify_all()
                    break
            if time.monotonic() > deadline:
                raise AuditUnavailableError("The audit trail takes no events: nothing was answered.")
            await asyncio.sleep(_LOOK_SECONDS)
        if written is not None:
            try:
                await asyncio.wait_for(asyncio.wrap_future(written), max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise AuditUnavailableError(
                    "The change is made, but the audit trail does not take its event yet."
                ) from None

    def close(self) -> None:
        """Write queued events, and end the thread; lost events are logged."""
        with self._changed:
            self._closing = time.monotonic() + _CLOSE_SECONDS
            self._changed.notify_all()
        self._thread.join(2 * _CLOSE_SECONDS)
        if self._events:
            _log.error("events of the audit trail are lost", count=len(self._events))

    def _run(self) -> None:
        failures = 0
        while batch := self._next_batch():
            error = self._append(batch)
            if error is None:
                failures = 0
                self._done(len(batch))
                self._count_written(len(batch))
                continue
            if not failures:
                _log.error("the audit trail cannot be written", error=type(error).__name__)
            failures += not isinstance(error, _PASSING)
            if failures >= _TRIES and self._write_one_by_one(batch, log_failure=failures == _TRIES):
                failures = 0
            elif not self._rest():
                return

    def _append(self, events: list[Event]) -> Exception | None:
        """Write events to the trail; return what failed."""
        try:
            self._trail.append(events)
        except Exception as error:  # noqa: BLE001 - the only thread that writes events tries again
            self._count_failed()
            return error
        return None

    def _write_one_by_one(self, batch: list[Event], *, log_failure: bool) -> bool:
        """Write a batch event by event, and single failing ones as dead letters; return whether none is left.

        If that also fails, it is logged if `log_failure` is set, as it is retried again and again.
        """
        for event in batch:
            error = self._append([event])
            if error is None:
                self._count_written(1)
            # If the trail takes nothing at all, the fault is not the event's.
            elif isinstance(error, _PASSING) or self._append([]) is not None:
                return False
            else:
                try:
                    letter = self._dead_letter(self._trail, event, error)
                except OSError as failure:
                    if log_failure:
                        name = type(failure).__name__
                        _log.error("a dead letter of the audit trail cannot be written", error=name)
                    return False
                name = type(error).__name__
                _log.error("an event that the audit trail does not take is in a file", error=name)
                # Without its name in the trail, the event itself is still on the disk.
                self._append([letter])
            self._done(1)
        return True

    def _next_batch(self) -> list[Event]:
        """Wait for events; none once the recorder is closed and all are written."""
        with self._changed:
            while not self._events and self._closing is None:
                self._changed.wait()
            deadline = time.monotonic() + _BATCH_SECONDS
            while self._closing is None and self._urgent <= self._written and len(self._events) < _BATCH:
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    break
            batch: list[Event] = []
            ids = 0
            for event in islice(self._events, _BATCH):
                ids += len(event.objects)
                if batch and ids > _BATCH_IDS:
                    break
                batch.append(event)
            return batch

    def _rest(self) -> bool:
        """Wait before the next attempt; return whether there is one."""
        with self._changed:
            if self._closing is None:
                self._changed.wait(_RETRY_SECONDS)
                return True
        time.sleep(_LOOK_SECONDS)
        return time.monotonic() < self._closing

    def _done(self, count: int) -> None:
        with self._changed:
            for _ in range(count):
                self._ids -= len(self._events.popleft().objects)
            self._written += count
            while self._waiting and self._waiting[0][0] <= self._written:
                _, written = self._waiting.popleft()
                # False: the request waits no more.
                if written.set_running_or_notify_cancel():
                    written.set_result(None)
