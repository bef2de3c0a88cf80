"""Notes of a route for the audit trail; the rest of an event is known from the address and the answer."""

from collections.abc import Mapping, Sequence
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


def note_search(
    request: Request,
    active: ActiveGeneration | None,
    query: SearchQuery,
    files: Sequence[str],
    page: SearchPage,
) -> None:
    """Note a search and the hits that it shows.

    Args:
        request: The request.
        active: The generation that was searched; None for a list of a collection without one.
        query: The search.
        files: SHA-256 of the image files that were sent.
        page: The hits.
    """
    details: dict[str, Detail] = {
        "target": query.target,
        "limit": query.limit,
        "later_page": isinstance(query.cursor, str),
    }
    note(
        request,
        Noted(
            objects=shown(page),
            query=query_parts(query, files),
            model=None if active is None else active.digest,
            generation=None if active is None else active.generation,
            details=details,
        ),
    )


def note_map(
    request: Request, active: ActiveGeneration, query: SearchQuery, files: Sequence[str], image: str
) -> None:
    """Note what an image was compared with.

    Args:
        request: The request.
        active: The generation whose model compared them.
        query: The query.
        files: SHA-256 of the image files that were sent.
        image: Id of the image.
    """
    note(
        request,
        Noted(
            objects=[image],
            query=query_parts(query, files),
            model=active.digest,
            generation=active.generation,
        ),
    )


def note_batch(
    request: Request,
    active: ActiveGeneration,
    answered: Sequence[tuple[SearchQuery, SearchPage]],
) -> None:
    """Note searches of one request, and the hits that any of them shows.

    Args:
        request: The request.
        active: The generation that was searched.
        answered: The searches that had no problem, with their hits.
    """
    parts: dict[str, list[str]] = {}
    for query, _ in answered:
        for name, texts in query_parts(query).items():
            parts.setdefault(name, []).extend(texts)
    note(
        request,
        Noted(
            objects=list(dict.fromkeys(id for _, page in answered for id in shown(page))),
            query=parts,
            model=active.digest,
            generation=active.generation,
            details={"searches": len(answered)},
        ),
    )


def shown(page: SearchPage) -> list[str]:
    """Return the ids of the images of a page, each once."""
    return list(dict.fromkeys(hit.image.id for hit in page.hits))
