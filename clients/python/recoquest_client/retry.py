"""When a request is sent again, and after how long."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2

from recoquest_client.call import Call, problem_of
from recoquest_client.errors import UnreachableError

_BUSY = (429, 503)
# Sent again only where the service says when: the first request is still being answered, for one.
_WITH_RETRY_AFTER = (409, 504)
# Nothing of the request has reached the service.
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


@dataclass(frozen=True)
class Retry:
    """How often and when requests are sent again.

    Attributes:
        times: Further attempts after the first; 0: none.
        first_s: Longest pause before the second attempt; it doubles with each.
        longest_s: Longest pause, also of those that the service asks for.
    """

    times: int = 5
    first_s: float = 0.5
    longest_s: float = 30.0


class Attempts:
    """Attempts of one call; each pause is asked for after one that failed."""

    def __init__(self, call: Call[Any], retry: Retry, *, draw: Callable[[], float] = random.random) -> None:
        self._call = call
        self._retry = retry
        self._draw = draw
        self._failed = 0

    def after_answer(self, response: httpx2.Response) -> float | None:
        """Return the seconds until the next attempt; None: the answer is to be read."""
        asked = retry_after(response)
        status = response.status_code
        is_passing = status in _BUSY or (
            status in _WITH_RETRY_AFTER and asked is not None and self._call.is_repeatable
        )
        if not is_passing or self._failed >= self._retry.times or (asked or 0) > self._retry.longest_s:
            return None
        return max(self._pause(), asked or 0.0)

    def after_error(self, error: httpx2.TransportError) -> float:
        """Return the seconds until the next attempt.

        Raises:
            UnreachableError: There is none.
        """
        was_sent = not isinstance(error, _NOT_SENT)
        # A keyed request is settled; a search that took too long would take as long again.
        is_slow = isinstance(error, httpx2.TimeoutException) and was_sent
        may_repeat = not was_sent or self._call.is_repeatable
        if is_slow and "Idempotency-Key" not in self._call.headers:
            may_repeat = False
        if isinstance(error, httpx2.UnsupportedProtocol) or self._failed >= self._retry.times:
            may_repeat = False
        if not may_repeat:
            reason = str(error) or type(error).__name__
            changes = was_sent and not self._call.is_repeatable
            unknown = " Whether it was done is unknown: look before you send it again." if changes else ""
            said = f"The service did not answer {self._call.operation}: {reason}.{unknown}"
            raise UnreachableError(said) from error
        return self._pause()

    def _pause(self) -> float:
        bound: float = min(self._retry.longest_s, self._retry.first_s * 2**self._failed)
        self._failed += 1
        # Clients that failed together do not come back together.
        return bound * (0.5 + self._draw() / 2)


class Following:
    """A stream of a job's events, joined again after breaks; both clients feed it lines."""

    def __init__(self, call: Call[Any], retry: Retry, timeout: float | None) -> None:
        self._call = call
        self._retry = retry
        self._attempts = Attempts(call, retry)
        self._ends = None if timeout is None else time.monotonic() + timeout
        self.has_ended = False

    def read_timeout(self, longest: float) -> float:
        """Return the seconds to wait for the next line."""
        return longest if self._ends is None else max(0.01, min(longest, self._ends - time.monotonic()))

    def progressed(self) -> None:
        """Begin to count attempts anew, as an event came."""
        self._attempts = Attempts(self._call, self._retry)

    def check(self) -> None:
        """Look at the time.

        Raises:
            TimeoutError: The job has not ended in time.
        """
        if self._ends is not None and time.monotonic() >= self._ends:
            raise TimeoutError(f"Job {self._call.names['job']} has not ended in time; it goes on.")

    def after_answer(self, response: httpx2.Response) -> float:
        """Return the seconds until the stream is joined again.

        Raises:
            ProblemError: The service refuses to tell.
            TimeoutError: The job has not ended in time.
        """
        self.check()
        if response.is_success:
            # The service stopped, or a proxy cut the stream.
            return self.after_error(httpx2.RemoteProtocolError("the stream of events ended early"))
        pause = self._attempts.after_answer(response)
        if pause is None:
            raise problem_of(response)
        return pause

    def after_error(self, error: httpx2.TransportError) -> float:
        """Return the seconds until the stream is joined again.

        Raises:
            UnreachableError: It broke too often without news.
            TimeoutError: The job has not ended in time.
        """
        self.check()
        if isinstance(error, httpx2.ReadTimeout):
            # A dead connection, or the time is nearly up.
            error = httpx2.RemoteProtocolError("the stream of events fell silent")
        return self._attempts.after_error(error)


def retry_after(response: httpx2.Response) -> float | None:
    """Return the seconds that an answer asks to wait, by number or date; None: it does not."""
    text = response.headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdecimal():
        return float(text)
    try:
        then = parsedate_to_datetime(text)
    except ValueError:
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=timezone.utc)
    return max(0.0, (then - datetime.now(timezone.utc)).total_seconds())
