"""Collections of films: with the metadata of DICOM files, or empty and brought up to date with an archive."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest
from fastapi.testclient import TestClient
from pydicom import Dataset

from app.decoding.films import FilmReader, FilmRules, film_reader
from app.engine import open_engine
from app.radiology.archive import Archive
from app.radiology.listing import Selection
from app.radiology.reports import ReportIntake
from app.radiology.sync import Sync
from app.radiology.sync_report import QuarantineList, SyncReport
from app.settings import Settings
from index.catalogue.collections import find_active
from index.engine import SearchEngine
from index.files.bundles import installed_bundle, register_bundle
from index.generations.models import create_collection
from index.ingest import ingest_manifest
from index.keys.api_keys import Role, create_key
from index.writes.intake import known_images
from tests.access import OPEN, bearer
from tests.app.conftest import Indexed, make_bundle, serve
from tests.dicom_films import uid
from tests.orthanc import OrthancServer
from training.common.manifest import Record, read_manifest, write_manifest
from training.models.bundle import read_bundle
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
    """Index the pictures of a home as films, into an additional collection."""
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


@dataclass
class Home:
    engine: SearchEngine
    settings: Settings
    reader: FilmReader

    def sync(
        self, archive: Archive, selection: Selection | None = None, quarantined: QuarantineList | None = None
    ) -> Sync:
        intake = ReportIntake(self.engine, self.settings, FILMS, "pacs sync")
        return Sync(archive, selection or Selection(), self.reader, intake, quarantined)

    def follow(self, orthanc: OrthancServer, *films: Dataset) -> tuple[Sync, SyncReport]:
        """Store films in an archive and sync with it; return the sync for further passes, and its report."""
        orthanc.store(films)
        sync = self.sync(Archive(orthanc.dicom_web))
        return sync, sync.run()

    def ids(self) -> set[str]:
        return ids_of(self.engine)


def ids_of(engine: SearchEngine) -> set[str]:
    """The films of the collection."""
    with engine.home.catalogue.read() as session:
        active = find_active(session, FILMS)
        assert active is not None
        return set(known_images(session, active[0]))


def sops(*numbers: int) -> set[str]:
    """The ids of films by their numbers."""
    return {uid("film", number) for number in numbers}


@contextmanager
def opened(folder: Path, database: str | None = None, shared: FilmReader | None = None) -> Iterator[Home]:
    """Give a collection without films in a folder, with a reader of its own or by the rules of its home."""
    settings = Settings(home=folder / "home", threads=1, device="cpu", database_url=database, **OPEN)
    engine = open_engine(settings)
    bundle = read_bundle(make_bundle(folder / "bundle", seed=0))
    with (
        installed_bundle(bundle, engine.home.bundles_folder) as info,
        engine.home.catalogue.write() as session,
    ):
        register_bundle(session, info)
    create_collection(engine.home, FILMS, model=bundle.digest)
    with ExitStack() as stack:
        if shared is None:
            reader = stack.enter_context(film_reader(settings))
        else:
            reader, shared.rules = shared, FilmRules.from_settings(settings)
        yield Home(engine, settings, reader)
    engine.close()


@pytest.fixture(scope="session")
def shared_reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FilmReader]:
    """A reader whose processes, which take a second to start, serve one test after the other."""
    with film_reader(
        Settings(home=tmp_path_factory.mktemp("reader"), threads=1, device="cpu", **OPEN)
    ) as made:
        yield made


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def home(request: pytest.FixtureRequest, tmp_path: Path, shared_reader: FilmReader) -> Iterator[Home]:
    """A collection without films, with its catalogue on either database."""
    database = None if request.param == "sqlite" else request.getfixturevalue("postgresql_url")
    with opened(tmp_path, database, shared_reader) as home:
        yield home
