"""Image classifiers: their loss, what they start from and freeze, and whole runs."""

import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from tests.training.classification.samples import RESNET, tiny_recipe, tiny_tree, write_squares
from tests.training.conversion import folders
from tests.training.models.tiny import (
    IMAGE_OPTIONS,
    image_tower,
    tiny_config,
    tiny_model,
    tiny_pixels,
    tiny_preprocessing,
)
from tests.training.recipes.shrink import HUB_OPTIONS
from tests.training.runs import assert_same, before_step, lines, measured_lines, terminate
from training.classification.recipe import ImageRecipe
from training.classification.run import ImageClassifier, Scores, build_start, classify_images
from training.common.errors import BundleError, DataError, RecipeError
from training.common.manifest import read_manifest
from training.evaluation.retrieval import area_under_roc
from training.imaging.images import decode_image
from training.models.bundle import save_bundle
from training.models.config import ImageTowerConfig
from training.models.image_towers import build_image_tower
from training.models.preprocessing import ImagePreprocessing
from training.papers.load import classification_recipes, load_classification_recipe
from training.recipes.load import parse_as
from training.trainer.loop import TrainingLoop
from training.trainer.module_task import TaskResult
from training.trainer.opening import RunOptions
from training.trainer.run_state.checkpoint import load_checkpoint
from training.trainer.run_state.errors import TrainingError, TrainingInterruptedError

STEPS = 10  # two epochs of 40 images by 8
RECIPES = {
    name: recipe
    for file in classification_recipes().files
    for name in file.recipes
    if isinstance(recipe := load_classification_recipe(name), ImageRecipe)
}
# Shares and lengths are numbers; what else recipes do is in these.
KINDS = [name for name in RECIPES if not name.endswith(("::1", "::100"))]


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


def write_bundle(folder: Path, *, seed: int = 0, **settings: Any) -> str:
    """A tiny bundle, and its digest."""
    model, preprocessing = tiny_model(tiny_config(**settings), seed=seed), tiny_preprocessing()
    written = save_bundle(
        folder, name="tiny", model=model, preprocessing=preprocessing, metrics={}, recipe_yaml=""
    )
    return written.digest


def classifier(*, frozen: bool, **settings: Any) -> ImageClassifier:
    torch.manual_seed(0)
    config = ImageTowerConfig.model_validate({"architecture": "resnet", "options": RESNET, **settings})
    return ImageClassifier(build_image_tower(config, load_pretrained=False), 3, frozen=frozen)


def test_loss_is_the_mean_over_images_and_labels() -> None:
    model = classifier(frozen=False).eval()
    pixels, targets = tiny_pixels(4), torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]])
    loss, terms = model(pixels, targets)
    chances = model.logits(pixels).sigmoid()
    expected = -(targets * chances.log() + (1 - targets) * (1 - chances).log()).mean()
    torch.testing.assert_close(loss, expected)
    assert terms == {}


@pytest.mark.parametrize("pooling", ["tower", "attention"])
def test_a_frozen_encoder_keeps_weights_and_statistics(pooling: str) -> None:
    model = classifier(frozen=True, pooling=pooling)
    before = {name: value.clone() for name, value in model.image.state_dict().items()}
    model.train()
    assert model.training and model.head.training
    assert not any(module.training for module in model.image.modules())
    loss, _ = model(tiny_pixels(4), torch.ones(4, 3))
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    assert all(torch.equal(value, before[name]) for name, value in model.image.state_dict().items())
    assert all(parameter.grad is None for parameter in model.image.parameters())
    assert model.head.weight.grad is not None


def test_fine_tuning_changes_all_of_the_encoder() -> None:
    model = classifier(frozen=False)
    loss, _ = model(tiny_pixels(4), torch.ones(4, 3))
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert any(module.training for module in model.image.modules())


@pytest.mark.parametrize(
    "settings",
    [
        {"image_settings": {"frozen_layers": "all"}},
        {"image_settings": {"pooling": "attention"}, "local_features": True},
        {"branches": {}},
    ],
)
def test_a_bundle_gives_its_tower_without_the_head(tmp_path: Path, settings: dict[str, Any]) -> None:
    folder = tmp_path / "bundle"
    written = write_bundle(folder, **settings)
    recipe = tiny_recipe(encoder=str(folder), model=None, preprocessing=None)
    tower, preprocessing, digest = build_start(recipe, load_pretrained=True)
    weights = load_file(folder / "model.safetensors")
    assert all(torch.equal(value, weights[f"image.{name}"]) for name, value in tower.state_dict().items())
    assert all(parameter.requires_grad for parameter in tower.parameters())
    assert preprocessing.config == tiny_preprocessing().config.image
    expected = image_tower(tiny_model(tiny_config(**settings)).eval())(tiny_pixels()).pooled
    torch.testing.assert_close(tower.eval()(tiny_pixels()).pooled, expected)
    assert digest == written


def test_what_is_missing_to_start_from_is_named(tmp_path: Path) -> None:
    nothing = {"model": None, "preprocessing": None}
    vit = {"architecture": "vit", "options": {"image_size": 32, "patch_size": 16, "hidden_size": 24}}
    for recipe, error, message in (
        (tiny_recipe(**nothing), RecipeError, r"tiny begins with a trained .* --set encoder=FOLDER"),
        (tiny_recipe(**nothing, encoder=str(tmp_path / "no")), BundleError, "There is no bundle"),
        (tiny_recipe(model=vit), RecipeError, r"32 pixels, not 16: set preprocessing\.size to 32"),
    ):
        with pytest.raises(error, match=message):
            build_start(recipe, load_pretrained=True)


@pytest.mark.parametrize("frozen", [True, False])
def test_learns_what_is_easy_to_see(squares: Path, tmp_path: Path, frozen: bool) -> None:
    result = run(tiny_recipe(frozen=frozen, train={"epochs": 12}), squares, tmp_path / "out")
    assert result.test.auc.keys() == {"bright", "red"}
    assert result.test.mean > 0.9


def test_figures_are_those_of_the_best_checkpoint(squares: Path, straight: Path) -> None:
    """Scored once more without the run's own code for it."""
    best = load_checkpoint(straight / "checkpoints/best.pt")
    recipe = tiny_recipe()
    assert recipe.model is not None and recipe.preprocessing is not None
    tower = build_image_tower(recipe.model.tower(), load_pretrained=False)
    tower.load_state_dict(
        {n.removeprefix("image."): w for n, w in best.task.items() if n.startswith("image.")}
    )
    preprocessing, manifest = ImagePreprocessing(recipe.preprocessing), read_manifest(squares)
    results = json.loads((straight / "results.json").read_text())
    for part, figures in (
        (manifest.split("val"), results["validation"]),
        (manifest.split("test"), results["test"]),
    ):
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
    assert best.metrics == results["validation"]


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


@pytest.mark.parametrize(("step", "cached"), [(5, True), (7, False)])
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
    digest = write_bundle(tmp_path / "bundle")
    tree = tiny_tree(encoder=str(tmp_path / "bundle"), model=None, preprocessing=None, frozen=True)
    recipe = parse_as(ImageRecipe, tree, "Recipe")
    run(recipe, squares, tmp_path / "out")
    assert json.loads((tmp_path / "out/results.json").read_text())["encoder"] == digest
    weights = load_checkpoint(tmp_path / "out/checkpoints/best.pt").task
    for name, value in image_tower(tiny_model(tiny_config())).state_dict().items():
        assert torch.equal(weights[f"image.{name}"], value)
    run(recipe, squares, tmp_path / "out", resume=True)
    write_bundle(tmp_path / "bundle", seed=1)
    with pytest.raises(TrainingError, match="data or the encoder are not those"):
        run(recipe, squares, tmp_path / "out", resume=True)


@pytest.mark.parametrize(("share", "images", "steps"), [(0.1, 4, 2), (0.3, 12, 4)])
def test_every_image_of_a_share_is_trained_on(
    squares: Path, tmp_path: Path, share: float, images: int, steps: int
) -> None:
    """Two epochs: of a batch of 4, or of one of 8 and one that 4 fill up."""
    run(tiny_recipe(data={"share": share}), squares, tmp_path / "out")
    results = json.loads((tmp_path / "out/results.json").read_text())
    assert (results["examples"]["train"], results["steps"]) == (images, steps)


def test_what_cannot_be_trained_or_resumed_is_refused(squares: Path, straight: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="batch norm"):
        run(tiny_recipe(data={"share": 0.01}), squares, tmp_path / "out")
    other = write_squares(tmp_path / "other", train=38)
    with pytest.raises(TrainingError, match="data or the encoder are not those"):
        run(tiny_recipe(), other, straight, resume=True)


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


def test_a_pretrained_tower_brings_its_preprocessing(
    squares: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tower = tmp_path / "vit"
    folders.vit(tower)
    model = {"architecture": "vit", "pretrained": str(tower), "options": {}}

    def trained(out: str, preprocessing: dict[str, Any] | None) -> tuple[dict[str, Any], list[str]]:
        tree = tiny_tree(frozen=True, train={"epochs": 1})
        tree |= {"model": model, "preprocessing": preprocessing}
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            run(parse_as(ImageRecipe, tree, "The tiny recipe"), squares, tmp_path / out)
        kept = yaml.safe_load((tmp_path / out / "recipe.yaml").read_text())["preprocessing"]
        messages = [record.getMessage() for record in caplog.records]
        return kept, [message for message in messages if "trained with" in message]

    kept, messages = trained("open", None)
    scaled = f"preprocessing.scaled_decoding is True; {tower} was trained with False."
    assert messages == [scaled]
    assert (kept["size"], kept["resize"], kept["filter"]) == (64, "squash", "bilinear")
    assert kept["mean"] == [0.5, 0.5, 0.5]
    kept, messages = trained("named", {"resize": "pad"})
    assert (kept["size"], kept["resize"], kept["filter"]) == (64, "pad", "bilinear")
    assert messages == [f"preprocessing.resize is pad; {tower} was trained with squash.", scaled]


@pytest.mark.parametrize("name", [name for name in KINDS if RECIPES[name].model is not None])
def test_model_of_a_recipe_is_built_on_no_device(name: str) -> None:
    tree = RECIPES[name].model_dump(mode="json")
    tree["model"]["options"] = HUB_OPTIONS.get(tree["model"]["pretrained"], {})
    tree["model"]["pretrained"] = None
    with torch.device("meta"):
        tower, _, _ = build_start(parse_as(ImageRecipe, tree, name), load_pretrained=False)
        model = ImageClassifier(tower, 8, frozen=RECIPES[name].frozen)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert sum(parameter.numel() for parameter in model.parameters()) > 1e6


@pytest.mark.parametrize(
    "name", [name if name in KINDS else pytest.param(name, marks=pytest.mark.slow) for name in RECIPES]
)
def test_recipe_trains(name: str, tmp_path: Path) -> None:
    """Two steps with an encoder of a few numbers and tiny images end in the AUC of both labels."""
    recipe, squares = RECIPES[name], write_squares(tmp_path / "data", train=40, val=8, test=8)
    tree = recipe.model_dump(mode="json")
    if recipe.model is None:
        write_bundle(tmp_path / "bundle")
        tree["encoder"] = str(tmp_path / "bundle")
    else:
        tree["model"] |= {"pretrained": None, "options": IMAGE_OPTIONS[recipe.model.architecture]}
        tree["preprocessing"]["size"] = 32
    tree["data"] |= {"labels": None, "validation_images": min(8, recipe.data.validation_images)}
    tree["data"]["share"] = 1.0 if recipe.data.share == 1 else 0.5
    tree["train"] |= {"batch_size": 8, "epochs": 1, "precision": "fp32"}
    result = run(parse_as(ImageRecipe, tree, name), squares, tmp_path / "out")
    assert result.test.auc.keys() == {"bright", "red"}
    assert math.isfinite(result.validation["mean_auc"])
