import hashlib
import json
import shutil
import subprocess
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.models.tiny import (
    IMAGE_OPTIONS,
    SIZE,
    TEXT_OPTIONS,
    TEXTS,
    saved,
    tiny_audio_model,
    tiny_audio_preprocessing,
    tiny_config,
    tiny_model,
    tiny_preprocessing,
)
from training.common.errors import MissingModalityError
from training.models.dual_encoder import DualEncoder
from training.models.encoder import Encoder, load_encoder
from training.models.onnx import (
    FOLDER,
    MANIFEST_FILE,
    OnnxEncoder,
    can_export,
    graph_file,
    load_onnx_encoder,
    load_query_encoder,
)
from training.models.onnx_export import ExportError, export_towers
from training.models.preprocessing import Preprocessing

_SIMILAR = 1e-5
_ATTENTION = {"pooling": "attention"}
_NORMED = {"kind": "mlp", "hidden": 20, "norm": True}
CONFIGS: dict[str, dict[str, Any]] = {
    f"{image} and {text}": {"image": image, "text": text}
    for image, text in zip(IMAGE_OPTIONS, cycle(TEXT_OPTIONS), strict=False)
} | {
    "attention pooling": {"image": "vit", "image_settings": _ATTENTION, "text_settings": _ATTENTION},
    "the first token": {"text": "bert", "text_settings": {"pooling": "cls"}},
    "the last token": {"text": "clip_text_model", "text_settings": {"pooling": "eos"}},
    "a pooled feature of its own": {"text": "siglip_text_model", "text_settings": {"pooling": "eos"}},
    "both branches": {"image": "vit", "text": "bert", "branches": {}, "retrieval": "concat"},
    "unique branch": {"image": "vit", "branches": {}, "retrieval": "unique"},
    "normal": {"branches": {"kind": "mlp"}, "retrieval": "normal", "dim": 13},
    "heads with batch norm": {"image_settings": {"head": _NORMED}},
    "local features behind batch norm": {
        "image_settings": {"pooling": "mean", "head": _NORMED},
        "text_settings": {"pooling": "mean", "head": _NORMED},
        "local_features": True,
        "share_local_head": True,
    },
}


_FAST = ("resnet and small_transformer", "attention pooling", "both branches", "heads with batch norm")


def exported(folder: Path, model: DualEncoder, preprocessing: Preprocessing | None = None) -> Encoder:
    """The encoder of a bundle with the graphs of its towers."""
    saved(folder, model.eval(), preprocessing)
    encoder = load_encoder(folder, "cpu")
    export_towers(encoder, folder)
    return encoder


def loaded(folder: Path) -> OnnxEncoder:
    encoder = load_onnx_encoder(folder)
    assert encoder is not None
    return encoder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with graphs, which no test may change."""
    folder = tmp_path_factory.mktemp("onnx") / "bundle"
    exported(folder, tiny_model())
    return folder


@pytest.fixture
def own(folder: Path, tmp_path: Path) -> Path:
    """A copy of the bundle, which a test may change."""
    return Path(shutil.copytree(folder, tmp_path / "bundle"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(settings, id=name, marks=() if name in _FAST else pytest.mark.slow)
        for name, settings in CONFIGS.items()
    ],
)
def test_vectors_of_every_tower_are_those_of_pytorch(tmp_path: Path, settings: dict[str, Any]) -> None:
    encoder = exported(tmp_path / "bundle", tiny_model(tiny_config(**settings)))
    graphs = loaded(tmp_path / "bundle")
    texts = [*TEXTS, "", "a", "red " * 60] * 6
    actual, expected = graphs.embed_texts(texts), encoder.embed_texts(texts)
    np.testing.assert_allclose(actual.vectors, expected.vectors, atol=_SIMILAR)
    assert actual.truncations == expected.truncations
    images = np.random.default_rng(0).integers(0, 256, (20, 3, SIZE, SIZE), np.uint8)
    np.testing.assert_allclose(graphs.embed_images(images), encoder.embed_images(images), atol=_SIMILAR)
    assert graphs.regions == encoder.regions
    if encoder.regions:
        regions = graphs.embed_regions(images)
        np.testing.assert_allclose(regions, encoder.embed_regions(images), atol=_SIMILAR, rtol=1e-4)
    assert graphs.unsigned == encoder.unsigned
    assert graphs.modalities == encoder.modalities


def test_vectors_of_one_graph_are_alone(folder: Path) -> None:
    encoder = load_onnx_encoder(folder, only="text")
    assert encoder is not None
    assert encoder.embed_texts(TEXTS).vectors.shape == (len(TEXTS), 12)
    with pytest.raises(MissingModalityError):
        encoder.embed_images(np.zeros((1, 3, SIZE, SIZE), np.uint8))


def test_an_encoder_without_texts_has_one_graph(tmp_path: Path) -> None:
    model, preprocessing = tiny_audio_model(texts=False), tiny_audio_preprocessing(texts=False)
    encoder = exported(tmp_path / "bundle", model, preprocessing)
    graphs = loaded(tmp_path / "bundle")
    images = np.random.default_rng(0).integers(0, 256, (2, 3, SIZE, SIZE), np.uint8)
    np.testing.assert_allclose(graphs.embed_images(images), encoder.embed_images(images), atol=_SIMILAR)
    with pytest.raises(MissingModalityError, match="trained without texts"):
        graphs.embed_texts(["a"])


@pytest.mark.parametrize(
    ("settings", "preprocessing"),
    [({"blades": 2}, {}), ({}, {"text": {"max_tokens": 32, "sentences": True}})],
    ids=["blades", "sentences"],
)
def test_vectors_that_one_graph_does_not_give_are_left_to_pytorch(
    tmp_path: Path, settings: dict[str, Any], preprocessing: dict[str, Any]
) -> None:
    model = tiny_model(tiny_config(**settings))
    assert not can_export(saved(tmp_path / "bundle", model, tiny_preprocessing(**preprocessing)))
    assert isinstance(load_query_encoder(tmp_path / "bundle", "cpu"), Encoder)


def with_a_changed_byte(folder: Path) -> None:
    content = bytearray((folder / graph_file("text")).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / graph_file("text")).write_bytes(content)


def change_manifest(folder: Path, **changes: Any) -> None:
    content = json.loads((folder / MANIFEST_FILE).read_text())
    (folder / MANIFEST_FILE).write_text(json.dumps(content | changes))


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / MANIFEST_FILE).unlink(),
        with_a_changed_byte,
        lambda folder: change_manifest(folder, digest="0" * 64),
        lambda folder: change_manifest(folder, format_version=2),
    ],
    ids=["no manifest", "a changed byte", "of another bundle", "of a newer release"],
)
def test_graphs_that_do_not_belong_to_the_bundle_are_not_used(own: Path, change: Any) -> None:
    expected = load_encoder(own, "cpu").embed_texts(TEXTS).vectors
    change(own / FOLDER)
    assert load_onnx_encoder(own) is None
    encoder = load_query_encoder(own, "cpu")
    assert isinstance(encoder, Encoder)
    np.testing.assert_allclose(encoder.embed_texts(TEXTS).vectors, expected, atol=_SIMILAR)


def test_graphs_with_other_vectors_are_logged_not_used(own: Path, caplog: pytest.LogCaptureFixture) -> None:
    graphs = json.loads((own / FOLDER / MANIFEST_FILE).read_text())["graphs"]
    graphs["text"]["reference"][1][0] += 0.002
    change_manifest(own / FOLDER, graphs=graphs)
    assert load_onnx_encoder(own) is None
    assert "other vectors" in caplog.text
    # The graph of images is right.
    assert load_onnx_encoder(own, only="image") is not None


def test_a_graph_that_onnx_runtime_cannot_read_is_logged_and_not_used(
    own: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (own / FOLDER / graph_file("text")).write_bytes(b"no graph")
    graphs = json.loads((own / FOLDER / MANIFEST_FILE).read_text())["graphs"]
    graphs["text"]["sha256"] = hashlib.sha256(b"no graph").hexdigest()
    change_manifest(own / FOLDER, graphs=graphs)
    assert load_onnx_encoder(own) is None
    assert "does not compute" in caplog.text


def test_graphs_that_give_other_vectors_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OnnxEncoder, "embed_images", lambda _, images: np.ones((len(images), 12)))
    with pytest.raises(ExportError, match="other vectors"):
        exported(tmp_path / "bundle", tiny_model())
    assert not (tmp_path / "bundle" / FOLDER).exists()


@pytest.mark.slow
def test_a_lack_of_memory_is_reported_as_such(tmp_path: Path) -> None:
    exported(tmp_path / "bundle", tiny_model(), tiny_preprocessing(image={"size": 512}))
    script = (
        "import resource, sys; import numpy as np; from pathlib import Path\n"
        "from training.models.onnx import load_onnx_encoder\n"
        "encoder = load_onnx_encoder(Path(sys.argv[1]))\n"
        "pages = int(Path('/proc/self/statm').read_text().split()[0])\n"
        "images = np.zeros((16, 3, 512, 512), np.uint8)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**24,) * 2)\n"
        "try: encoder.embed_images(images)\n"
        "except MemoryError: print('memory')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "bundle")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == "memory\n"
    assert done.stderr == ""


def test_graphs_need_no_torch(folder: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from training.models.onnx import load_query_encoder; "
        "load_query_encoder(Path(sys.argv[1]), 'cpu').embed_texts(['a cat']); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, timeout=120, check=True
    )
    assert not {"torch", "transformers", "onnx"} & set(done.stdout.split())
