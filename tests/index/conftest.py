"""What tests of the index share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from index.catalogue import open_catalogue
from index.engine import SearchEngine
from index.store import ImageStore
from tests.index.samples import make_bundle, make_manifest, make_records
from training.data.manifest import Manifest
from training.models.bundle import BundleInfo
from training.models.encoder import Encoder, load_encoder


def open_home(home: Path) -> SearchEngine:
    return SearchEngine(
        open_catalogue(f"sqlite:///{home / 'catalogue.db'}"), ImageStore(home / "images"), home / "bundles"
    )


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[SearchEngine]:
    opened = open_home(tmp_path / "home")
    yield opened
    opened.close()


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
