"""A run begins at the temperature that its towers were trained with, and says which that was."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.training.models.test_pretrained import DIM, config_of, write_clip, write_siglip
from tests.training.models.tiny import SIZE
from tests.training.runs import lines
from tests.training.trainer.scenes import tiny_recipe
from tests.training.trainer.test_run import run
from training.common.errors import RecipeError
from training.models.bundle import read_bundle
from training.models.config import DualEncoderConfig
from training.recipes.library import shipped
from training.recipes.load import load_recipe, parse_recipe
from training.recipes.schema import Recipe
from training.samples import write_sample_data
from training.trainer.setup import with_temperature

pytestmark = pytest.mark.usefixtures("one_thread")

COMPOSED = [
    {"name": "infonce"},
    {"name": "quest", "unique": "none"},
    {"name": "ifm"},
    {"name": "ltd"},
    {"name": "reclaim", "base": {"name": "ltd"}},
]


def recipe_of(model: DualEncoderConfig, objective: dict[str, Any], **train: Any) -> Recipe:
    tree: dict[str, Any] = json.loads(tiny_recipe(**train).model_dump_json())
    tree["model"] = model.model_dump(mode="json")
    tree["objective"] = objective
    tree["preprocessing"]["image"]["size"] = SIZE
    return parse_recipe(tree, "A recipe")


def temperature_of(recipe: Recipe) -> Any:
    settings: Any = recipe.objective
    while hasattr(settings, "base"):
        settings = settings.base
    return settings.temperature


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clip(tmp_path_factory.mktemp("clip"))


@pytest.mark.parametrize("objective", COMPOSED, ids=str)
def test_a_recipe_without_a_temperature_takes_that_of_its_towers(
    objective: dict[str, Any], clip: Path
) -> None:
    found = with_temperature(recipe_of(config_of(clip), objective))
    assert temperature_of(found) == pytest.approx(0.01, rel=1e-6)
    assert temperature_of(with_temperature(recipe_of(config_of(None), objective))) == 0.07


def test_a_named_temperature_stays(clip: Path) -> None:
    recipe = recipe_of(config_of(clip), {"name": "ifm", "base": {"name": "infonce", "temperature": 0.1}})
    assert with_temperature(recipe) == recipe
    asked = recipe_of(config_of(clip), {"name": "infonce", "temperature": "pretrained"})
    assert temperature_of(with_temperature(asked)) == pytest.approx(0.01, rel=1e-6)


def test_a_temperature_that_towers_do_not_bring_is_refused(tmp_path: Path) -> None:
    siglip = config_of(write_siglip(tmp_path), family="siglip", dim=16)
    for model in (config_of(None), siglip):
        asked = recipe_of(model, {"name": "quest", "unique": "none", "temperature": "pretrained"})
        with pytest.raises(RecipeError, match=r"give one CLIP to both .* or set the objective's temperature"):
            with_temperature(asked)


def test_a_run_starts_there_and_one_that_starts_from_its_bundle_too(clip: Path, tmp_path: Path) -> None:
    write_sample_data(tmp_path / "data", images=16, size=32)
    data = tmp_path / "data/scenes"
    recipe = recipe_of(config_of(clip), {"name": "infonce"}, epochs=None, steps=1)
    run(recipe, data, tmp_path / "first")
    figures = next(line for line in lines(tmp_path / "first") if line["kind"] == "train")
    assert figures["temperature"] == pytest.approx(0.01, rel=1e-4)
    bundle = read_bundle(tmp_path / "first/bundle")
    assert bundle.dim == DIM
    assert yaml.safe_load(bundle.recipe)["objective"]["temperature"] == pytest.approx(0.01, rel=1e-6)
    tree = recipe.model_dump(mode="json")
    tree["train"]["start_from"] = str(bundle.folder)
    run(parse_recipe(tree, "A recipe"), data, tmp_path / "second")
    figures = next(line for line in lines(tmp_path / "second") if line["kind"] == "train")
    assert figures["temperature"] == pytest.approx(0.01, rel=1e-4)


def test_shipped_recipes_of_clip_alone_name_no_temperature() -> None:
    library = shipped()
    named = {}
    for name in (name for file in library.files for name in file.recipes):
        tree = library.tree(name)
        towers = [tree.get("model", {}).get(modality) or {} for modality in ("image", "text")]
        if all("clip" in str(tower.get("architecture")) for tower in towers):
            recipe = load_recipe(name)
            if '"temperature"' in recipe.objective.model_dump_json():
                named[name] = temperature_of(recipe)
    assert len(named) == 26
    assert set(named.values()) == {"auto"}
