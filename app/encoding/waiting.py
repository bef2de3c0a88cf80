"""The waiting line of an encoder: probes before searches before uploads, and uploads in turn all the same."""

from collections import deque

from app.encoding.errors import TOO_SLOW, EncodingTimeoutError, QueueFullError
from app.encoding.jobs import Job, Priority, fail

# Under a constant load of searches, uploads get every fifth pass, of a quarter of a batch: a search waits
# behind few of them, and no upload waits for ever.
_SEARCH_PASSES_IN_A_ROW = 4
_UPLOAD_SHARE = 4
# Oldest batches among which the texts of a batch are chosen by length.
_CHOICE = 2


class PriorityQueue:
    """Queries in order of arrival for each priority; its owner's lock guards it.

    Where more wait than a batch holds, the oldest takes with it those of about its length: a pass costs as
    much for each text as for the longest.

    Each priority has places of its own, so that uploads cannot fill those of searches.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lines: dict[Priority, deque[Job]] = {priority: deque() for priority in Priority}
        self._passes_before_uploads = 0

    def __len__(self) -> int:
        return sum(len(line) for line in self._lines.values())

    def add(self, job: Job, now: float) -> None:
        """Put a query at the end of its line.

        Raises:
            QueueFullError: All places of its priority are taken.
        """
        if len(self._lines[job.priority]) >= self._capacity:
            self.drop_stale(now)
        if len(self._lines[job.priority]) >= self._capacity:
            waiting = "uploads" if job.priority is Priority.UPLOAD else "searches"
            raise QueueFullError(f"Too many {waiting} are waiting; try again in a moment.")
        self._lines[job.priority].append(job)

    def head(self) -> Job | None:
        """The query that the next batch begins with; None if none waits."""
        line = next((self._lines[priority] for priority in self._turn() if self._lines[priority]), None)
        return None if line is None else line[0]

    def count(self, head: Job) -> int:
        """Number of queries that fit a batch with `head`."""
        return sum(job.kind == head.kind for line in self._lines_with(head) for job in line)

    def take(self, limit: int) -> list[Job]:
        """Take the next batch: queries of one kind, at most `limit`, either of uploads or of searches."""
        head = self.head()
        if head is None:
            return []
        if head.priority is Priority.UPLOAD:
            if self._lines[Priority.SEARCH]:
                limit = max(1, limit // _UPLOAD_SHARE)
            self._passes_before_uploads = 0
        elif self._lines[Priority.UPLOAD]:
            self._passes_before_uploads += 1
        batch: list[Job] = []
        for line in self._lines_with(head):
            _move(line, batch, head, limit)
        return batch

    def drop_stale(self, now: float) -> None:
        """Forget queries whose caller has gone or whose deadline has passed."""
        for line in self._lines.values():
            if any(job.future.cancelled() or job.deadline <= now for job in line):
                fail([job for job in line if job.deadline <= now], EncodingTimeoutError(TOO_SLOW))
                kept = [job for job in line if not job.future.done()]
                line.clear()
                line.extend(kept)

    def clear(self) -> list[Job]:
        """Take all queries out."""
        jobs = [job for line in self._lines.values() for job in line]
        for line in self._lines.values():
            line.clear()
        return jobs

    def _turn(self) -> tuple[Priority, ...]:
        if self._passes_before_uploads >= _SEARCH_PASSES_IN_A_ROW:
            return Priority.PROBE, Priority.UPLOAD, Priority.SEARCH
        return tuple(Priority)

    def _lines_with(self, head: Job) -> list[deque[Job]]:
        if head.priority is Priority.UPLOAD:
            return [self._lines[Priority.UPLOAD]]
        return [self._lines[Priority.PROBE], self._lines[Priority.SEARCH]]


def _move(line: deque[Job], batch: list[Job], head: Job, limit: int) -> None:
    """Move queries of a kind from a line to a batch until the batch is full: oldest first, or most alike."""
    fitting = [job for job in line if job.kind == head.kind]
    if line and line[0] is head and len(fitting) > limit:
        # The oldest goes in any case, and the latest have to wait: none stays behind for long.
        fitting = fitting[: _CHOICE * limit]
        fitting.sort(key=lambda job: abs(job.length - head.length))
    moved: set[int] = set()
    for job in fitting:
        if len(batch) == limit:
            break
        moved.add(id(job))
        if job.future.set_running_or_notify_cancel():
            batch.append(job)
    if moved:
        kept = [job for job in line if id(job) not in moved]
        line.clear()
        line.extend(kept)
