"""Admission before work: a request that would not be answered in time is refused before its body is read."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPMethod, HTTPStatus
from re import Pattern
from typing import Final

from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.edge.http.addresses import path_of
from app.edge.http.body_limit import declared_length, is_form
from app.edge.http.problem_kinds import BUSY, LATE
from app.edge.http.problems import problem_response
from app.edge.operations import Work, operation_of
from app.edge.server.places import Budget, ConcurrencyLimiter, Place
from app.settings import Settings

_PASSAGE: Final = "recoquest.passage"
_HEALTH: Final = frozenset({"/livez", "/readyz", "/metrics"})
_READING: Final = frozenset({HTTPMethod.GET, HTTPMethod.HEAD, HTTPMethod.OPTIONS})
# Bytes of a body that do not count: searches without images have room beside the largest forms.
_SMALL: Final = 64 << 10
_WRITES: Final = 32
_READS: Final = 256
# An encoder's own deadline gives the better reason: it comes first.
_GRACE_S: Final = 0.5
# Writes embed many images, and changes of a whole collection load or remove all of it.
_WRITE_DEADLINES: Final = 6
_CHANGE_DEADLINES: Final = 60


class BusyError(HTTPException):
    """The service is busy; an HTTPException because the framework lets only those through while it reads."""

    def __init__(self) -> None:
        super().__init__(BUSY.status, _BUSY)


@dataclass(frozen=True, slots=True)
class Stage:
    """Limits of one kind of request: concurrency, and bytes of bodies."""

    places: ConcurrencyLimiter
    bodies: Budget
    refused: Callable[[str], None]

    def refusal(self) -> BusyError:
        """Count a request that is refused."""
        self.refused(self.places.kind)
        return BusyError()


class Stages:
    """The stages of one application; all bodies have one budget, and all pictures that are sent another."""

    def __init__(self, settings: Settings, refused: Callable[[str], None]) -> None:
        bodies = Budget(settings.max_bodies_bytes)
        # Pictures that are made for callers and not yet taken by them.
        self.pictures = Budget(settings.max_bodies_bytes)
        self.root_path = settings.root_path
        deadline = settings.encode_deadline_s
        # One batch is encoded while the queue is full.
        searches = settings.encode_queue_size + settings.encode_batch_size

        def stage(kind: Work, limit: int, deadline_s: float) -> Stage:
            return Stage(ConcurrencyLimiter(kind, limit, deadline_s), bodies, refused)

        self.searches = stage("search", searches, deadline + _GRACE_S)
        # Decoding takes its time: it keeps no place, and says nothing of the time, of searches by text.
        self.image_searches = stage("image-search", settings.encode_queue_size, deadline + _GRACE_S)
        self._kinds: Final[dict[Work, Stage]] = {
            "search": self.searches,
            "image-search": self.image_searches,
            "read": stage("read", _READS, deadline + _GRACE_S),
            "write": stage("write", _WRITES, deadline * _WRITE_DEADLINES),
            "change": stage("change", _WRITES, deadline * _CHANGE_DEADLINES),
        }
        self._declared: Final[list[tuple[set[str], Pattern[str], Work]]] = []

    def learn(self, routes: Iterable[APIRoute]) -> None:
        """Learn the kinds of work that operations declare."""
        for route in routes:
            work = operation_of(route.endpoint).work
            if work is not None:
                self._declared.append((route.methods or set(), route.path_regex, work))

    def of(self, scope: Scope) -> Stage:
        """The stage of a request."""
        method, path = scope["method"], path_of(scope)
        if method in _READING:
            return self._kinds["read"]
        for methods, pattern, work in self._declared:
            if method in methods and pattern.match(path):
                return self._kinds["image-search" if work == "search" and is_form(scope) else work]
        return self._kinds["write"]


class Admission:
    """ASGI middleware: bounds requests at work by kind, bytes of bodies, and the time to an answer.

    A request takes a place when its head has come, leaves it while its body is waited for, and takes one
    again when it has come whole: a caller that is slow to send keeps nobody out. It gives the place back when
    its answer begins. A body counts against the budget as it arrives. Checks of health are never refused.
    """

    def __init__(self, app: ASGIApp, stages: Stages) -> None:
        self.app = app
        self._stages = stages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        if path_of(scope) in _HEALTH:
            await self.app(scope, receive, send)
            return
        stage, declared = self._stages.of(scope), declared_length(scope)
        if stage.places.is_full or not stage.bodies.has_room(max(0, (declared or 0) - _SMALL)):
            # The server throws the body away, so that a caller that still sends it reads the answer.
            refusal = problem_response(BUSY, stage.refusal().detail, scope=scope)
            await refusal(scope, receive, send)
            return
        passage = _Passage(stage, receive, send, declared)
        try:
            await self._within_deadline(scope, passage, stage.places.deadline_s)
        finally:
            passage.end()

    async def _within_deadline(self, scope: Scope, passage: "_Passage", deadline_s: float) -> None:
        try:
            async with passage.timeout:
                passage.enter()
                scope[_PASSAGE] = passage
                await self.app(scope, passage.take, passage.give)
        except TimeoutError:
            if not passage.timeout.expired():
                raise
            detail = f"The request was not answered within {deadline_s:g} s; try again later."
            late = problem_response(LATE, detail, scope=scope)
            await late(scope, passage.take, passage.give)


class _Passage:
    """One request on its way through.

    Attributes:
        timeout: Runs but for the time in which the body is waited for, and ends when the answer begins.
    """

    def __init__(self, stage: Stage, receive: Receive, send: Send, declared: int | None) -> None:
        self.timeout = asyncio.timeout(None)
        self._stage = stage
        self._receive = receive
        self._send = send
        self._whole = declared == 0
        self._received = 0
        self._reserved = 0
        self._place: Place | None = None
        self._answered = False

    def enter(self) -> None:
        """Take the place of a request whose head has come.

        Raises:
            BusyError: No place is free.
        """
        self._begin()

    async def take(self) -> Message:
        """Take a part of the body; after the last one the work goes on.

        Raises:
            BusyError: No place is free any more, or other bodies use up the budget.
        """
        if not self._whole:
            self._pause()
        message = await self._receive()
        if message["type"] == "http.request":
            self._count(len(message.get("body", b"")))
            if not self._whole and not message.get("more_body", False):
                self._whole = True
                if not self._answered:
                    self._begin()
        return message

    def count_as(self, weight: int) -> None:
        """Have a request whose body has come count for several.

        Raises:
            BusyError: There is no room for so many.
        """
        if self._place is None:
            return
        wider = self._stage.places.widen(self._place, weight)
        if wider is None:
            raise self._stage.refusal()
        self._place = wider

    async def give(self, message: Message) -> None:
        """Send a part of the answer; the first one ends the work."""
        if message["type"] == "http.response.start":
            self._answered = True
            if self.timeout.when() is not None and not self.timeout.expired():
                self.timeout.reschedule(None)
            self.end(answered=message["status"] in (HTTPStatus.OK, HTTPStatus.GATEWAY_TIMEOUT))
        await self._send(message)

    def end(self, *, answered: bool = False) -> None:
        """Give back what the request has taken."""
        if self._place is not None:
            self._stage.places.give_back(self._place, answered=answered)
        self._place = None
        self._stage.places.withdraw(self)
        self._stage.bodies.free(self._reserved)
        self._reserved = 0

    def _begin(self) -> None:
        self._stage.places.withdraw(self)
        self._place = self._stage.places.take()
        if self._place is None:
            raise self._stage.refusal()
        self.timeout.reschedule(asyncio.get_running_loop().time() + self._stage.places.deadline_s)

    def _pause(self) -> None:
        """Leave the place while the body is waited for."""
        if self._place is not None and not self._answered:
            self._stage.places.give_back(self._place, answered=False)
            self._place = None
            self._stage.places.announce(self)
            self.timeout.reschedule(None)

    def _count(self, size: int) -> None:
        self._received += size
        more = self._received - _SMALL - self._reserved
        if more > 0:
            if not self._stage.bodies.reserve(more):
                raise self._stage.refusal()
            self._reserved += more


_BUSY: Final = "More requests are at work than the service can answer in time; try again in a moment."


def count_as(scope: Scope, weight: int) -> None:
    """Have a request count for several of its kind until its answer begins.

    Raises:
        BusyError: There is no room for so many.
    """
    passage = scope.get(_PASSAGE)
    if isinstance(passage, _Passage):
        passage.count_as(weight)


def raw_answer(answer: Response) -> bytes:
    """The bytes of a whole HTTP/1.1 answer, for what is answered before there is a request."""
    head = [f"HTTP/1.1 {answer.status_code} {HTTPStatus(answer.status_code).phrase}".encode()]
    head += [name + b": " + value for name, value in answer.raw_headers]
    return b"\r\n".join([*head, b"", bytes(answer.body)])


def raw_refusal(root_path: str, *, close: bool) -> bytes:
    """The bytes of a refusal, for a server that refuses a search without a look at it."""
    headers = {"Cache-Control": "no-store", **({"Connection": "close"} if close else {})}
    return raw_answer(problem_response(BUSY, _BUSY, scope={"root_path": root_path}, headers=headers))
