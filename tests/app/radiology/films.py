"""A collection whose images belong to studies, and what the catalogue holds of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from index.catalogue.images import StoredImage, read_image
from index.engine import SearchEngine
from index.keys.home_secret import patient_key
from index.writes.live import change_image
from tests.app.conftest import COLLECTION, Indexed
from tests.training.clinical.reports.documents import ACCESSION, PATIENT, STUDY
from training.clinical.pseudonyms import keyed_hash
from training.common.record import Record


def give_studies(indexed: Indexed) -> None:
    """Give two images the study of the documents, a third an accession number, a fourth another patient."""
    key = patient_key(indexed.settings.home)
    patient = keyed_hash(key, "patient", PATIENT)
    accession = keyed_hash(key, "accession", ACCESSION)
    details: dict[str, dict[str, Any]] = {
        "image-1": {"study": STUDY, "accession": accession, "patient": patient},
        "image-2": {"study": STUDY, "accession": accession, "patient": patient},
        "image-3": {"accession": keyed_hash(key, "accession", "A3"), "patient": patient},
        "image-4": {"study": f"{STUDY}.4", "patient": "another"},
    }
    with indexed.engine() as engine:
        for name, own in details.items():
            set_details(engine, name, own)


def set_details(engine: SearchEngine, name: str, details: dict[str, Any]) -> None:
    """Give an image metadata, and take its texts away."""

    def change(record: Record) -> Record:
        return replace(record, metadata=details, texts=(), report=None, labels=("own",))

    change_image(engine.home, engine.active(COLLECTION), name, change, {})


def stored(indexed: Indexed, name: str) -> StoredImage:
    with indexed.read() as session:
        return read_image(session, COLLECTION, name)


def holding(folder: Path, marker: str) -> list[str]:
    """Return the files below a folder that hold a marker, in any case."""
    expected = marker.lower().encode()
    files = (path for path in folder.rglob("*") if path.is_file())
    return [
        path.name
        for path in files
        if expected in path.read_bytes().lower() or expected in path.name.lower().encode()
    ]
