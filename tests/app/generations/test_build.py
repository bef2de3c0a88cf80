"""The encoder of a generation that is built, by its graphs or PyTorch."""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from app.engine import open_engine
from app.generations.build import load_bulk_encoder
from app.settings import Settings
from index.engine import SearchEngine
from tests.app.conftest import make_bundle
from training.models import onnx_export
from training.models.bundle import read_bundle
from training.models.encoder import Encoder, load_encoder
from training.models.onnx import FOLDER, MANIFEST_FILE, OnnxEncoder, has_regions, load_onnx_encoder

TEXTS = ["a red square", "two dogs"]


@pytest.fixture
def engine(tmp_path: Path) -> SearchEngine:
    return open_engine(Settings(home=tmp_path / "home"))


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "bundle", seed=0, graphs=False)


@pytest.mark.parametrize("has_graphs", [False, True])
def test_graphs_are_made_once_in_the_copy_of_the_home_or_taken_over(
    engine: SearchEngine, bundle: Path, monkeypatch: pytest.MonkeyPatch, has_graphs: bool
) -> None:
    if has_graphs:
        onnx_export.export_towers(load_encoder(bundle, "cpu"), bundle)
    encoder, known = load_bulk_encoder(engine.home, bundle, "cpu"), read_bundle(bundle)
    assert isinstance(encoder, OnnxEncoder)
    expected = load_encoder(bundle, "cpu").embed_texts(TEXTS).vectors
    np.testing.assert_allclose(encoder.embed_texts(TEXTS).vectors, expected, atol=1e-5)
    assert (bundle / FOLDER).exists() is has_graphs
    assert encoder.info == known
    monkeypatch.delattr("training.models.encoder.load_encoder")
    if has_graphs:
        shutil.rmtree(bundle)
        bundle = engine.home.bundles_folder / known.digest
    assert isinstance(load_bulk_encoder(engine.home, bundle, "cpu"), OnnxEncoder)


def test_without_graphs_pytorch_computes_and_the_log_says_why(
    engine: SearchEngine, bundle: Path, monkeypatch: pytest.MonkeyPatch, json_log: io.StringIO
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(onnx_export, "atomic_folder", full)
    encoder = load_bulk_encoder(engine.home, bundle, "cpu")
    assert isinstance(encoder, Encoder)
    assert "No space left on device" in json_log.getvalue()


def test_graphs_of_releases_without_regions_are_made_anew(engine: SearchEngine, bundle: Path) -> None:
    load_bulk_encoder(engine.home, bundle, "cpu")
    installed = engine.home.bundles_folder / read_bundle(bundle).digest
    assert has_regions(installed)
    manifest = installed / FOLDER / MANIFEST_FILE
    content = json.loads(manifest.read_text())
    del content["regions"]
    manifest.write_text(json.dumps(content))
    old = load_onnx_encoder(installed)
    assert old is not None
    assert not old.regions
    assert not has_regions(installed)
    encoder = load_bulk_encoder(engine.home, bundle, "cpu")
    assert isinstance(encoder, OnnxEncoder)
    assert encoder.regions
    assert has_regions(installed)
