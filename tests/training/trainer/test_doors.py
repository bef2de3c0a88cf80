"""What people bring to a run as objects: an objective, callbacks, an optimizer."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.training.trainer.scenes import tiny_recipe
from training.common.errors import RecipeError
from training.objectives import ReCo
from training.objectives.base import LossOutput
from training.recipes.load import load_recipe, parse_recipe
from training.recipes.schema import Recipe
from training.trainer.loop import Callback, TrainingLoop
from training.trainer.run import TrainResult, train

pytestmark = pytest.mark.usefixtures("one_thread")


class Hinge(nn.Module):
    """A loss of one's own, with a weight that is learned and a batch norm-like buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.margin = nn.Parameter(torch.tensor(0.2))

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        scores = image @ text.T
        return (self.margin - scores.diagonal() + scores).clamp(min=0).mean() + self.margin.square()


def run(recipe: Recipe, scenes: Path, out: Path, **options: Any) -> TrainResult:
    return train(recipe, scenes, out, device="cpu", show_progress=False, **options)


def weights(result: TrainResult) -> dict[str, Tensor]:
    return load_file(result.bundle / "model.safetensors")


def test_an_objective_of_this_project_as_an_object_trains_as_its_recipe_does(
    scenes: Path, tmp_path: Path
) -> None:
    recipe = tiny_recipe(steps=3, epochs=None)
    tree = json.loads(recipe.model_dump_json())
    tree["objective"] = {"name": "reco", "negative_weight": 0.3}
    named = run(parse_recipe(tree, "A recipe"), scenes, tmp_path / "named")
    given = run(recipe, scenes, tmp_path / "given", objective=ReCo(negative_weight=0.3))
    ours, theirs = weights(given), weights(named)
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


def test_a_module_of_ones_own_trains_and_resumes_bit_equal(scenes: Path, tmp_path: Path) -> None:
    recipe = tiny_recipe(steps=4, epochs=None, checkpoint_minutes=0.0)
    whole = run(recipe, scenes, tmp_path / "whole", objective=Hinge())

    class Stop(Callback):
        def after_step(self, loop: TrainingLoop[Any], loss: LossOutput) -> None:
            if loop.position.step == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(recipe, scenes, tmp_path / "stopped", objective=Hinge(), callbacks=[Stop()])
    resumed = run(recipe, scenes, tmp_path / "stopped", objective=Hinge(), resume=True)
    ours, theirs = weights(resumed), weights(whole)
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
    kept = yaml.safe_load((tmp_path / "whole" / "recipe.yaml").read_text())["objective"]
    assert kept == {"pairs": [["image", "text"]], "name": "given", "by": f"{__name__}.Hinge"}
    with pytest.raises(RecipeError, match=r"object of .*Hinge: pass it as objective="):
        train(str(tmp_path / "whole" / "recipe.yaml"), scenes, tmp_path / "again", device="cpu")


def test_callbacks_see_every_step_and_may_end_the_training(scenes: Path, tmp_path: Path) -> None:
    class Early(Callback):
        def __init__(self) -> None:
            self.seen: list[tuple[int, bool]] = []
            self.figures: list[float] = []

        def after_step(self, loop: TrainingLoop[Any], loss: LossOutput) -> None:
            self.seen.append((loop.position.step, bool(loss.total.isfinite())))

        def after_measurement(self, loop: TrainingLoop[Any], figures: Mapping[str, float]) -> bool:
            self.figures.append(figures["rsum"])
            return len(self.figures) == 2

    early = Early()
    result = run(tiny_recipe(epochs=5), scenes, tmp_path / "out", callbacks=[early, Callback()])
    per_epoch = len(early.seen) // 2
    assert early.seen == [(step, True) for step in range(1, 2 * per_epoch + 1)]
    assert result.metrics["rsum"] == max(early.figures)
    assert (result.bundle / "model.safetensors").is_file()


@pytest.mark.parametrize("way", ["recipe", "object"])
def test_another_optimizer_trains(scenes: Path, tmp_path: Path, way: str) -> None:
    recipe = tiny_recipe(steps=3, epochs=None)
    used: list[torch.optim.Optimizer] = []

    class Look(Callback):
        def after_step(self, loop: TrainingLoop[Any], loss: LossOutput) -> None:
            used.append(loop.optimizer)

    options: dict[str, Any] = {}
    if way == "recipe":
        config = recipe.optimizer.model_copy(update={"name": "SGD", "options": {"momentum": 0.9}})
        recipe = recipe.model_copy(update={"optimizer": config})
    else:
        options["optimizer"] = partial(torch.optim.SGD, momentum=0.9)
    run(recipe, scenes, tmp_path / "out", callbacks=[Look()], **options)
    assert isinstance(used[0], torch.optim.SGD)
    assert {group["momentum"] for group in used[0].param_groups} == {0.9}
    rates = {recipe.optimizer.lr, recipe.optimizer.tower_lr or recipe.optimizer.lr}
    assert {group["base_lr"] for group in used[0].param_groups} == rates


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["optimizer.name=sgd"], r"optimizer\.name is sgd: set it to adam, adamw or another class"),
        (["optimizer.name=LBFGS"], r"optimizer\.name is LBFGS"),
        (["optimizer.name=SGD", "optimizer.options={speed: 1}"], r"torch\.optim\.SGD has no such argument"),
        (["optimizer.name=SGD", "optimizer.options={momentum: -1}"], r"refuses them: Invalid momentum"),
    ],
)
def test_an_optimizer_that_cannot_be_made_is_refused_before_any_work(
    scenes: Path, tmp_path: Path, settings: list[str], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        run(load_recipe("demo-scenes", settings), scenes, tmp_path / "out")
    assert not (tmp_path / "out").exists()
