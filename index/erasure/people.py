"""Patients and studies whose images and reports are erased."""

import re
from dataclasses import dataclass
from typing import Final, Self

from sqlalchemy.orm import Session

from index.catalogue.collections import require_collection
from index.catalogue.storable import storable_text
from index.reports.received import images_of_people
from training.data.dicom.pseudonyms import keyed_hash

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


def _forms(key: bytes, kind: str, value: str) -> tuple[str, ...]:
    hashed = keyed_hash(key, kind, value)
    return (value, hashed) if _HASH.fullmatch(value) else (hashed,)


def _is_uid(text: str) -> bool:
    return storable_text(text) and re.fullmatch(r"[0-9.]{1,64}", text.strip()) is not None
