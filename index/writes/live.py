"""Writes to a collection that is being searched: each is complete when its function returns."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from index.catalogue.collections import (
    Generation,
    find_active,
    get_generation,
    lock_collection,
    require_collection,
)
from index.catalogue.images import StoredImage, read_image
from index.catalogue.lookup import images_named, storable_text
from index.catalogue.tables import CollectionRow
from index.errors import ConditionError, GenerationError, StaleWriteError, UnknownImageError, shortened
from index.files.orphans import begin_put, collect_orphans, keep_files
from index.home import Home
from index.search.results import ActiveGeneration
from index.writes.deletion import delete_images
from index.writes.images import ImageWrite, Outcome, write_images
from index.writes.intake import KnownImage, known_images
from training.common.errors import RecoquestError
from training.common.manifest import Record

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a write on the present revision of its image (RFC 9110, section 13.1).

    Attributes:
        matches: Revisions of which the image must have one; empty: it must exist. None: no condition.
        differs: Revisions of which the image must have none; empty: it must not exist. None: no condition.
    """

    matches: frozenset[str] | None = None
    differs: frozenset[str] | None = None

    def holds(self, revision: str | None) -> bool:
        """Whether the present revision meets the condition; None: there is none."""
        if self.matches is not None and (revision is None or (self.matches and revision not in self.matches)):
            return False
        return self.differs is None or revision is None or bool(self.differs and revision not in self.differs)

    def check(self, image_id: str, revision: str | None) -> None:
        """Refuse the write of an image, unless its present revision meets the condition."""
        if (self.matches is None and self.differs is None) or self.holds(revision):
            return
        named = shortened(image_id)
        if revision is None:
            raise ConditionError(
                f"There is no image {named!r} any more, and nothing was written: leave If-Match out to put "
                "it in as a new one.",
                None,
            )
        if self.matches and revision not in self.matches:
            raise ConditionError(
                f"The image {named!r} was changed meanwhile, and nothing was written; its ETag is "
                f'"{revision}" now. Get it again, make the change on what it is now, and send that with this '
                "ETag in If-Match.",
                revision,
            )
        raise ConditionError(
            f"There is an image {named!r} already, and nothing was written; its ETag is "
            f'"{revision}". Choose another id, or send that ETag in If-Match, without If-None-Match, to '
            "change it.",
            revision,
        )


UNCONDITIONAL: Final = Condition()


class Changed(NamedTuple):
    """Outcome of a change, and the revision that the image has then."""

    outcome: Outcome
    revision: str


def read_known_images(home: Home, active: ActiveGeneration, ids: Collection[str]) -> dict[str, KnownImage]:
    """Return what the catalogue knows about images, by id, in a generation.

    Raises:
        StaleWriteError: The generation was removed.
    """
    with home.catalogue.read() as session:
        try:
            generation, _ = get_generation(session, active.generation)
        except GenerationError:
            raise _stale(active) from None
        return known_images(session, generation, list(filter(storable_text, ids)))


def put_images(
    home: Home,
    active: ActiveGeneration,
    writes: Sequence[ImageWrite],
    also: Callable[[Session, Mapping[str, Outcome]], None] | None = None,
    *,
    condition: Condition = UNCONDITIONAL,
) -> dict[str, Outcome]:
    """Put images with their files into a collection in one transaction, replacing those of the same id.

    Returns:
        Outcome of each image, by id.

    Raises:
        StaleWriteError: The collection is searched in another generation by now, or an image was changed
            meanwhile; nothing is written, and the same can be done again.
        ConditionError: The condition does not hold of an image; nothing is written.
        UnknownCollectionError: The collection is gone.
        DiskFullError: The disk has no space left; nothing is written.
        StoreError: The disk does not take a file; nothing is written.
    """
    begun = []
    files: dict[str, bytes] = {}
    ids: list[str] = []
    former: set[str] = set()
    for write in writes:
        ids.append(write.record.id)
        if write.new_file is not None:
            files[write.new_file] = write.content
    try:
        if files:
            # Noted before they are there: a crash leaves no unknown file.
            with home.catalogue.write() as session:
                begun = [begin_put(session, files)]
        home.store.put_all(files.values())
        with home.catalogue.write() as session:
            generation = _locked(session, active)
            stored = images_named(session, generation.collection_id, ids)
            for image_id in ids:
                row = stored.get(image_id)
                condition.check(image_id, None if row is None else row.revision)
                if row is not None:
                    former.add(row.sha256)
            outcomes = write_images(session, generation, writes, stored)
            keep_files(session, home.store, files, files.__getitem__, begun)
            if also is not None:
                also(session, outcomes)
    except BaseException:
        remove_unused_files(home, files, begun)
        raise
    if files:
        remove_unused_files(home, former - files.keys())
    return outcomes


def change_image(
    home: Home,
    active: ActiveGeneration,
    image_id: str,
    change: Callable[[Record], Record],
    text_vectors: Mapping[str, bytes],
    condition: Condition = UNCONDITIONAL,
    also: Callable[[Session], None] | None = None,
) -> Changed:
    """Change the record of an image; its file and vector stay.

    `also` is done at the end of the transaction, if the image is another one by it.

    Raises:
        ConditionError: The condition does not hold; nothing is written.
        StaleWriteError: The collection is searched in another generation by now; nothing is written.
        UnknownCollectionError: The collection is gone.
        UnknownImageError: The collection has no image of this id.
        DiskFullError: The disk has no space left; nothing is written.
    """
    with home.catalogue.read() as session:
        image = read_image(session, active.collection, image_id)
    # Made of what is there before the lock, and again only where it was changed meanwhile.
    write = _changed(image, change, text_vectors)
    with home.catalogue.write() as session:
        generation = _locked(session, active)
        before, image = image, read_image(session, active.collection, image_id)
        condition.check(image_id, image.revision)
        if image.revision != before.revision:
            write = _changed(image, change, text_vectors)
        if write is None:
            return Changed("unchanged", image.revision)
        outcome = write_images(session, generation, [write])[image_id]
        if also is not None and outcome != "unchanged":
            also(session)
        return Changed(outcome, write.revision)


def _changed(
    image: StoredImage, change: Callable[[Record], Record], text_vectors: Mapping[str, bytes]
) -> ImageWrite | None:
    """Return the write of an image's new record; None if it is the present one."""
    before = image.record
    record = change(before)
    if record == before:
        return None
    return ImageWrite(record, None, image.sha256, text_vectors)


def remove_image(home: Home, collection: str, image_id: str, condition: Condition = UNCONDITIONAL) -> None:
    """Remove one image from a collection, with its file if no other image uses it.

    Raises:
        ConditionError: The condition does not hold; nothing is removed.
        UnknownCollectionError: No collection has this name.
        UnknownImageError: The collection has no image of this id.
        DiskFullError: The disk has no space left; nothing is removed.
    """
    with home.catalogue.write() as session:
        collection_id = require_collection(session, collection).id
        lock_collection(session, collection_id)
        image = images_named(session, collection_id, [image_id]).get(image_id)
        if image is None:
            raise UnknownImageError(collection, image_id)
        condition.check(image_id, image.revision)
        removed = delete_images(session, collection, [image_id])
    remove_unused_files(home, set(removed.values()))


def remove_images(
    home: Home,
    collection: str,
    ids: Sequence[str],
    also: Callable[[Session, Sequence[str]], None] | None = None,
) -> list[str]:
    """Remove images from a collection, with their files if no other image uses them.

    `also` is done at the end of the transaction, with the ids of those that were there, if there were any.

    Returns:
        The ids of those that were there.
    """
    with home.catalogue.write() as session:
        removed = delete_images(session, collection, ids)
        if removed and also is not None:
            also(session, list(removed))
    remove_unused_files(home, set(removed.values()))
    return list(removed)


def _locked(session: Session, active: ActiveGeneration) -> Generation:
    """Return the generation, still the active one, of a collection that nobody else can write to now."""
    # On SQLite the transaction itself is the lock.
    session.execute(select(CollectionRow.id).where(CollectionRow.name == active.collection).with_for_update())
    active_now = find_active(session, active.collection)
    if active_now is None:
        require_collection(session, active.collection)
    if active_now is None or active_now[0].id != active.generation:
        raise _stale(active)
    return active_now[0]


def _stale(active: ActiveGeneration) -> StaleWriteError:
    return StaleWriteError(
        f"Collection {active.collection!r} is searched with another generation by now, and nothing was "
        "written: send it again."
    )


def remove_unused_files(home: Home, digests: Collection[str], begun: Collection[int] = ()) -> None:
    """Remove those of these files that no image uses; what fails is done by the next start.

    `begun` has the notes of a write that was given up; see `index.files.orphans`.
    """
    if not digests:
        return
    try:
        collect_orphans(home.catalogue, home.store, digests, begun)
    except RecoquestError as error:
        _log.warning("files that no image uses are not removed yet: %s", error)
