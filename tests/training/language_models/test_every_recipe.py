"""Every recipe of a language model: it resolves, its model can be built, and it trains."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.language_models.samples import write_sentences
from training.language_models.config import LanguageModelRecipe, load_language_recipe, shipped
from training.language_models.model import SentenceVae
from training.language_models.run import NAMES, published, train_language_model
from training.recipes.load import dump_recipe, parse_as
from training.tasks.opening import RunOptions

RECIPES = {name: load_language_recipe(name) for file in shipped().files for name in file.recipes}
OF_TABLES = [name for name in RECIPES if not name.startswith("lm-small::")]


@pytest.mark.parametrize("name", RECIPES)
def test_written_out_it_loads_again(name: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(dump_recipe(RECIPES[name]))
    assert load_language_recipe(str(path)) == RECIPES[name]
    assert RECIPES[name].name == name.replace("::", "-")


@pytest.mark.parametrize("name", RECIPES)
def test_settings_follow_from_the_name(name: str) -> None:
    recipe = RECIPES[name]
    _, data, model = name.replace("::", "-").split("-", 2)
    assert (recipe.model.posterior == "implicit") is model.startswith("ivae")
    assert (recipe.model.refinement is not None) is (model == "sa-vae")
    assert (recipe.kl.cycle_epochs is not None) is model.startswith("cyc-vae")
    assert recipe.kl.final == ({"ptb": 0.5, "yelp": 0.4, "small": 0.5}[data] if model == "beta-vae" else 1.0)
    assert (recipe.reclaim is not None) is model.endswith(("-reclaim", "-cl"))
    if recipe.reclaim is not None:
        plain = model == "ivae-cl"
        assert recipe.reclaim.weight == 0.1
        assert (recipe.reclaim.negatives, recipe.reclaim.spectral_norm) == (
            ("random", False) if plain else ("nearest", True)
        )
    if data != "small":
        assert recipe.model.latent == 32
        assert (recipe.train.batch_size, recipe.train.epochs) == (32, 40)
        assert recipe.model.width == {"ptb": 256, "yelp": 1024}[data]


@pytest.mark.parametrize("name", RECIPES)
def test_model_is_built_on_no_device(name: str) -> None:
    with torch.device("meta"):
        vae = SentenceVae(RECIPES[name].model, RECIPES[name].model.vocabulary_size)
    assert all(parameter.is_meta for parameter in vae.parameters())
    assert sum(parameter.numel() for parameter in vae.parameters()) > 5e5


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in OF_TABLES else name for name in RECIPES]
)
def test_recipe_trains(name: str, tmp_path: Path) -> None:
    """Two steps at small scale end in figures; those of tables differ from the others in numbers."""
    recipe = shrunk(RECIPES[name])
    data = write_sentences(tmp_path / "data", train=16, valid=8, test=8)
    result = train_language_model(
        recipe, data, RunOptions(tmp_path / "out", device="cpu", show_progress=False)
    )
    assert all(math.isfinite(value) for value in result.test.values())


def shrunk(recipe: LanguageModelRecipe) -> LanguageModelRecipe:
    """The recipe with a model of a few numbers and two steps of eight sentences."""
    tree: dict[str, Any] = recipe.model_dump(mode="json")
    tree["model"] |= {"word_width": 8, "width": 12, "latent": 4}
    tree["model"]["ratio"]["width"] = 8
    tree["test_draws"] = min(2, recipe.test_draws)
    tree["train"] |= {"batch_size": 8, "epochs": 1, "precision": "fp32"}
    return parse_as(LanguageModelRecipe, tree, recipe.name)


@pytest.mark.parametrize("name", OF_TABLES)
def test_a_row_of_a_table_has_published_figures(name: str) -> None:
    figures = published(RECIPES[name])
    assert tuple(figures) == NAMES
    # Perplexity is exp(-ELBO / words): most rows agree on the words of a sentence, those of table 7 nearly.
    words = -figures["elbo"] / math.log(figures["perplexity"])
    assert words == pytest.approx(21.93 if "-ptb-" in name else 96.6, rel=0.035)


def test_a_small_recipe_has_none() -> None:
    assert published(RECIPES["lm-small::vae"]) == {}
