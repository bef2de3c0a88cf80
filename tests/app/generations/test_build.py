"""The encoder of a generation that is built, by its graphs or PyTorch; two models on held-out images."""

import io
import json
import shutil
from dataclasses import replace
from math import comb
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from app.engine import open_engine
from app.generations.build import load_bulk_encoder
from app.generations.retraining import compare_models, describe_held_out
from app.generations.schemas import ModelVerdict
from app.settings import Settings
from index.engine import SearchEngine
from tests.app.conftest import make_bundle, make_manifest
from training.common.manifest import Manifest, Record, Rejections, Split, read_manifest, write_manifest
from training.models.bundle import BundleInfo, read_bundle
from training.models.encoder import Encoder, load_encoder
from training.models.onnx import export
from training.models.onnx.encoder import OnnxEncoder
from training.models.onnx.files import FOLDER, MANIFEST_FILE, has_regions
from training.models.onnx.loading import load_onnx_encoder

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
        export.export_towers(load_encoder(bundle, "cpu"), bundle)
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

    monkeypatch.setattr(export, "atomic_folder", full)
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


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> BundleInfo:
    return read_bundle(make_bundle(tmp_path_factory.mktemp("judged") / "base", seed=0))


def coloured(folder: Path, count: int, *, colours: int = 4) -> Manifest:
    """Held-out pictures of plain colours, which any network tells apart, with their colour as label."""
    (folder / "images").mkdir(parents=True)
    shades = np.linspace(0, 255, colours).astype(int)
    records = []
    for number in range(count):
        colour = number % colours
        shade = (int(shades[colour]), int(shades[-1 - colour]), number % 7)
        Image.new("RGB", (40, 40), shade).save(folder / "images" / f"{number}.png")
        name, text = f"images/{number}.png", (f"picture {number}",)
        records.append(Record(id=f"{number}", image=name, split="test", texts=text, labels=(f"c{colour}",)))
    write_manifest(folder, records)
    return read_manifest(folder)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> BundleInfo:
    return read_bundle(make_bundle(tmp_path_factory.mktemp("judged") / "other", seed=1))


def judged(
    base: BundleInfo, new: BundleInfo, manifest: Manifest, gain: float, metric: str | None = None
) -> ModelVerdict:
    found = compare_models(base, new, manifest, gain=gain, metric=metric, device="cpu")
    assert found is not None
    return found


def test_a_model_is_better_where_the_whole_interval_is_above_the_gain(
    base: BundleInfo, other: BundleInfo, tmp_path: Path
) -> None:
    manifest = coloured(tmp_path / "data", 104)
    measured = judged(base, other, manifest, -1000, "image_precision_at_10")
    assert measured.low is not None
    assert measured.chance is not None
    assert measured.chance < 30 < 90 < measured.after
    assert (measured.verdict, measured.passed, measured.images) == ("better", True, 104)
    for gain, better in ((measured.low - 0.1, True), (measured.low + 0.1, False)):
        found = judged(base, other, manifest, gain, "image_precision_at_10")
        assert (found.verdict, found.passed) == ("better" if better else "not better", better)
    named = judged(base, other, manifest, -1000, "precision_at_10")
    assert named == measured
    same = read_bundle(Path(shutil.copytree(base.folder, tmp_path / "same")))
    unchanged = judged(base, same, manifest, -1000, "image_precision_at_10")
    assert unchanged.before == unchanged.after == measured.before
    assert (unchanged.verdict, unchanged.passed) == ("not better", False)


def test_a_model_at_chance_is_not_better_whatever_it_gains(
    base: BundleInfo, other: BundleInfo, tmp_path: Path
) -> None:
    """The texts say nothing of the pictures, so that no model can find either by the other."""
    found = judged(base, other, coloured(tmp_path / "data", 104), -1000)
    assert (found.metric, found.verdict) == ("rsum", "not better")
    # Every 28th picture is the same, and equal pictures are equally right.
    matches = [len(range(number % 28, 104, 28)) for number in range(104)]
    missed = [sum(comb(104 - each, k) / comb(104, k) for each in matches) / 104 for k in (1, 5, 10)]
    assert found.chance == pytest.approx(2 * 100 * sum(1 - share for share in missed))


@pytest.mark.parametrize("count", [32, 99])
@pytest.mark.parametrize("metric", ["rsum", "image_precision_at_10"])
def test_few_images_are_not_enough_to_judge(
    base: BundleInfo, other: BundleInfo, tmp_path: Path, count: int, metric: str
) -> None:
    found = judged(base, other, coloured(tmp_path / "data", count), -1000, metric)
    assert (found.verdict, found.passed, found.images) == ("not enough to judge", False, count)


@pytest.mark.parametrize(("patients", "verdict"), [(24, "not enough to judge"), (30, "better")])
def test_many_images_of_few_patients_are_not_enough_either(
    base: BundleInfo, other: BundleInfo, tmp_path: Path, patients: int, verdict: str
) -> None:
    manifest = coloured(tmp_path / "data", 120)
    # Images of a patient are no candidates of one another.
    records = [
        replace(one, group=f"p{number // 4 % patients}") for number, one in enumerate(manifest.records)
    ]
    found = judged(base, other, replace(manifest, records=tuple(records)), -1000, "image_precision_at_10")
    assert found.verdict == verdict


def test_images_of_one_text_or_of_none_judge_no_model(
    base: BundleInfo, other: BundleInfo, tmp_path: Path
) -> None:
    """Every model finds each of them: rsum would be 600 before and after."""
    manifest = make_manifest(tmp_path / "data", images=12)
    held_out = [record for record in manifest.records if record.split == "test"]
    one: list[tuple[str, ...]] = [("a dog",)]
    for texts, told in ((one, False), (one * 12, False), ([*one, ("two dogs",)], True)):
        records = tuple(
            replace(record, texts=said, labels=())
            for record, said in zip(held_out, [*texts, *[()] * len(held_out)], strict=False)
        )
        found = compare_models(base, other, replace(manifest, records=records), gain=0, device="cpu")
        assert (found is not None) == told
        if found is not None:
            assert (found.metric, found.images, found.verdict) == ("rsum", 2, "not enough to judge")


def records_of(split: Split, *texts: tuple[str, ...], labels: int = 0) -> list[Record]:
    return [
        Record(id=f"{split}{n}", image="a.png", split=split, texts=said, labels=("x",) if n < labels else ())
        for n, said in enumerate(texts)
    ]


def test_what_is_held_out_is_said_before_the_training(tmp_path: Path) -> None:
    def said(*records: Record) -> str:
        return describe_held_out(Manifest(tmp_path, records, Rejections(0)))

    both = (*records_of("val", ("a",), ("b",)), *records_of("test", ("a",), ("b",), ("c",), ()))
    assert said(*both) == (
        "Held out: 2 images with texts choose the epoch (val), and 3 images with texts (test) are not enough "
        "to judge the new model, so that it will wait for a person: that takes 100."
    )
    many = records_of("test", *[(f"text {number}",) for number in range(100)])
    assert said(*many).endswith("and 100 images with texts judge the new model (test).")
    for none in ((), records_of("test", ("a",), ("a",))):
        assert "none choose the epoch, and none can judge the new model" in said(*none)
    assert "and 2 images with texts (val) are not enough" in said(*records_of("val", ("a",), ("b",)))
    assert "and 2 with labels (test) are not enough" in said(*records_of("test", (), (), (), labels=2))
