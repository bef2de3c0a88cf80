"""Admission before work: a request that would not be answered in time is refused before its body is read."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import structlog
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.edge.middleware import Methods
from app.edge.operations import OPERATION, Operation, Operations, Work
from app.edge.problems import BUSY, LATE, TOO_LARGE, problem_response, raw_answer
from app.edge.sharing import Count, Sharing
from app.settings import Settings

# Share of the deadline that a new request may be expected to wait. Half of the requests exceed the mean.
_EXPECTED: Final = 0.5
# Weight of the latest request in the moving mean.
_WEIGHT: Final = 0.1
# A body that takes longer is a slow caller's, who keeps nobody out.
_SOON_S: Final = 0.5
# Half-life of the mean while idle: a past load says little about the next one.
_HALF_LIFE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Slot:
    """Place of a request: its start, the number of concurrent requests, and for how many it counts."""

    since: float
    number: int
    weight: int = 1


class ConcurrencyLimiter:
    """Limits the requests of one kind that are at work.

    They are taken when so many requests are at work, or earlier on a machine that is slow: a request waits
    for those before it, so it is expected to take as many times the seconds that each has taken of late.

    Args:
        at_work: Counts those of all processes; None: there is one process.

    Attributes:
        deadline_s: From the end of a request to its answer.
    """

    def __init__(self, kind: str, limit: int, deadline_s: float, at_work: Count | None = None) -> None:
        self.kind = kind
        self.deadline_s = deadline_s
        self._limit = limit
        self._at_work = at_work or Sharing().count()
        self._seconds_each = 0.0
        self._idle_since = time.monotonic()
        self._arriving: dict[int, float] = {}

    @property
    def is_full(self) -> bool:
        """Whether one more request would be too many, with those whose bodies are about to have come."""
        begun = time.monotonic() - _SOON_S
        while self._arriving and next(iter(self._arriving.values())) < begun:
            self._arriving.pop(next(iter(self._arriving)))
        return self._too_many(self._at_work.total + len(self._arriving))

    def announce(self, who: object) -> None:
        """Count a request whose body arrives, until it has come or is late."""
        self._arriving[id(who)] = time.monotonic()

    def withdraw(self, who: object) -> None:
        """Count a request no more as one that arrives."""
        self._arriving.pop(id(who), None)

    def take(self) -> Slot | None:
        """Take a slot; None if there is none."""
        number = self._at_work.total
        if self._too_many(number):
            return None
        if not number:
            idle_s = time.monotonic() - self._idle_since
            self._seconds_each *= 0.5 ** (idle_s / _HALF_LIFE_S)
        self._at_work.own += 1
        return Slot(time.monotonic(), number + 1)

    def widen(self, slot: Slot, weight: int) -> Slot | None:
        """Return the slot of a request that counts for several; None if other requests leave no room."""
        others = self._at_work.total - slot.weight
        if others and self._too_many(others + weight - 1):
            return None
        self._at_work.own += weight - slot.weight
        return Slot(slot.since, others + weight, weight)

    def give_back(self, slot: Slot, *, answered: bool) -> None:
        """Release a slot; `answered` is whether the request was processed to its end."""
        self._at_work.own -= slot.weight
        if not self._at_work.own:
            self._idle_since = time.monotonic()
        if answered:
            each = (time.monotonic() - slot.since) / slot.number
            self._seconds_each += _WEIGHT * (each - self._seconds_each)

    def _too_many(self, others: int) -> bool:
        """Whether one more than these is too many; a lone one never is."""
        late = others > 0 and (others + 1) * self._seconds_each > self.deadline_s * _EXPECTED
        return late or others >= self._limit


class Budget:
    """Bytes of bodies that are being read or worked on; `used` counts those of all processes."""

    def __init__(self, limit: int, used: Count | None = None) -> None:
        self._limit = limit
        self._used = used or Sharing().count()

    def has_room(self, size: int) -> bool:
        """Whether so many bytes could be reserved now; where none are, any number can."""
        if not size:
            return True
        used = self._used.total
        return not used or used + size <= self._limit

    def reserve(self, size: int) -> bool:
        """Reserve bytes that have come; False: there is no room."""
        if not self.has_room(size):
            return False
        self._used.own += size
        return True

    def free(self, size: int) -> None:
        """Give bytes back."""
        self._used.own -= size


_NOT_KEPT: Final = {"Cache-Control": "no-store"}
_BUSY: Final = "More requests are at work than the service can answer in time; try again in a moment."
_PASSAGE: Final = "recoquest.passage"
# Bytes of a body that don't count: searches without images fit next to the largest forms.
_SMALL: Final = 64 << 10
_WRITES: Final = 32
_READS: Final = 256
# An encoder's own deadline gives the better reason: it comes first.
_GRACE_S: Final = 0.5
# Writes embed many images, and changes of a whole collection load or remove all of it.
_WRITE_DEADLINES: Final = 6
_CHANGE_DEADLINES: Final = 60
# Python refuses to read a number of thousands of digits.
_MAX_DIGITS: Final = 18
_LOG_EVERY_S: Final = 5.0

_log = structlog.stdlib.get_logger(__name__)


class BusyError(HTTPException):
    """The service is busy; an HTTPException because the framework lets only those through while it reads."""

    def __init__(self) -> None:
        super().__init__(BUSY.status, _BUSY)


class BodyTooLargeError(HTTPException):
    """More bytes arrived than allowed; an HTTPException because the framework lets only those through."""

    def __init__(self, limit: int) -> None:
        detail = f"The body is larger than {limit:,} bytes, the limit for this kind of content; send less."
        super().__init__(TOO_LARGE.status, detail)


@dataclass(frozen=True, slots=True)
class Stage:
    """Limits of one kind of request: concurrency, and bytes of bodies."""

    limiter: ConcurrencyLimiter
    bodies: Budget
    refused: Callable[[str], None]

    def refusal(self) -> BusyError:
        """Count a request that is refused."""
        self.refused(self.limiter.kind)
        return BusyError()


class Stages:
    """The stages of one application; all bodies have one budget, and all pictures that are sent another."""

    def __init__(
        self, settings: Settings, refused: Callable[[str], None], sharing: Sharing | None = None
    ) -> None:
        sharing = sharing or Sharing()
        bodies = Budget(settings.max_bodies_bytes, sharing.count())
        # Pictures that are made for callers and not yet taken by them.
        self.pictures = Budget(settings.max_bodies_bytes, sharing.count())
        self._max_form_bytes = settings.max_body_bytes
        self._max_other_bytes = settings.max_json_bytes
        deadline = settings.encode_deadline_s
        # One batch is encoded while the queue is full.
        searches = settings.encode_queue_size + settings.encode_batch_size

        def stage(kind: Work, limit: int, deadline_s: float) -> Stage:
            return Stage(ConcurrencyLimiter(kind, limit, deadline_s, sharing.count()), bodies, refused)

        self.searches = stage("search", searches, deadline + _GRACE_S)
        # Decoding is slow: it takes no slot of searches by text, and doesn't count in their mean time.
        self.image_searches = stage("image-search", settings.encode_queue_size, deadline + _GRACE_S)
        self._kinds: Final[dict[Work, Stage]] = {
            "search": self.searches,
            "image-search": self.image_searches,
            "read": stage("read", _READS, deadline + _GRACE_S),
            "write": stage("write", _WRITES, deadline * _WRITE_DEADLINES),
            "change": stage("change", _WRITES, deadline * _CHANGE_DEADLINES),
        }
        self.operations: Final = Operations()
        scope = {"root_path": settings.root_path}
        self._shed_answers = [
            raw_answer(problem_response(BUSY, _BUSY, scope=scope, headers=_NOT_KEPT | closing))
            for closing in ({}, {"Connection": "close"})
        ]
        self._unlogged = 0
        self._logged_at = float("-inf")

    def select(self, operation: Operation, headers: Mapping[bytes, bytes]) -> tuple[Stage | None, int]:
        """The stage of a request, None if it is never refused; and the maximum bytes of its body."""
        form = headers.get(b"content-type", b"").lower().startswith(b"multipart/")
        work: Work = "image-search" if form and operation.work == "search" else operation.work
        large = form or operation.files_in_json
        return self._kinds.get(work), self._max_form_bytes if large else self._max_other_bytes

    def shed(self, scope: Scope, closing: bool) -> bytes | None:
        """Return the answer to a search for which there is no slot; None: the application answers.

        Parsing, routing and logging it would take many times as long, at ten times the capacity all that
        there is. A page of another origin reads no answer without the headers that the application gives.
        """
        full = [stage for stage in (self.searches, self.image_searches) if stage.limiter.is_full]
        if not full:
            return None
        # The first of several headers of one name counts.
        headers = dict(reversed(scope["headers"]))
        stage, _ = self.select(self.operations.match(scope), headers)
        if stage not in full or headers.get(b"origin"):
            return None
        stage.refused(stage.limiter.kind)
        self._unlogged += 1
        now = time.monotonic()
        if now - self._logged_at >= _LOG_EVERY_S:
            _log.warning("searches were refused: too many are at work", number=self._unlogged)
            self._unlogged, self._logged_at = 0, now
        return self._shed_answers[closing]


class Admission:
    """ASGI middleware: bounds requests at work by kind, bytes of bodies, and the time to an answer.

    A request takes a slot when its head has arrived, releases it while it waits for the body, and takes one
    again when the body is complete: a slow sender blocks nobody. It releases the slot when its answer
    begins. A body counts against the budget as it arrives. Checks of health are never refused.
    `Methods` answers HEAD and OPTIONS, and reads ranges.
    """

    def __init__(self, app: ASGIApp, stages: Stages) -> None:
        self.app = app
        self._stages = stages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        # The first of several headers of one name counts.
        headers = dict(reversed(scope["headers"]))
        stage, limit = self._stages.select(scope[OPERATION], headers)
        length = headers.get(b"content-length") or b"0"
        # A body in chunks may have any length.
        chunked = headers.get(b"transfer-encoding") or not length.isdigit()
        declared = 0 if chunked else int(length[: _MAX_DIGITS + 1])
        if declared > limit:
            # The body is left unread, so the connection cannot carry another request.
            closing, detail = {"Connection": "close"}, BodyTooLargeError(limit).detail
            await problem_response(TOO_LARGE, detail, scope=scope, headers=closing)(scope, receive, send)
            return
        app = self.app
        if b"range" in headers or scope["method"] in ("HEAD", "OPTIONS"):
            app = Methods(app)
        if stage is None:
            await app(scope, receive, send)
            return
        if stage.limiter.is_full or (declared > _SMALL and not stage.bodies.has_room(declared - _SMALL)):
            # The server throws the body away, so that a caller that still sends it reads the answer.
            await problem_response(BUSY, stage.refusal().detail, scope=scope)(scope, receive, send)
            return
        passage = scope[_PASSAGE] = _Passage(
            stage, limit, receive, send, is_complete=not (declared or chunked)
        )
        try:
            async with passage.timeout:
                passage.begin()
                await app(scope, passage.take, passage.give)
        except TimeoutError:
            if not passage.timeout.expired():
                raise
            detail = f"The request was not answered within {stage.limiter.deadline_s:g} s; try again later."
            await problem_response(LATE, detail, scope=scope)(scope, passage.take, passage.give)
        finally:
            passage.end()


class _Passage:
    """One request on its way through.

    Attributes:
        timeout: Runs but for the time in which the body is waited for, and ends when the answer begins.
    """

    def __init__(self, stage: Stage, limit: int, receive: Receive, send: Send, *, is_complete: bool) -> None:
        self._is_complete = is_complete
        self.timeout = asyncio.timeout(None)
        self._stage = stage
        self._limit = limit
        self._receive = receive
        self._send = send
        self._received = 0
        self._reserved = 0
        self._slot: Slot | None = None
        self._answered = False

    def begin(self) -> None:
        """Take a slot for a request whose head, or whose body, has arrived."""
        self._slot = self._stage.limiter.take()
        if self._slot is None:
            raise self._stage.refusal()
        self.timeout.reschedule(asyncio.get_running_loop().time() + self._stage.limiter.deadline_s)

    async def take(self) -> Message:
        """Receive a part of the body; after the last one the work begins."""
        if not self._is_complete and not self._answered and self._slot is not None:
            # Release the slot while waiting for the body.
            self._stage.limiter.give_back(self._slot, answered=False)
            self._slot = None
            self._stage.limiter.announce(self)
            self.timeout.reschedule(None)
        message = await self._receive()
        if message["type"] == "http.request":
            self._received += len(message.get("body", b""))
            if self._received > self._limit:
                raise BodyTooLargeError(self._limit)
            more = self._received - _SMALL - self._reserved
            if more > 0:
                if not self._stage.bodies.reserve(more):
                    raise self._stage.refusal()
                self._reserved += more
            if not self._is_complete and not message.get("more_body", False):
                self._is_complete = True
                if not self._answered:
                    self._stage.limiter.withdraw(self)
                    self.begin()
        return message

    def count_as(self, weight: int) -> None:
        """Count a request whose body has arrived as several."""
        if self._slot is None:
            return
        wider = self._stage.limiter.widen(self._slot, weight)
        if wider is None:
            raise self._stage.refusal()
        self._slot = wider

    async def give(self, message: Message) -> None:
        """Send a part of the answer; the first one ends the work."""
        if message["type"] == "http.response.start":
            self._answered = True
            if self.timeout.when() is not None and not self.timeout.expired():
                self.timeout.reschedule(None)
            self.end(answered=message["status"] in (HTTPStatus.OK, HTTPStatus.GATEWAY_TIMEOUT))
        await self._send(message)

    def end(self, *, answered: bool = False) -> None:
        """Release everything that the request has taken."""
        if self._slot is not None:
            self._stage.limiter.give_back(self._slot, answered=answered)
            self._slot = None
        else:
            self._stage.limiter.withdraw(self)
        if self._reserved:
            self._stage.bodies.free(self._reserved)
            self._reserved = 0


def count_as(scope: Scope, weight: int) -> None:
    """Have a request count for several of its kind until its answer begins.

    Raises:
        BusyError: There is no room for so many.
    """
    passage = scope.get(_PASSAGE)
    if isinstance(passage, _Passage):
        passage.count_as(weight)
