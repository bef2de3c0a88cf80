"""Every recipe of text classification: it resolves, its model can be built, and it trains."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.classification.texts.samples import text_recipe, write_sst, write_sts
from tests.training.models.tiny import TEXT_OPTIONS, tiny_tokenizer
from training.classification.load import shipped
from training.classification.texts.config import TextRecipe
from training.classification.texts.model import TextClassifier
from training.classification.texts.run import classify_texts
from training.recipes.load import parse_as
from training.tasks.opening import RunOptions

# A task of classes, and the one of scores: of the others recipes do the same.
RECIPES = {
    name: text_recipe(name)
    for file in shipped().files
    for name in file.recipes
    if "::cola" in name or "::sts-b" in name
}
# The architecture that a name on the hub stands for, where it differs from its kind's own defaults.
HUB_OPTIONS: Mapping[str, dict[str, Any]] = {
    "google-bert/bert-base-uncased": {},
    "google-bert/bert-large-uncased": {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    },
    "FacebookAI/roberta-base": {
        "vocab_size": 50265,
        "max_position_embeddings": 514,
        "pad_token_id": 1,
    },
}


def one_of_each(kinds: Mapping[str, str]) -> list[str]:
    """The first recipe of each kind."""
    return list({kind: name for name, kind in reversed(list(kinds.items()))}.values())


def kind(recipe: TextRecipe) -> str:
    """What a recipe does, numbers aside: its model, its term, and whether it gives classes or a score."""
    term = recipe.reclaim and (recipe.reclaim.negatives, recipe.reclaim.spectral_norm)
    return repr((recipe.model, term, recipe.task == "sts-b", recipe.data.share < 1))


MODELS = one_of_each({name: repr(recipe.model) for name, recipe in RECIPES.items()})
KINDS = one_of_each({name: kind(recipe) for name, recipe in RECIPES.items()})
REST = [name for name in RECIPES if name not in KINDS]


@pytest.mark.parametrize("name", MODELS)
def test_model_is_built_on_no_device(name: str) -> None:
    model = RECIPES[name].model
    options = {**HUB_OPTIONS.get(model.pretrained or "", {}), **model.options}
    with torch.device("meta"):
        classifier = TextClassifier(
            model.model_copy(update={"pretrained": None, "options": options}),
            tiny_tokenizer(),
            outputs=2,
            load=False,
        )
    assert all(parameter.is_meta for parameter in classifier.parameters())
    assert sum(parameter.numel() for parameter in classifier.parameters()) > 3e5


@pytest.mark.parametrize("name", KINDS)
def test_recipe_trains(name: str, tmp_path: Path) -> None:
    check_trains(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", REST)
def test_recipe_of_another_number_trains(name: str, tmp_path: Path) -> None:
    check_trains(name, tmp_path)


def check_trains(name: str, folder: Path) -> None:
    """Two steps at small scale end in figures; the lines are those of a task of classes or of scores."""
    recipe = shrunk(RECIPES[name])
    write = write_sts if recipe.task == "sts-b" else write_sst
    data = write(folder / "data", train=18 if recipe.data.share == 1 else 36, dev=8)
    result = classify_texts(recipe, data, RunOptions(folder / "out", device="cpu", show_progress=False))
    assert result.test
    assert all(math.isfinite(value) for value in result.test.values())


def shrunk(recipe: TextRecipe) -> TextRecipe:
    """The recipe with a model of a few numbers, two steps of eight lines, and a common task's format."""
    tree = recipe.model_dump(mode="json")
    tree["task"] = "sts-b" if recipe.task == "sts-b" else "sst-2"
    tree["model"] |= {"pretrained": None, "options": TEXT_OPTIONS[recipe.model.architecture]}
    tree["model"] |= {"vocabulary_size": 320, "max_tokens": 24}
    tree["train"] |= {"batch_size": 8, "epochs": 1, "precision": "fp32"}
    tree["data"]["share"] = 1.0 if recipe.data.share == 1 else 0.5
    return parse_as(TextRecipe, tree, recipe.name)


def test_every_name_on_the_hub_is_one_of_a_recipe() -> None:
    named = {recipe.model.pretrained for recipe in RECIPES.values()} - {None}
    assert named == set(HUB_OPTIONS)
