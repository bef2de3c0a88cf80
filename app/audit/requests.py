"""The event of each request that searched, saw, exported, judged or changed something, or was refused.

A route notes parts of it; the rest follows from the address and the answer.
"""

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from fastapi import Request
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Scope

from app.audit.recorder import AuditUnavailableError, Recorder
from app.edge.operations import OPERATION
from app.edge.principal import clients_of, principal_of
from app.edge.problems import Kind, problem_response
from index.audit.event import Action, Actor, Detail, Event, Outcome

_STATE = "audited"


@dataclass(slots=True)
class Noted:
    """Parts of an event; see `index.audit.event.Event`.

    Attributes:
        action: Kind of event; None: that of the operation.
        recorded: Whether the event was already written, with the change that it records.
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


def note(request: Request, noted: Noted) -> None:
    """Note parts of the event of a request."""
    setattr(request.state, _STATE, noted)


_UNAVAILABLE: Final = Kind(
    "audit-unavailable", "The audit trail takes no events", HTTPStatus.SERVICE_UNAVAILABLE, retry_after_s=5
)
# Actions of operations that change nothing.
_READING: Final[frozenset[Action]] = frozenset({"search", "browse", "view", "export", "audit"})
_REFUSED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
# Refusals of one address are recorded this often at most, and then with the number of those between.
_REFUSALS_SECONDS: Final = 1.0
# Thumbnails of images that the same caller was shown of late are part of that.
_SHOWN_SECONDS: Final = 600.0
_MAX_REMEMBERED: Final = 50_000


@dataclass(slots=True)
class AuditTrail:
    """Records the events of requests.

    An event is queued before its answer begins, and one of a change is on the disk by then.
    """

    shown: OrderedDict[tuple[str | None, ...], float] = field(default_factory=OrderedDict)
    refused: OrderedDict[str, float] = field(default_factory=OrderedDict)
    unrecorded: Counter[str] = field(default_factory=Counter)

    async def __call__(self, scope: Scope, status: int) -> Response | None:
        """Record the event of a request that is about to be answered; return what it is answered instead."""
        recorder: Recorder | None = scope["app"].state.services.recorder
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
        state: dict[str, Any] = scope["state"]
        noted: Noted = state.get(_STATE) or Noted()
        endpoint, parameters = scope.get("endpoint"), scope.get("path_params", {})
        operation = getattr(endpoint, "__name__", "")
        if status in _REFUSED or (noted.outcome == "failure" and status < HTTPStatus.BAD_REQUEST):
            return self._refusal(scope, {**noted.details, "operation": operation, "status": status})
        if status >= HTTPStatus.BAD_REQUEST and not noted.unknown:
            return None
        action: Action | None = scope[OPERATION].audit
        if scope["method"] == "HEAD" and action == "export":
            # The headers alone were sent.
            action = "view"
        if action is None or noted.recorded:
            return None
        details: dict[str, Detail] = {"operation": operation, "status": status, **noted.details}
        if "job" in parameters:
            details.setdefault("job", parameters["job"])
        if state.get("alias") is not None:
            details["alias"] = state["alias"]
        objects = noted.objects
        if objects is None:
            objects = (parameters["image_id"],) if "image_id" in parameters else ()
        number = parameters.get("number")
        event = Event(
            action=noted.action or action,
            actor=actor_of(HTTPConnection(scope)),
            collection=noted.collection or parameters.get("collection"),
            objects=objects,
            query=noted.query,
            outcome="failure" if noted.unknown else "success",
            model=noted.model or parameters.get("digest"),
            generation=noted.generation or (int(number) if number is not None else None),
            request=state.get("request_id"),
            details=details,
        )
        return event if self._is_news(event, seen=scope[OPERATION].picture == "thumbnail") else None

    def _is_news(self, event: Event, *, seen: bool) -> bool:
        """Return whether an event shows more than thumbnails that the caller was recently shown."""
        if event.action not in ("search", "browse", "view"):
            return True
        now, actor = time.monotonic(), event.actor
        # Texts compare faster than actors do.
        caller = actor.kind, actor.id, actor.name, actor.address, event.collection
        for image in event.objects:
            key = (*caller, image)
            seen = seen and self.shown.get(key, -math.inf) > now - _SHOWN_SECONDS
            self.shown[key] = now
            self.shown.move_to_end(key)
        while len(self.shown) > _MAX_REMEMBERED:
            self.shown.popitem(last=False)
        return not seen

    def _refusal(self, scope: Scope, details: Mapping[str, Detail]) -> Event | None:
        connection, now = HTTPConnection(scope), time.monotonic()
        # Callers can forge the addresses that a proxy forwards, but not their own.
        address = clients_of(connection)[-1]
        if self.refused.get(address, -math.inf) > now - _REFUSALS_SECONDS:
            if len(self.unrecorded) < _MAX_REMEMBERED:
                self.unrecorded[address] += 1
            return None
        self.refused[address] = now
        self.refused.move_to_end(address)
        if len(self.refused) > _MAX_REMEMBERED:
            self.refused.popitem(last=False)
        return Event(
            action="sign-in",
            actor=actor_of(connection),
            outcome="failure",
            collection=scope.get("path_params", {}).get("collection"),
            request=scope["state"].get("request_id"),
            details={**details, "unrecorded_before": self.unrecorded.pop(address, 0)},
        )
