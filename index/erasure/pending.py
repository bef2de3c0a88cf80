"""Erasures that are under way: what each has still to remove, kept until nothing is left."""

import json
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from sqlalchemy import select
from sqlalchemy.orm import Session

from index.catalogue.collections import require_collection
from index.catalogue.storable import storable_text
from index.catalogue.tables import ImageRow
from index.erasure.people import NOBODY, People
from index.errors import CollectionInUseError
from index.files.file_lock import try_lock
from training.atomic import atomic_file

_FOLDER: Final = "erasures"
_AT_ONCE: Final = 500


@dataclass(slots=True)
class PendingErasure:
    """An erasure in a file of the home, from before the first row goes until the last file has gone.

    Attributes:
        path: The file.
        collection: Name of the collection.
        ids: Ids of the images.
        digests: SHA-256 of their files.
        people: Patients and studies whose reports go, too.
        jobs: Numbers of the jobs that name none of them any more.
    """

    path: Path
    collection: str
    ids: list[str]
    digests: list[str]
    people: People = NOBODY
    jobs: set[int] = field(default_factory=set)

    @classmethod
    def begin(
        cls, home: Path, session: Session, collection: str, ids: Sequence[str], people: People = NOBODY
    ) -> Self:
        """Note an erasure before it begins, within `keep_others_away`; one of nothing needs no note.

        Raises:
            UnknownCollectionError: No collection has this name.
            OSError: The file cannot be written.
        """
        # No image has an id that a database cannot hold.
        ids = [name for name in ids if storable_text(name)]
        digests = [sha256 for _, sha256 in _there(session, collection, ids)]
        folder = home / _FOLDER
        begun = cls(folder / f"{secrets.token_hex(8)}.json", collection, ids, digests, people)
        if ids or people != NOBODY:
            begun.save()
        return begun

    def save(self) -> None:
        """Write it to the disk.

        Raises:
            OSError: The file cannot be written.
        """
        values = {
            "collection": self.collection,
            "ids": self.ids,
            "digests": self.digests,
            "patients": self.people.patients,
            "studies": self.people.studies,
            "jobs": sorted(self.jobs),
        }
        with atomic_file(self.path) as file:
            file.write(json.dumps(values).encode())

    def end(self) -> None:
        """Forget it: nothing is left to be removed."""
        self.path.unlink(missing_ok=True)

    def erased_ids(self, session: Session) -> list[str]:
        """Return those of the ids that the collection has no image of."""
        there = {name for name, _ in _there(session, self.collection, self.ids)}
        return [name for name in self.ids if name not in there]


@contextmanager
def keep_others_away(home: Path) -> Iterator[None]:
    """Let no other process or thread erase images of a home while the block runs.

    Raises:
        CollectionInUseError: One does.
        OSError: The folder of the notes cannot be used.
    """
    folder = home / _FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if not try_lock(descriptor):
            raise CollectionInUseError("Other images are being erased: send this again when they are.")
        yield
    finally:
        os.close(descriptor)


def pending_erasures(home: Path) -> Iterator[PendingErasure]:
    """Yield the erasures of a home that were not finished, or are under way.

    Raises:
        OSError: A file cannot be read.
    """
    for path in sorted((home / _FOLDER).glob("*.json")):
        values = json.loads(path.read_bytes())
        # Versions before 0026 of the catalogue noted no people.
        people = People(tuple(values.get("patients", ())), tuple(values.get("studies", ())))
        yield PendingErasure(
            path, values["collection"], values["ids"], values["digests"], people, set(values["jobs"])
        )


def _there(session: Session, collection: str, ids: Sequence[str]) -> list[tuple[str, str]]:
    """Return the ids and the digests of the images that a collection has."""
    found: list[tuple[str, str]] = []
    key = require_collection(session, collection).id
    for start in range(0, len(ids), _AT_ONCE):
        some = ImageRow.external_id.in_(ids[start : start + _AT_ONCE])
        query = select(ImageRow.external_id, ImageRow.sha256).where(ImageRow.collection_id == key, some)
        found += [(row.external_id, row.sha256) for row in session.execute(query)]
    return found
