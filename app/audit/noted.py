"""Notes of a route for the audit trail; the rest of an event is known from the address and the answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fastapi import Request
from starlette.requests import HTTPConnection

from app.edge.key_guesses import clients_of
from app.edge.principal import principal_of
from index.audit.event import Action, Actor, Detail, Outcome

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
