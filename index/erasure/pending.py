"""What is erased: patients and studies, and erasures under way, which are kept until nothing is left."""

import json
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from sqlalchemy.orm import Session

from index.catalogue.collections import require_collection
from index.catalogue.lookup import images_named
from index.catalogue.storable import storable_text
from index.errors import CollectionInUseError
from index.files.file_lock import try_lock
from index.reports.received import images_of_people
from training.clinical.pseudonyms import keyed_hash
from training.common.atomic import atomic_file

_FOLDER: Final = "erasures"
_HASH: Final = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class People:
    """Patients by their keyed hashes, and studies by keys such as "study:1.2.3" and "accession:HASH"."""

    patients: tuple[str, ...] = ()
    studies: tuple[str, ...] = ()

    @classmethod
    def of(cls, key: bytes, patient: str | None, study: str | None) -> Self:
        """Return the patient and the study that a person names; the numbers themselves are kept nowhere.

        Args:
            key: Secret of the home folder.
            patient: Patient ID, or its keyed hash as metadata has it.
            study: Study Instance UID, accession number, or the keyed hash of that.
        """
        patients = () if patient is None else _forms(key, "patient", patient)
        if study is None:
            return cls(patients)
        accessions = (f"accession:{form}" for form in _forms(key, "accession", study))
        return cls(patients, (*accessions, *((f"study:{study.strip()}",) if _is_uid(study) else ())))

    def images(self, session: Session, collection: str) -> list[str]:
        """Return the ids of their images in a collection.

        Raises:
            UnknownCollectionError: No collection has this name.
        """
        if not self.patients and not self.studies:
            return []
        return images_of_people(
            session, require_collection(session, collection).id, self.patients, self.studies
        )


NOBODY: Final = People()


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
        there = images_named(session, require_collection(session, collection).id, ids)
        digests = [row.sha256 for row in there.values()]
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
        there = images_named(session, require_collection(session, self.collection).id, self.ids)
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
        people = People(tuple(values["patients"]), tuple(values["studies"]))
        yield PendingErasure(
            path, values["collection"], values["ids"], values["digests"], people, set(values["jobs"])
        )


def _forms(key: bytes, kind: str, value: str) -> tuple[str, ...]:
    hashed = keyed_hash(key, kind, value)
    return (value, hashed) if _HASH.fullmatch(value) else (hashed,)


def _is_uid(text: str) -> bool:
    return storable_text(text) and re.fullmatch(r"[0-9.]{1,64}", text.strip()) is not None
