"""Events of searches: what was asked, what was shown, and by which generation."""

from collections.abc import Iterable, Sequence

from fastapi import Request

from app.audit.requests import Noted, note
from app.audit.trail import command_actor, filter_parts, open_trail
from app.search.schemas.page import SearchResponse
from app.search.schemas.query import Example, SearchQuery
from app.settings import Settings
from index.audit.event import Detail, Event
from index.catalogue import Catalogue
from index.search.results import ActiveGeneration, SearchPage


def record_searches(
    settings: Settings,
    catalogue: Catalogue,
    collection: str,
    found: Sequence[tuple[SearchQuery, SearchResponse]],
) -> None:
    """Write searches of a command, with the hits of their pages, to the audit trail, if there is one.

    Raises:
        CatalogueError: The catalogue cannot be written to.
        DiskFullError: The disk has no space left.
        HomeError: The key in the home folder cannot be used.
    """
    if not settings.audit:
        return
    actor = command_actor()
    events = [
        Event(
            action="search",
            actor=actor,
            collection=collection,
            objects=list(dict.fromkeys(hit["id"] for hit in page.hits)),
            query=query_parts(query),
            model=None if page.served_by is None else page.served_by.digest,
            generation=None if page.served_by is None else page.served_by.generation,
            details={"operation": "search", "target": query.target, "limit": query.limit},
        )
        for query, page in found
    ]
    open_trail(settings, catalogue).append(events)


def query_parts(query: SearchQuery, files: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return the parts of a query: texts, examples by their ids, files by their digests, and the filter."""
    parts = {
        "text": [] if query.text is None else [query.text],
        "keywords": [] if query.keywords is None else [query.keywords],
        "like": _ids(query.like),
        "unlike": _ids(query.unlike),
        "like_text": _texts(query.like),
        "unlike_text": _texts(query.unlike),
        "file": list(files),
        "box": [f"{place}: {box.model_dump_json()}" for place, box in query.boxes.items()],
        **filter_parts(query.filter),
    }
    return {name: texts for name, texts in parts.items() if texts}


def _ids(examples: Sequence[Example]) -> list[str]:
    return [example.id for example in examples if example.id is not None]


def _texts(examples: Sequence[Example]) -> list[str]:
    return [example.text for example in examples if example.text is not None]


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
