"""Jobs and the audit trail."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import httpx2

from recoquest_client import answers, operations
from recoquest_client.client.connection import Connection
from recoquest_client.events import EventReader
from recoquest_client.retry import Following

# The service sends a comment every 15 s.
_SILENCE = 45.0


class Jobs(Connection):
    """Jobs and the audit trail."""

    def start_job(self, kind: str, **arguments: object) -> answers.Job:
        """Give a job to the workers, such as `start_job("reindex", collection="cxr", generation=1)`."""
        return self._send(operations.create_job(kind, arguments))

    def jobs(
        self, *, state: str | None = None, kind: str | None = None, page_size: int = 100
    ) -> Iterator[answers.Job]:
        """Iterate over jobs, the latest first."""
        call = operations.list_jobs(state, kind, page_size)
        for page in self._pages(call, lambda page: page.next_cursor):
            yield from page.jobs

    def job(self, number: int) -> answers.Job:
        """Return a job."""
        return self._send(operations.get_job(number))

    def cancel_job(self, number: int) -> answers.Job:
        """End a job before its time."""
        return self._send(operations.cancel_job(number))

    def stream(self, job: int, *, timeout: float | None = None) -> Iterator[answers.Job]:
        """Give a job now and after every change until it has ended; joined again after a break.

        Raises:
            TimeoutError: It has not ended within so many seconds.
            UnreachableError: The stream broke too often without news.
            ProblemError: The service ends the stream, as the key was revoked; the job goes on.
        """
        call = operations.stream_job_events(job)
        following = Following(call, self._retry, timeout)
        events = EventReader()
        while not events.has_ended:
            try:
                with call.opened() as files:
                    request = self._http.build_request(
                        **call.arguments(files, following.read_timeout(_SILENCE))
                    )
                response = self._http.send(request, stream=True)
                try:
                    if response.is_success:
                        events.begin()
                        for line in response.iter_lines():
                            following.check()
                            if (found := events.read(line)) is not None:
                                following.progressed()
                                yield found
                            if events.has_ended:
                                return
                    else:
                        response.read()
                    pause = following.after_answer(response)
                finally:
                    response.close()
            except httpx2.TransportError as error:
                pause = following.after_error(error)
            time.sleep(pause)

    def wait(self, job: int, *, timeout: float | None = None) -> answers.Job:
        """Wait until a job has ended, and return it: done, failed or cancelled.

        Raises:
            TimeoutError: It has not ended within so many seconds; it goes on.
        """
        *_, last = self.stream(job, timeout=timeout)
        return last

    def audit(
        self,
        *,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        collection: str | None = None,
        action: str | None = None,
        page_size: int = 100,
    ) -> Iterator[answers.AuditEvent]:
        """Iterate over events of the audit trail, the oldest first."""
        call = operations.list_audit(since, until, collection, action, page_size)
        for page in self._pages(call, lambda page: page.next_cursor):
            yield from page.events
