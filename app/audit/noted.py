"""Notes of a route for the audit trail; the rest of an event is known from the address and the answer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fastapi import Request
from starlette.requests import HTTPConnection

from app.access.key_guesses import clients_of
from app.access.principal import principal_of
from app.audit.trail import query_parts
from app.schemas.search.query import SearchQuery
from index.audit.event import Action, Actor, Detail, Outcome
from index.search.results import ActiveGeneration, SearchPage

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


def note_queries(
    request: Request,
    active: ActiveGeneration | None,
    queries: Sequence[SearchQuery],
    objects: Iterable[str],
    files: Sequence[str] = (),
    **details: Detail,
) -> None:
    """Note the queries of a request, and the images that it shows or compares with them.

    Args:
        request: The request.
        active: The generation that was searched; None for a list of a collection without one.
        queries: The queries.
        objects: Ids of the images.
        files: SHA-256 of the image files that were sent.
        details: Further values.
    """
    parts: dict[str, list[str]] = {}
    for query in queries:
        for name, texts in query_parts(query, files).items():
            parts.setdefault(name, []).extend(texts)
    note(
        request,
        Noted(
            objects=list(dict.fromkeys(objects)),
            query=parts,
            model=None if active is None else active.digest,
            generation=None if active is None else active.generation,
            details=details,
        ),
    )


def shown(page: SearchPage) -> list[str]:
    """Return the ids of the images of a page, each once."""
    return list(dict.fromkeys(hit.image.id for hit in page.hits))
