"""Delete the images that pass a filter, batch by batch; over HTTP and by the command."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Self

import structlog
from pydantic import JsonValue

from app.audit.requests import Noted
from app.audit.trail import filter_parts, open_trail
from app.edge.problems import kind_of
from app.images.schemas.deletion import DeletedImages, ImagesToDelete
from app.images.schemas.writes import Refusal
from app.search.read_search import check_length, invalid
from app.services import Services
from app.settings import Settings
from index.audit.chain import Trail
from index.audit.event import Actor, Detail, Event
from index.catalogue import PAUSE_SECONDS
from index.catalogue.lookup import parts
from index.errors import UnexpectedCountError
from index.filters.grammar import Filter, parse_filter
from index.home import Home
from index.writes.deletion import Matching, delete_unchanged, find_matching, ids_of
from index.writes.live import remove_unused_files
from training.common.errors import RecoquestError

# Images of one request: some ten seconds' work.
MAX_DELETED: Final = 10_000
_SHOWN: Final = 10

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class Deletion:
    """A deletion by filter.

    Attributes:
        matching: The images that passed the filter when it began.
        ids: Ids of the first of them.
        deleted: Number of the images that are gone.
    """

    home: Home
    collection: str
    filter: Filter
    matching: Matching
    ids: tuple[str, ...]
    trail: Trail | None
    actor: Actor
    query: Mapping[str, list[str]]
    details: Mapping[str, Detail]
    request: str | None = None
    deleted: int = field(default=0)

    @classmethod
    def begin(
        cls,
        settings: Settings,
        home: Home,
        collection: str,
        condition: Mapping[str, JsonValue],
        actor: Actor,
        *,
        operation: str,
        request: str | None = None,
        expected: int | None = None,
    ) -> Self:
        """Find the images to delete.

        Args:
            settings: Settings of this process.
            home: Home of the collection.
            collection: Name of the collection.
            condition: The filter, as JSON has it.
            actor: Whoever deletes them, for the audit trail.
            operation: Name of the command or route.
            request: Id of the request.
            expected: Number of images that there must be; None: any.

        Raises:
            FilterError: The filter is none, or does not fit the collection.
            UnknownCollectionError: No collection has this name.
            UnexpectedCountError: The filter finds another number of images.
        """
        parsed = parse_filter(condition)
        with home.catalogue.read() as session:
            matching = find_matching(session, collection, parsed)
            if expected not in (None, len(matching.keys)):
                raise UnexpectedCountError(len(matching.keys), expected)
            ids = ids_of(session, matching.keys[:_SHOWN])
        return cls(
            home=home,
            collection=collection,
            filter=parsed,
            matching=matching,
            ids=tuple(ids),
            trail=open_trail(settings, home.catalogue) if settings.audit else None,
            actor=actor,
            query=filter_parts(condition),
            details={"operation": operation, "matched": len(matching.keys)},
            request=request,
        )

    def delete(self, keys: Sequence[int]) -> None:
        """Delete one batch, and write its event, in one transaction; then the files that nothing uses.

        Images that were changed since the beginning stay: they may not pass the filter any more.

        Raises:
            StaleWriteError: The collection is gone.
            CatalogueError: The catalogue cannot be used; nothing of the batch is deleted.
            DiskFullError: The disk has no space left; nothing of the batch is deleted.
        """
        with self.home.catalogue.write() as session:
            removed = delete_unchanged(session, self.matching, keys)
            if removed and self.trail is not None:
                self.trail.append_in(session, [self._event(list(removed))])
        self.deleted += len(removed)
        remove_unused_files(self.home, set(removed.values()))

    def remaining(self) -> int:
        """Count the images that pass the filter now.

        Raises:
            UnknownCollectionError: The collection is gone.
        """
        with self.home.catalogue.read() as session:
            return len(find_matching(session, self.collection, self.filter).keys)

    def _event(self, ids: list[str]) -> Event:
        return Event(
            action="delete",
            actor=self.actor,
            collection=self.collection,
            objects=ids,
            query=self.query,
            request=self.request,
            details=self.details,
        )


async def delete_by_filter(
    services: Services, collection: str, wanted: ImagesToDelete, actor: Actor, request: str | None
) -> tuple[DeletedImages, Noted]:
    """Delete the images that pass a filter, as many as one request may, or count them.

    Args:
        services: Services of the running application.
        collection: Name of the collection.
        wanted: The filter.
        actor: Whoever sends it.
        request: Id of the request.

    Returns:
        The answer, and what the request's event has of it.

    Raises:
        RequestError: The filter is empty or too long.
        FilterError: The filter is none, or does not fit the collection.
        UnexpectedCountError: The filter finds another number of images than expected.
        RecoquestError: Nothing was deleted, since the catalogue cannot be used.
    """
    if not wanted.filter:
        raise invalid("filter", "An empty filter would delete every image: to do so, delete the collection.")
    check_length("filter", json.dumps(wanted.filter), services.settings.max_filter_length)
    begin = partial(
        Deletion.begin,
        services.settings,
        services.engine.home,
        collection,
        wanted.filter,
        actor,
        operation="delete_matching_images",
        request=request,
        expected=wanted.expected_count,
    )
    deletion = await services.threads.read(begin)
    matched, problem = len(deletion.matching.keys), None
    if not wanted.dry_run:
        problem = await _delete_batches(services, deletion)
    remaining = matched - deletion.deleted
    if problem is None and deletion.deleted:
        try:
            remaining = await services.threads.read(deletion.remaining)
        except RecoquestError as error:
            problem = _refusal("What passes the filter now cannot be counted", error)
    answer = DeletedImages(
        collection=collection,
        dry_run=wanted.dry_run,
        matched=matched,
        deleted=deletion.deleted,
        remaining=remaining,
        ids=list(deletion.ids),
        problem=problem,
    )
    return answer, _noted(deletion, dry_run=wanted.dry_run)


async def _delete_batches(services: Services, deletion: Deletion) -> Refusal | None:
    """Delete batch by batch, each in a turn of its own; return what stopped it after the first."""
    done = 0
    for keys in parts(deletion.matching.keys):
        if done + len(keys) > MAX_DELETED:
            break
        try:
            await services.threads.write(deletion.delete, keys)
        except RecoquestError as error:
            if not deletion.deleted:
                raise
            return _refusal("The deletion stopped in its middle", error)
        done += len(keys)
        await asyncio.sleep(PAUSE_SECONDS)
    return None


def _refusal(what: str, error: RecoquestError) -> Refusal:
    """Describe an error after the first batch, which must not hide that images are gone."""
    _log.warning("a deletion is not whole", error=type(error).__name__)
    kind = kind_of(error)
    detail = f"{what}: {kind.detail or error}"
    return Refusal(type=kind.type, title=kind.title, status=kind.status, detail=detail)


def _noted(deletion: Deletion, *, dry_run: bool) -> Noted:
    """The event of a request; those of batches that deleted something are written with them."""
    return Noted(
        action="browse" if dry_run else None,
        objects=deletion.ids if dry_run else (),
        query=deletion.query,
        recorded=deletion.deleted > 0,
        details={**deletion.details, "dry_run": dry_run},
    )
