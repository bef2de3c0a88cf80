"""What an objective needs is asked of the recipe before any work."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.trainer.scenes import SIZE, tiny_recipe
from training.data.manifest import Manifest
from training.data.record import Record
from training.data.rejections import Rejections
from training.errors import RecipeError
from training.recipes.load import parse_recipe
from training.recipes.schema import Recipe
from training.trainer.requirements import used_modalities
from training.trainer.run import train
from training.trainer.setup import build_model, build_objective


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


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        ({"name": "infonce", "pairs": []}, "one pair of two modalities or more"),
        ({"name": "infonce", "pairs": [["text", "text"]]}, "one pair of two modalities or more"),
        ({"name": "reco", "pairs": [["image", "text"], ["image", "text"]]}, "none of them twice"),
        ({"name": "ltd", "pairs": [["image", "audio"]]}, "name text in objective.pairs"),
    ],
)
def test_pairs_that_make_no_loss_are_refused(objective: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        recipe(objective)


@pytest.mark.parametrize("retrieval", ["concat", "normal"])
def test_terms_of_embeddings_fit_those_of_two_branches(retrieval: str) -> None:
    tree = json.loads(recipe({"name": "reclaim", "base": {"name": "quest"}}).model_dump_json())
    tree["model"] |= {"branches": {"kind": "mlp"}, "retrieval": retrieval}
    described = parse_recipe(tree, "A recipe")
    records = tuple(
        Record(id=str(n), image=f"{n}.png", split="train", texts=(f"text {n}",)) for n in range(4)
    )
    split = Manifest(Path(), records, Rejections(4))
    model, preprocessing = build_model(described, split, load_pretrained=False)
    tokens = preprocessing.text([record.texts[0] for record in records])
    features = model(torch.rand(4, 3, SIZE, SIZE), tokens)
    objective = build_objective(described, split, None)
    assert objective(replace(features, items=torch.arange(4))).total.isfinite()


def test_modalities_are_those_of_the_objective() -> None:
    assert used_modalities(tiny_recipe()) == {"image", "text"}
