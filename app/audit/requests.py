"""The event of each request that searched, saw, exported, judged or changed something, or was refused.

A route notes parts of it; the rest is known from the address and the answer.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from fastapi import Request
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Scope

from app.audit.recorder import AuditUnavailableError, Recorder
from app.edge.operations import operation_of
from app.edge.principal import clients_of, principal_of
from app.edge.problems import Kind, problem_response
from index.audit.event import Action, Actor, Detail, Event, Outcome

_STATE = "audited"


@dataclass(slots=True)
class Noted:
    """Parts of an event; see `index.audit.event.Event`.

    Attributes:
        action: Kind of event; None: that of the operation.
        recorded: Whether the event was written already, with what it tells of.
        unknown: Whether something may have been done although the answer fails, as where an archive did not
            answer in time: the event is written, as a failure.
        outcome: `failure` where the answer leads somewhere, but nothing was done, as after a failed sign-in.
    """

    action: Action | None = None
    collection: str | None = None
    objects: Sequence[str] | None = None
    query: Mapping[str, Sequence[str]] | None = None
    model: str | None = None
    generation: int | None = None
    recorded: bool = False
    unknown: bool = False
    outcome: Outcome = "success"
    details: dict[str, Detail] = field(default_factory=dict)


def actor_of(connection: HTTPConnection) -> Actor:
    """Return the caller of a request, as the audit trail names it."""
    principal = principal_of(connection)
    return Actor(principal.kind, principal.id, principal.name, clients_of(connection)[0])


def noted_of(state: Mapping[str, object]) -> Noted:
    """Return what was noted in the state of a request."""
    found = state.get(_STATE)
    return found if isinstance(found, Noted) else Noted()


def note(request: Request, noted: Noted) -> None:
    """Note parts of the event of a request."""
    setattr(request.state, _STATE, noted)


_UNAVAILABLE: Final = Kind(
    "audit-unavailable", "The audit trail takes no events", HTTPStatus.SERVICE_UNAVAILABLE, retry_after_s=5
)
# Actions of operations that change nothing.
_READING: Final[frozenset[Action]] = frozenset({"search", "browse", "view", "export", "audit"})
_THUMBNAIL: Final = "get_thumbnail"
_SAFE: Final = ("GET", "HEAD", "OPTIONS")
_REFUSED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
# Refusals of one address are recorded this often at most, and then with the number of those between.
_REFUSALS_SECONDS: Final = 1.0
# Thumbnails of images that the same caller was shown of late are part of that.
_SHOWN_SECONDS: Final = 600.0
_MAX_REMEMBERED: Final = 50_000


@dataclass(slots=True)
class _Recent:
    """Keys with the time when each was last noted, the latest only."""

    seconds: float
    times: "OrderedDict[object, float]" = field(default_factory=OrderedDict)

    def has(self, key: object) -> bool:
        """Whether a key was noted of late."""
        return time.monotonic() - self.times.get(key, -self.seconds) < self.seconds

    def note(self, key: object) -> None:
        """Note a key now."""
        self.times[key] = time.monotonic()
        self.times.move_to_end(key)
        if len(self.times) > _MAX_REMEMBERED:
            self.times.popitem(last=False)


@dataclass(slots=True)
class AuditTrail:
    """Records the events of requests.

    An event is queued before its answer begins, and one of a change is on the disk by then.
    """

    recorder_of: Callable[[Scope], Recorder | None]
    shown: _Recent = field(default_factory=lambda: _Recent(_SHOWN_SECONDS))
    refusals: _Recent = field(default_factory=lambda: _Recent(_REFUSALS_SECONDS))
    unrecorded: dict[str, int] = field(default_factory=dict)

    async def __call__(self, scope: Scope, status: int) -> Response | None:
        """Record the event of a request that is about to be answered; return what it is answered instead."""
        recorder = self.recorder_of(scope)
        event = None if recorder is None else self._event(scope, status)
        if recorder is None or event is None:
            return None
        refused = event.action == "sign-in" and event.outcome == "failure"
        try:
            await recorder.record(event, durable=event.action not in _READING and not refused)
        except AuditUnavailableError as error:
            return problem_response(_UNAVAILABLE, str(error), scope=scope)
        return None

    def _event(self, scope: Scope, status: int) -> Event | None:
        operation = getattr(scope.get("endpoint"), "__name__", "")
        noted = noted_of(scope["state"])
        if status in _REFUSED or (noted.outcome == "failure" and status < HTTPStatus.BAD_REQUEST):
            return self._refusal(scope, operation, status, noted.details)
        if status >= HTTPStatus.BAD_REQUEST and not noted.unknown:
            return None
        action = operation_of(scope.get("endpoint")).audit
        if action is None and scope["method"] not in _SAFE:
            action = "change"
        if scope["method"] == "HEAD" and action == "export":
            # The headers alone were sent.
            action = "view"
        if action is None or noted.recorded:
            return None
        event = _described(scope, noted.action or action, operation, status)
        return event if self._is_news(event, operation) else None

    def _is_news(self, event: Event, operation: str) -> bool:
        """Tell whether an event shows more than thumbnails of images that the caller was shown of late."""
        if event.action not in ("search", "browse", "view"):
            return True
        keys = [(event.actor, event.collection, image) for image in event.objects]
        known = operation == _THUMBNAIL and all(self.shown.has(key) for key in keys)
        for key in keys:
            self.shown.note(key)
        return not known

    def _refusal(
        self, scope: Scope, operation: str, status: int, details: Mapping[str, Detail]
    ) -> Event | None:
        actor = actor_of(HTTPConnection(scope))
        # Callers invent the addresses that a proxy forwards for, but not the one that they come from.
        address = clients_of(HTTPConnection(scope))[-1]
        if self.refusals.has(address):
            if len(self.unrecorded) < _MAX_REMEMBERED:
                self.unrecorded[address] = self.unrecorded.get(address, 0) + 1
            return None
        self.refusals.note(address)
        between = self.unrecorded.pop(address, 0)
        return Event(
            action="sign-in",
            actor=actor,
            outcome="failure",
            collection=_parameter(scope, "collection"),
            request=scope["state"].get("request_id"),
            details={**details, "operation": operation, "status": status, "unrecorded_before": between},
        )


def _described(scope: Scope, action: Action, operation: str, status: int) -> Event:
    state: dict[str, Any] = scope["state"]
    noted = noted_of(state)
    details: dict[str, Detail] = {"operation": operation, "status": status, **noted.details}
    job = _parameter(scope, "job")
    if job is not None:
        details.setdefault("job", job)
    if state.get("alias") is not None:
        details["alias"] = state["alias"]
    image, number = _parameter(scope, "image_id"), _parameter(scope, "number")
    objects: Sequence[str] = () if image is None else (image,)
    return Event(
        action=action,
        actor=actor_of(HTTPConnection(scope)),
        collection=noted.collection or _parameter(scope, "collection"),
        objects=objects if noted.objects is None else noted.objects,
        query=noted.query,
        outcome="failure" if noted.unknown else "success",
        model=noted.model or _parameter(scope, "digest"),
        generation=noted.generation or (int(number) if number is not None else None),
        request=state.get("request_id"),
        details=details,
    )


def _parameter(scope: Scope, name: str) -> str | None:
    value = scope.get("path_params", {}).get(name)
    return None if value is None else str(value)
