"""A collection, and what brings it up to date with the archive of the tests."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.decoding.films import FilmReader, FilmRules, film_reader
from app.engine import open_engine
from app.radiology.archive import Archive
from app.radiology.listing import Selection
from app.radiology.reports import ReportIntake
from app.radiology.sync import Sync
from app.radiology.sync_report import QuarantineList
from app.settings import Settings
from index.catalogue.collections import find_active
from index.engine import SearchEngine
from index.files.bundles import installed_bundle, register_bundle
from index.generations.models import create_collection
from index.writes.intake import known_images
from tests.access import OPEN
from tests.app.conftest import make_bundle
from tests.dicom_films import uid
from training.models.bundle import read_bundle

COLLECTION = "films"


@dataclass
class Home:
    engine: SearchEngine
    settings: Settings
    reader: FilmReader

    def sync(
        self,
        archive: Archive,
        selection: Selection | None = None,
        quarantined: QuarantineList | None = None,
    ) -> Sync:
        intake = ReportIntake(self.engine, self.settings, COLLECTION, "pacs sync")
        return Sync(archive, selection or Selection(), self.reader, intake, quarantined)

    def ids(self) -> set[str]:
        return ids_of(self.engine)


def ids_of(engine: SearchEngine) -> set[str]:
    """The films of the collection."""
    with engine.home.catalogue.read() as session:
        found = find_active(session, COLLECTION)
        assert found is not None
        return set(known_images(session, found[0]))


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
    create_collection(engine.home, COLLECTION, model=bundle.digest)
    with ExitStack() as stack:
        if shared is None:
            reader = stack.enter_context(film_reader(settings))
        else:
            reader, shared.rules = shared, FilmRules.of(settings)
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
def films(request: pytest.FixtureRequest, tmp_path: Path, shared_reader: FilmReader) -> Iterator[Home]:
    """A collection without films, with its catalogue on either database."""
    database = None if request.param == "sqlite" else request.getfixturevalue("postgresql_url")
    with opened(tmp_path, database, shared_reader) as home:
        yield home
