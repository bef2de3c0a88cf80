"""A tiny encoder, a collection indexed with it, and a client of the service that searches it."""

import io
import logging
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import structlog
import torch
from fastapi.testclient import TestClient
from PIL import Image
from sqlalchemy.orm import Session
from typer.testing import Result

from app.application import create_app
from app.edge.logging import configure_logging
from app.engine import open_engine
from app.settings import Settings
from index.engine import SearchEngine
from index.ingest import ingest_manifest
from index.keys.api_keys import Role, create_key
from tests.access import AS_ADMIN, OPEN
from tests.app.commands import run_command
from tests.jobs import Jobs, opened_jobs
from training.common.manifest import Manifest, Record, read_manifest, write_manifest
from training.models.bundle import save_bundle
from training.models.config import (
    DualEncoderConfig,
    ImagePreprocessingConfig,
    ImageTowerConfig,
    PreprocessingConfig,
    TextPreprocessingConfig,
    TextTowerConfig,
)
from training.models.dual_encoder import build_dual_encoder
from training.models.encoder import load_encoder
from training.models.learned_tokenizer import build_tokenizer
from training.models.onnx_export import export_towers
from training.models.preprocessing import Preprocessing

COLLECTION = "photos"
LOCAL = ("127.0.0.1", 50_000)
PATIENT = "patient-4711"
REPORT = "Confidential: no pneumothorax."

_TEXTS = ("a red square on a table", "two dogs in the snow", "a boat at sea", "the heart is enlarged")


def make_bundle(folder: Path, *, seed: int, scaled_decoding: bool = False, graphs: bool = True) -> Path:
    """Write a random dual encoder of a few thousand weights, with the ONNX graphs that `index` adds."""
    if folder.exists():
        shutil.rmtree(folder)
    for name, content in _files_of_bundle(seed, scaled_decoding, graphs).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


@cache
def _files_of_bundle(seed: int, scaled_decoding: bool, graphs: bool) -> Mapping[str, bytes]:
    """Files of a bundle by name, which are made once for all tests of a process."""
    with TemporaryDirectory() as name:
        folder = Path(name) / "bundle"
        _save_bundle(folder, seed, scaled_decoding)
        if graphs:
            export_towers(load_encoder(folder, "cpu"), folder)
        return {
            str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }


def _save_bundle(folder: Path, seed: int, scaled_decoding: bool) -> None:
    torch.manual_seed(seed)
    text = TextTowerConfig(
        architecture="small_transformer",
        options={"width": 16, "layers": 1, "heads": 2, "max_tokens": 16},
        vocabulary_size=320,
    )
    config = DualEncoderConfig(
        image=ImageTowerConfig(
            architecture="resnet",
            options={"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"},
        ),
        text=text,
        dim=12,
    )
    tokenizer = build_tokenizer(text, _TEXTS)
    preprocessing = PreprocessingConfig(
        image=ImagePreprocessingConfig(size=32, scaled_decoding=scaled_decoding),
        text=TextPreprocessingConfig(max_tokens=16),
    )
    save_bundle(
        folder,
        name=f"tiny-{seed}",
        model=build_dual_encoder(config, tokenizer, load_pretrained=False),
        preprocessing=Preprocessing(preprocessing, tokenizer),
        metrics={"rsum": 1.5},
        recipe_yaml="",
    )


def make_manifest(folder: Path, *, images: int) -> Manifest:
    """Write small pictures of noise with metadata to filter on."""
    random = np.random.default_rng(0)
    (folder / "images").mkdir(parents=True)
    records = []
    for number in range(images):
        pixels = random.integers(0, 256, (30 + number % 3, 40, 3), dtype=np.uint8)
        name = f"images/{number}.png"
        Image.fromarray(pixels).save(folder / name)
        records.append(
            Record(
                id=f"{PATIENT} #{number}?" if number == 7 else f"image-{number}",
                image=name,
                split="test",
                texts=(_TEXTS[number % len(_TEXTS)],),
                labels=("Edema",) if number % 2 else (),
                report=REPORT if number == 7 else None,
                metadata={"age": 20 + number, "view": "PA" if number % 3 else "AP"},
            )
        )
    write_manifest(folder, records)
    return read_manifest(folder)


@dataclass(frozen=True)
class Indexed:
    """A home folder with an indexed collection, and what was indexed."""

    settings: Settings
    manifest: Manifest
    bundle: Path

    def index(self, collection: str, bundle: Path) -> None:
        """Index the same images into a collection, as another process would."""
        engine = open_engine(self.settings)
        ingest_manifest(engine, collection, load_encoder(bundle, "cpu"), self.manifest)
        engine.home.catalogue.close()

    @contextmanager
    def engine(self) -> Iterator[SearchEngine]:
        """An engine on this home, as another process has it."""
        with closing(open_engine(self.settings)) as engine:
            yield engine

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Read the catalogue, as another process would."""
        with self.engine() as engine, engine.home.catalogue.read() as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Write to the catalogue, as another process would."""
        with self.engine() as engine, engine.home.catalogue.write() as session:
            yield session

    def run(self, *words: object, code: int = 0) -> Result:
        """Run a command in this home, as it is typed."""
        return run_command(*words, home=self.settings.home, code=code)

    def key(self, role: Role, *collections: str, name: str = "client") -> str:
        """A new key with a role in some collections, in all of them if none is named."""
        with self.write() as session:
            grants = dict.fromkeys(collections or ("*",), frozenset({role}))
            return create_key(session, name, grants, days=1).text

    def with_settings(self, **settings: Any) -> "Indexed":
        """The same home with other settings."""
        return replace(self, settings=self.settings.model_copy(update=settings))

    def owns(self, engine: SearchEngine) -> bool:
        """Whether an engine works in this home; services of other tests are still running."""
        return engine.home.bundles_folder.is_relative_to(self.settings.home)

    def image_bytes(self, number: int) -> bytes:
        """The file of an image."""
        return self.manifest.image_path(self.manifest.records[number]).read_bytes()


def serve(home: Indexed, client: tuple[str, int] = LOCAL, *, key: bool = True, **settings: Any) -> TestClient:
    """A client of a service of its own, with the administrator's key or without any."""
    return TestClient(
        create_app(home.with_settings(**settings).settings),
        "http://localhost",
        raise_server_exceptions=False,
        client=client,
        headers=AS_ADMIN if key else None,
    )


@pytest.fixture(scope="session")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Indexed:
    """The home folder that others are copies of."""
    folder = tmp_path_factory.mktemp("pattern")
    indexed = Indexed(
        Settings(home=folder / "home", threads=1, device="cpu", **OPEN),
        make_manifest(folder / "data", images=24),
        make_bundle(folder / "bundle", seed=0),
    )
    indexed.index(COLLECTION, indexed.bundle)
    return indexed


@pytest.fixture(scope="session")
def make_indexed(pattern: Indexed, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Indexed]:
    """Makes a home folder of its own; settings by keyword."""

    def make(**settings: Any) -> Indexed:
        folder = tmp_path_factory.mktemp("service")
        shutil.copytree(pattern.manifest.folder, folder / "data")
        shutil.copytree(pattern.bundle, folder / "bundle")
        indexed = Indexed(
            Settings(**{"home": folder / "home", "threads": 1, "device": "cpu", **OPEN, **settings}),
            read_manifest(folder / "data"),
            folder / "bundle",
        )
        if "database_url" in settings:
            indexed.index(COLLECTION, indexed.bundle)
        else:
            shutil.copytree(pattern.settings.home, indexed.settings.home)
        return indexed

    return make


@pytest.fixture
def own(make_indexed: Callable[..., Indexed]) -> Indexed:
    """A home folder that a test may change."""
    return make_indexed()


@pytest.fixture
def with_a_copy(own: Indexed) -> Indexed:
    """A home whose collection has an image a second time."""
    folder = own.manifest.folder
    records = list(own.manifest.records)
    content = own.manifest.image_path(records[3]).read_bytes()
    (folder / "images" / "copy.png").write_bytes(content)
    write_manifest(folder, [*records, replace(records[3], id="copy", image="images/copy.png")])
    again = Indexed(own.settings, read_manifest(folder), own.bundle)
    again.index("copied", own.bundle)
    return again


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def on_either(request: pytest.FixtureRequest, make_indexed: Callable[..., Indexed]) -> Indexed:
    """A home folder of a module's own, with its catalogue on either database."""
    if request.param == "sqlite":
        return make_indexed()
    return make_indexed(database_url=request.getfixturevalue("postgresql").new_database())


@pytest.fixture(scope="session")
def indexed(make_indexed: Callable[..., Indexed]) -> Indexed:
    """One collection, shared by all tests that do not change it."""
    return make_indexed()


@pytest.fixture(scope="session")
def client(indexed: Indexed) -> Iterator[TestClient]:
    """A running service on the shared collection."""
    with serve(indexed, key=False) as running:
        yield running


@pytest.fixture
def service(own: Indexed) -> Iterator[TestClient]:
    """A service on a home that a test may change, for the administrator."""
    with serve(own) as running:
        yield running


@pytest.fixture(scope="module")
def local(on_either: Indexed) -> Iterator[TestClient]:
    """A service on a home of the module's own, for the administrator."""
    with serve(on_either) as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def jobs(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    """Jobs in a catalogue on either database."""
    url = None if request.param == "sqlite" else request.getfixturevalue("postgresql_url")
    with opened_jobs(tmp_path / "home", url) as opened:
        yield opened


@pytest.fixture
def json_log() -> Iterator[io.StringIO]:
    """The log as JSON lines."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    stream = io.StringIO()
    configure_logging("debug", stream)
    yield stream
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def png_of_size(width: int, height: int) -> bytes:
    """A PNG file whose header says these sizes and that holds no such pixels."""
    content = io.BytesIO()
    Image.new("L", (1, 1)).save(content, "PNG")
    data = bytearray(content.getvalue())
    data[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    data[29:33] = _crc(bytes(data[12:29]))
    return bytes(data)


def _crc(chunk: bytes) -> bytes:
    return zlib.crc32(chunk).to_bytes(4, "big")
