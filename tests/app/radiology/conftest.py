"""A collection of films with the metadata of DICOM files: eight studies of three images, of four patients."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import pytest
from fastapi.testclient import TestClient

from index.ingest import ingest_manifest
from index.keys.api_keys import Role, create_key
from tests.access import bearer
from tests.app.conftest import Indexed, serve
from training.common.manifest import Record, read_manifest, write_manifest
from training.models.encoder import load_encoder

FILMS: Final = "films"
IMAGES_OF_A_STUDY: Final = 3
_ROOT: Final = "1.2.826.0.1.3680043.8.498"
_SENTENCES: Final = (
    "Small left pleural effusion.",
    "The heart is enlarged, unchanged.",
    "No pneumothorax.",
    "Both lungs are clear.",
)


def study_uid(study: int) -> str:
    return f"{_ROOT}.{study}"


def sop_uid(number: int) -> str:
    return f"{study_uid(number // IMAGES_OF_A_STUDY)}.1.{number}"


def patient_of(study: int) -> str:
    return f"c0ffee{study // 2:010x}"


def film(record: Record, number: int) -> Record:
    """Return a record with the metadata that the import of DICOM gives an image."""
    study = number // IMAGES_OF_A_STUDY
    sentences = (_SENTENCES[study % 4], _SENTENCES[(study + 1) % 4])
    return replace(
        record,
        id=sop_uid(number),
        group=patient_of(study),
        texts=sentences,
        report=f"INDICATION: Known. {sentences[0]}\nFINDINGS: {sentences[0]} {sentences[1]}",
        metadata={
            "study": study_uid(study),
            "series": f"{study_uid(study)}.1",
            "sop": sop_uid(number),
            "patient": patient_of(study),
            "modality": "DX",
            "view": ("PA", "LL", "AP")[number % IMAGES_OF_A_STUDY],
            "age": 40 + 10 * study,
            "sex": "F" if study % 2 else "M",
            "date": f"2024-01-{1 + study:02}",
        },
    )


def index_films(home: Indexed) -> None:
    """Index the pictures of a home as films, into a collection beside its own."""
    data = home.manifest.folder.parent / FILMS
    data.mkdir()
    (data / "images").symlink_to(home.manifest.folder / "images")
    write_manifest(data, [film(record, number) for number, record in enumerate(home.manifest.records)])
    with home.engine() as engine:
        ingest_manifest(engine, FILMS, load_encoder(home.bundle, "cpu"), read_manifest(data))


def with_key(client: TestClient, role: Role, collection: str) -> dict[str, str]:
    """The header of a caller with a role in a collection of a running service, or in all of them."""
    catalogue = client.app.state.services.engine.home.catalogue  # type: ignore[attr-defined]
    with catalogue.write() as session:
        made = create_key(session, f"{role} {collection}", {collection: frozenset({role})}, days=1)
    return bearer(made.text)


@pytest.fixture(scope="module")
def films(make_indexed: Callable[..., Indexed]) -> Indexed:
    home = make_indexed()
    index_films(home)
    return home


@pytest.fixture(scope="module")
def client(films: Indexed) -> Iterator[TestClient]:
    with serve(films, key=False) as running:
        yield running
