"""Runs of image classification: what they learn, what they leave, and that stopping costs nothing."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from tests.training.classification.images.samples import tiny_recipe, tiny_tree, write_squares
from tests.training.conversion import folders
from tests.training.models.tiny import image_tower, tiny_config, tiny_model, tiny_preprocessing
from tests.training.runs import assert_same, before_step, lines, measured_lines, terminate
from training.classification.images.config import ImageRecipe
from training.classification.images.run import classify_images
from training.classification.images.scores import Scores
from training.classification.load import load_classification_recipe
from training.common.errors import DataError, RecipeError
from training.common.manifest import Manifest, Record, Rejections, read_manifest
from training.data.image_source import Decoder
from training.evaluation.auc import area_under_roc
from training.imaging.images import decode_image
from training.imaging.processes.file_decoder import FileDecoder
from training.models.bundle import save_bundle
from training.models.image_towers import build_image_tower
from training.models.preprocessing import ImagePreprocessing
from training.recipes.load import parse_as
from training.tasks.opening import RunOptions, TaskResult
from training.trainer.loop import TrainingLoop
from training.trainer.run_state.checkpoint import load_checkpoint, save_checkpoint
from training.trainer.run_state.errors import TrainingError, TrainingInterruptedError

STEPS = 10  # two epochs of 40 images by 8


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_squares(tmp_path_factory.mktemp("squares") / "data")


def run(recipe: ImageRecipe, data: Path, out: Path, *, resume: bool = False) -> TaskResult[Scores]:
    return classify_images(recipe, data, RunOptions(out, resume=resume, device="cpu", show_progress=False))


@pytest.fixture(scope="module")
def straight(squares: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody stopped."""
    out = tmp_path_factory.mktemp("straight") / "out"
    run(tiny_recipe(), squares, out)
    return out


@pytest.mark.parametrize("frozen", [True, False])
def test_learns_what_is_easy_to_see(squares: Path, tmp_path: Path, frozen: bool) -> None:
    result = run(tiny_recipe(frozen=frozen, train={"epochs": 12}), squares, tmp_path / "out")
    assert result.test.auc.keys() == {"bright", "red"}
    assert result.test.mean > 0.9


def test_figures_are_those_of_the_best_checkpoint(squares: Path, straight: Path) -> None:
    """Scored once more without the run's own code for it."""
    best = load_checkpoint(straight / "checkpoints/best.pt")
    recipe = tiny_recipe()
    assert recipe.model is not None
    tower = build_image_tower(recipe.model.tower(), load_pretrained=False)
    tower.load_state_dict(
        {n.removeprefix("image."): w for n, w in best.task.items() if n.startswith("image.")}
    )
    preprocessing = ImagePreprocessing(recipe.preprocessing) if recipe.preprocessing else None
    assert preprocessing is not None
    manifest = read_manifest(squares)
    found = json.loads((straight / "results.json").read_text())
    for split, figures in (("val", found["validation"]), ("test", found["test"])):
        part = manifest.split(split)  # type: ignore[arg-type]
        images = torch.stack(
            [preprocessing.to_uint8(decode_image(part.image_path(record))) for record in part.records]
        )
        with torch.no_grad():
            pooled = tower.eval()(preprocessing.normalise(preprocessing.to_unit(images))).pooled
        scores = pooled @ best.task["head.weight"].T + best.task["head.bias"]
        for column, label in enumerate(("bright", "red")):
            truth = np.array([label in record.labels for record in part.records])
            assert area_under_roc(scores[:, column].numpy(), truth) == pytest.approx(figures[f"auc/{label}"])
        assert figures["mean_auc"] == pytest.approx((figures["auc/bright"] + figures["auc/red"]) / 2)
    assert best.metrics == found["validation"]


def test_what_a_run_leaves(straight: Path) -> None:
    results = json.loads((straight / "results.json").read_text())
    assert results["task"] == "labels"
    assert results["examples"] == {"train": 40, "validation": 12, "test": 12}
    assert results["positives"] == {"bright": 6, "red": 6}
    assert (results["steps"], results["rejected"], results["encoder"]) == (STEPS, 0, None)
    validations = [line for line in lines(straight) if line["kind"] == "validation"]
    assert [line["step"] for line in validations] == [5, 10]
    assert results["validation"]["mean_auc"] == max(line["mean_auc"] for line in validations)
    assert load_classification_recipe(str(straight / "recipe.yaml")) == tiny_recipe()


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("step", [1, 5, 7])
def test_stopped_and_resumed_it_is_bit_equal(
    squares: Path, straight: Path, tmp_path: Path, step: int, cached: bool
) -> None:
    recipe, out = tiny_recipe(data={"cache_images": cached}), tmp_path / "out"
    stopped = pytest.raises(TrainingInterruptedError, match=f"after step {step} of {STEPS}.*--resume")
    with before_step(TrainingLoop, step, terminate), stopped:
        run(recipe, squares, out)
    assert not (out / "results.json").exists()
    torch.manual_seed(99)
    run(recipe, squares, out, resume=True)
    for name in ("last.pt", "best.pt"):
        ours, theirs = (load_checkpoint(folder / "checkpoints" / name) for folder in (out, straight))
        assert_same({**vars(ours), "recipe": ""}, {**vars(theirs), "recipe": ""})
    assert measured_lines(out) == measured_lines(straight)
    assert (out / "results.json").read_text() == (straight / "results.json").read_text()


def test_a_bundle_is_what_a_run_begins_and_goes_on_with(squares: Path, tmp_path: Path) -> None:
    def write(seed: int) -> str:
        info = save_bundle(
            tmp_path / "bundle",
            name="tiny",
            model=tiny_model(tiny_config(), seed=seed),
            preprocessing=tiny_preprocessing(),
            metrics={},
            recipe_yaml="",
        )
        return info.digest

    digest = write(0)
    tree = tiny_tree(encoder=str(tmp_path / "bundle"), model=None, preprocessing=None, frozen=True)
    recipe = parse_as(ImageRecipe, tree, "Recipe")
    run(recipe, squares, tmp_path / "out")
    assert json.loads((tmp_path / "out/results.json").read_text())["encoder"] == digest
    weights = load_checkpoint(tmp_path / "out/checkpoints/best.pt").task
    for name, value in image_tower(tiny_model(tiny_config())).state_dict().items():
        assert torch.equal(weights[f"image.{name}"], value)
    run(recipe, squares, tmp_path / "out", resume=True)
    write(1)
    with pytest.raises(TrainingError, match="data or the encoder are not those"):
        run(recipe, squares, tmp_path / "out", resume=True)


def test_a_small_share_is_one_batch(squares: Path, tmp_path: Path) -> None:
    run(tiny_recipe(data={"share": 0.1}), squares, tmp_path / "out")
    results = json.loads((tmp_path / "out/results.json").read_text())
    assert results["examples"]["train"] == 4
    assert results["steps"] == 2


def test_every_image_of_a_share_is_trained_on(squares: Path, tmp_path: Path) -> None:
    run(tiny_recipe(data={"share": 0.3}), squares, tmp_path / "out")
    results = json.loads((tmp_path / "out/results.json").read_text())
    assert results["examples"]["train"] == 12
    assert results["steps"] == 4  # two epochs, each of a batch of 8 and one that 4 fill up


def test_a_single_image_is_too_few_for_batch_norm(squares: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="batch norm"):
        run(tiny_recipe(data={"share": 0.01}), squares, tmp_path / "out")


def test_broken_images_are_left_out_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = write_squares(tmp_path / "data")
    for number in (0, 60):  # of train and of test; lines are counted from 1
        (data / f"images/{number}.png").write_bytes(b"no image")
    with caplog.at_level(logging.WARNING):
        result = run(tiny_recipe(), data, tmp_path / "out")
    assert result.rejected == 2
    assert result.test.images == 11
    assert "Line 1: images/0.png" in caplog.text
    assert "Line 61: images/60.png" in caplog.text
    with pytest.raises(DataError, match=r"images/0\.png"):
        run(tiny_recipe(data={"max_rejected": 0.01}), data, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_label_without_images_in_the_test_split_has_no_figure(tmp_path: Path) -> None:
    data = write_squares(tmp_path / "data", test=1)
    tree = (data / "manifest.jsonl").read_text().splitlines()
    last = json.loads(tree[-1]) | {"split": "test", "labels": ["red"], "group": None}
    first = json.loads(tree[-1]) | {"id": "dark", "labels": []}
    (data / "manifest.jsonl").write_text("\n".join([*tree[:-1], json.dumps(last), json.dumps(first)]) + "\n")
    result = run(tiny_recipe(), data, tmp_path / "out")
    assert result.test.auc.keys() == {"red"}
    assert result.test.positives == {"bright": 0, "red": 1}
    assert result.test.mean == result.test.auc["red"]


def test_weights_of_another_module_are_told(squares: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(tiny_recipe(), squares, out)
    for name in ("last.pt", "best.pt"):
        path = out / "checkpoints" / name
        whole = load_checkpoint(path)
        save_checkpoint(path, replace(whole, task={"head.weight": whole.task["head.weight"]}))
        with pytest.raises(TrainingError, match=f"{name} are not those of this recipe's model"):
            run(tiny_recipe(), squares, out, resume=True)


def test_wrong_resumes_are_refused(squares: Path, straight: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="is not empty"):
        run(tiny_recipe(), squares, straight)
    with pytest.raises(TrainingError, match="no run to resume"):
        run(tiny_recipe(), squares, tmp_path / "new", resume=True)
    with pytest.raises(TrainingError, match="another frozen"):
        run(tiny_recipe(frozen=True), squares, straight, resume=True)
    other = write_squares(tmp_path / "other", train=38)
    with pytest.raises(TrainingError, match="data or the encoder are not those"):
        run(tiny_recipe(), other, straight, resume=True)


def test_a_pretrained_tower_brings_its_preprocessing(
    squares: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tower = tmp_path / "vit"
    folders.vit(tower)
    model = {"architecture": "vit", "pretrained": str(tower), "options": {}}

    def trained(out: str, preprocessing: dict[str, Any] | None) -> dict[str, Any]:
        tree = tiny_tree(frozen=True, train={"epochs": 1})
        tree |= {"model": model, "preprocessing": preprocessing}
        run(parse_as(ImageRecipe, tree, "The tiny recipe"), squares, tmp_path / out)
        kept: dict[str, Any] = yaml.safe_load((tmp_path / out / "recipe.yaml").read_text())["preprocessing"]
        return kept

    with caplog.at_level(logging.WARNING):
        kept = trained("open", None)
        whole = f"preprocessing.scaled_decoding is True; {tower} was trained with False."
        said = [record.getMessage() for record in caplog.records if "trained with" in record.getMessage()]
        assert said == [whole]
        caplog.clear()
        assert (kept["size"], kept["resize"], kept["filter"]) == (64, "squash", "bilinear")
        assert kept["mean"] == [0.5, 0.5, 0.5]
        named = trained("named", {"resize": "pad"})
    assert (named["size"], named["resize"], named["filter"]) == (64, "pad", "bilinear")
    said = [record.getMessage() for record in caplog.records if "trained with" in record.getMessage()]
    assert said == [f"preprocessing.resize is pad; {tower} was trained with squash.", whole]


@pytest.mark.parametrize("scaled", [True, False])
def test_large_files_are_decoded_at_a_scale_unless_told_otherwise(tmp_path: Path, scaled: bool) -> None:
    """Training and measuring see the same pixels; those of JPEG at half its size are others than of whole."""
    recipe = tiny_recipe() if scaled else tiny_recipe(preprocessing={"scaled_decoding": False})
    assert recipe.preprocessing is not None
    assert recipe.preprocessing.min_side == (20 if scaled else None)
    preprocessing = ImagePreprocessing(recipe.preprocessing)
    noise = np.random.default_rng(7).integers(0, 256, size=(64, 64, 3)).astype(np.uint8)
    file = tmp_path / "noise.jpg"
    Image.fromarray(noise).save(file)
    record = Record("noise", "noise.jpg", "train", line=1)
    decoder = Decoder(Manifest(tmp_path, (record,), Rejections(1, 0, source="it")), preprocessing)
    with FileDecoder() as files:
        found = decoder.decode(0, files)
    assert isinstance(found, np.ndarray)
    whole = preprocessing.to_uint8(decode_image(file)).numpy()
    assert np.array_equal(found, whole) != scaled
