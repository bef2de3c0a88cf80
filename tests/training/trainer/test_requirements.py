"""What an objective needs is asked of the recipe before any work."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.training.trainer.scenes import tiny_recipe
from training.errors import RecipeError
from training.recipes.load import parse_recipe
from training.recipes.schema import Recipe
from training.trainer.requirements import used_modalities
from training.trainer.run import train


def recipe(objective: dict[str, Any]) -> Recipe:
    tree = json.loads(tiny_recipe().model_dump_json())
    return parse_recipe({**tree, "objective": objective}, "A recipe")


@pytest.mark.parametrize(
    ("objective", "setting"),
    [
        ({"name": "lovt"}, "model.local_features"),
        ({"name": "local_uniformity"}, "model.local_features"),
        ({"name": "quest"}, "model.branches"),
        ({"name": "ltd"}, "data.target_encoder"),
        ({"name": "reclaim", "base": {"name": "quest"}}, "model.branches"),
        ({"name": "infonce", "pairs": [["image", "audio"]]}, "model.audio"),
    ],
)
def test_the_setting_that_is_missing_is_named_before_any_work(
    scenes: Path, tmp_path: Path, objective: dict[str, Any], setting: str
) -> None:
    with pytest.raises(RecipeError, match=setting.replace(".", r"\.")):
        train(recipe(objective), scenes, tmp_path / "out", device="cpu", show_progress=False)
    assert not (tmp_path / "out").exists()


def test_modalities_are_those_of_the_objective() -> None:
    assert used_modalities(tiny_recipe()) == {"image", "text"}
