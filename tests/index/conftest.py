"""What tests of the index share."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from index.catalogue import Catalogue, open_catalogue
from index.engine import SearchEngine
from tests.index.homes import open_home
from tests.index.orders import PLACES, Filled, fill
from tests.index.samples import ingest, make_bundle, make_manifest, make_records
from training.common.manifest import Manifest
from training.models.bundle import BundleInfo
from training.models.encoder import Encoder, load_encoder


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def catalogue_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The catalogue of `engine`, on either database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'home' / 'catalogue.db'}"
    url: str = request.getfixturevalue("postgresql_url")
    return url


@pytest.fixture
def catalogue(catalogue_url: str) -> Iterator[Catalogue]:
    """A catalogue alone, on either database."""
    with closing(open_catalogue(catalogue_url)) as opened:
        yield opened


@pytest.fixture
def engine(tmp_path: Path, catalogue_url: str) -> Iterator[SearchEngine]:
    with closing(open_home(tmp_path / "home", catalogue_url)) as opened:
        yield opened


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SearchEngine]:
    """An engine on SQLite, independent of `engine`."""
    with closing(open_home(tmp_path / "home")) as opened:
        yield opened


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """Collections of each kind of model, which no test writes to."""
    with closing(open_home(tmp_path_factory.mktemp("filled"))) as engine:
        yield fill(engine)[0]


@pytest.fixture
def few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make small collections reach the ranks behind the fused lists."""
    for name in (
        "index.search.orders.FUSED_DEPTH",
        "index.engine.FUSED_DEPTH",
        "index.search.orders.DIVERSE_DEPTH",
    ):
        monkeypatch.setattr(name, PLACES)


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> BundleInfo:
    return make_bundle(tmp_path_factory.mktemp("bundles") / "tiny")


@pytest.fixture(scope="session")
def encoder(bundle: BundleInfo) -> Encoder:
    return load_encoder(bundle.folder, "cpu")


@pytest.fixture(scope="session")
def other_encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    folder = tmp_path_factory.mktemp("bundles") / "other"
    return load_encoder(make_bundle(folder, seed=1, name="other").folder, "cpu")


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return make_manifest(tmp_path / "data", make_records(20))


@pytest.fixture
def indexed(engine: SearchEngine, encoder: Encoder, manifest: Manifest) -> SearchEngine:
    """An engine whose collection c has the images of `manifest`."""
    ingest(engine, encoder, manifest)
    return engine
