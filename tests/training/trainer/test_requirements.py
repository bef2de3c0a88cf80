"""What an objective needs is asked of the recipe before any work."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.trainer.scenes import SIZE, tiny_recipe
from training.common.errors import RecipeError
from training.common.manifest import Manifest
from training.common.record import Record
from training.common.rejections import Rejections
from training.objectives.base import ObjectiveContext
from training.recipes.load import load_recipe, parse_recipe
from training.recipes.schema import Recipe
from training.trainer.requirements import check_requirements, used_modalities
from training.trainer.run import train
from training.trainer.setup import Extras, build_model, build_objective


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
        ({"name": "caption_lstm"}, "model.text untrained: set it to null"),
    ],
)
def test_the_setting_that_is_missing_is_named_before_any_work(
    scenes: Path, tmp_path: Path, objective: dict[str, Any], setting: str
) -> None:
    with pytest.raises(RecipeError, match=setting.replace(".", r"\.")):
        train(recipe(objective), scenes, tmp_path / "out", device="cpu", show_progress=False)
    assert not (tmp_path / "out").exists()


def check_searched_by(objective: dict[str, Any], retrieval: str) -> None:
    tree = json.loads(recipe({"name": "infonce"}).model_dump_json())
    tree["objective"] = objective
    tree["model"] |= {"branches": {"kind": "mlp"}, "retrieval": retrieval}
    described = parse_recipe(tree, "A recipe")
    context = ObjectiveContext(described.model.dim, instances=4, target_dim=3)
    check_requirements(described.objective.build(context), described)


@pytest.mark.parametrize(
    ("objective", "allowed"),
    [
        ({"name": "infonce"}, "shared unique concat"),
        ({"name": "ifm", "base": {"name": "reco"}}, "shared unique concat"),
        ({"name": "quest"}, "shared unique concat normal"),
        ({"name": "quest", "unique": "uic"}, "shared unique concat normal"),
        ({"name": "quest", "unique": "sic"}, "shared unique concat"),
        ({"name": "quest", "unique": "none"}, "shared"),
        ({"name": "quest", "shared": False}, "normal"),
        ({"name": "quest", "shared": False, "unique": "sic"}, "unique"),
        ({"name": "reclaim"}, "shared unique concat"),
        ({"name": "reclaim", "base": {"name": "quest", "shared": False}}, "normal"),
    ],
)
def test_a_model_is_searched_by_what_its_objective_trains(objective: dict[str, Any], allowed: str) -> None:
    for retrieval in ("shared", "unique", "concat", "normal"):
        if retrieval in allowed.split():
            check_searched_by(objective, retrieval)
            continue
        choices = " or ".join(sorted(allowed.split()))
        with pytest.raises(RecipeError, match=rf"set model\.retrieval from {retrieval} to {choices}\.$"):
            check_searched_by(objective, retrieval)


def test_an_output_that_nothing_trains_is_refused_before_any_work(scenes: Path, tmp_path: Path) -> None:
    tree = json.loads(recipe({"name": "reco"}).model_dump_json())
    tree["model"] |= {"branches": {"kind": "mlp"}, "retrieval": "normal"}
    with pytest.raises(RecipeError, match=r"set model\.retrieval from normal to"):
        train(parse_recipe(tree, "A recipe"), scenes, tmp_path / "out", device="cpu", show_progress=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        ({"name": "infonce", "pairs": []}, "one pair of two modalities or more"),
        ({"name": "infonce", "pairs": [["text", "text"]]}, "one pair of two modalities or more"),
        ({"name": "reco", "pairs": [["image", "text"], ["image", "text"]]}, "none of them twice"),
        ({"name": "ltd", "pairs": [["image", "audio"]]}, "name text in objective.pairs"),
        (
            {"name": "reclaim", "pairs": [["image", "audio"]], "base": {"name": "ltd"}},
            "name text in objective.pairs",
        ),
    ],
)
def test_pairs_that_make_no_loss_are_refused(objective: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        recipe(objective)


def with_sounds(objective: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The tiny recipe with a tower of sounds."""
    tree: dict[str, Any] = json.loads(tiny_recipe().model_dump_json())
    tree["objective"] = objective
    tree["model"] |= {"audio": {"architecture": "audio_cnn", "options": {"mels": 16, "width": 8}}, **changes}
    return tree


@pytest.mark.parametrize(
    ("pair", "untrained"),
    [(["image", "text"], "audio"), (["image", "audio"], "text"), (["text", "audio"], "image")],
)
def test_a_tower_that_no_pair_trains_is_refused(pair: list[str], untrained: str) -> None:
    tree = with_sounds({"name": "infonce", "pairs": [pair]})
    with pytest.raises(RecipeError, match=rf"leaves model\.{untrained} untrained: name {untrained}"):
        used_modalities(parse_recipe(tree, "A recipe"))


def test_a_shortcut_in_texts_needs_texts() -> None:
    tree = with_sounds({"name": "infonce", "pairs": [["image", "audio"]]}, text=None)
    tree["data"]["shortcut"] = "unique"
    with pytest.raises(RecipeError, match=r"set data\.shortcut\.modalities to \[image\]"):
        parse_recipe(tree, "A recipe")
    tree["data"]["shortcut"] = {"kind": "unique", "modalities": ["image"]}
    assert parse_recipe(tree, "A recipe").data.shortcut is not None


@pytest.mark.parametrize(
    ("objective", "changes", "said"),
    [
        ({"name": "reclaim"}, {"blades": 2}, r"model\.blades to 1"),
        ({"name": "lovt", "grid": [3, 5]}, {"local_features": True}, r"objective\.grid"),
        (
            {"name": "reclaim", "base": {"name": "lovt", "grid": [3, 5]}},
            {"local_features": True},
            r"objective\.grid",
        ),
    ],
)
def test_what_does_not_fit_is_said_before_any_image_is_read(
    scenes: Path, tmp_path: Path, objective: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    copy = shutil.copytree(scenes, tmp_path / "data")
    for image in (copy / "images").iterdir():
        image.write_bytes(b"no image")
    tree = json.loads(recipe(objective).model_dump_json())
    tree["model"] |= changes
    with pytest.raises(RecipeError, match=said):
        train(parse_recipe(tree, "A recipe"), copy, tmp_path / "out", device="cpu", show_progress=False)


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
    objective = build_objective(described, split, Extras.of_run(described, split, torch.device("cpu")))
    assert objective(replace(features, items=torch.arange(4))).isfinite()


def test_a_shortcut_in_targets_needs_an_objective_with_targets() -> None:
    tree = json.loads(recipe({"name": "infonce"}).model_dump_json())
    tree["data"]["shortcut"] = {"kind": "unique", "in_targets": True}
    described = parse_recipe(tree, "A recipe")
    with pytest.raises(RecipeError, match=r"data\.shortcut\.in_targets .* set it to false\.$"):
        check_requirements(described.objective.build(ObjectiveContext(8)), described)


@pytest.mark.parametrize("constraints", ["uic", "p-uic"])
@pytest.mark.parametrize("towers", ["clip", "gru"])
def test_recipes_without_sic_are_searched_by_the_normal(constraints: str, towers: str) -> None:
    described = load_recipe(f"quest-{constraints}-{towers}-flickr30k")
    check_requirements(described.objective.build(ObjectiveContext(described.model.dim)), described)
    assert described.model.retrieval == "normal"


@pytest.mark.parametrize(
    ("model", "captions", "said"),
    [
        ({}, True, "model.local_features to true; and .*model.share_local_head to true"),
        ({"local_features": True}, True, "model.share_local_head to true"),
        ({"local_features": True, "share_local_head": True}, False, "data.captions, such as"),
    ],
)
def test_an_objective_that_writes_needs_regions_and_words(
    model: dict[str, bool], captions: bool, said: str
) -> None:
    tree = json.loads(tiny_recipe().model_dump_json())
    tree["objective"] = {"name": "caption_lstm"}
    tree["model"] |= {"text": None, **model}
    tree["data"]["captions"] = {} if captions else None
    described = parse_recipe(tree, "A recipe")
    assert used_modalities(described) == {"image"}
    context = ObjectiveContext(described.model.dim, vocabulary=300)
    with pytest.raises(RecipeError, match=said):
        check_requirements(described.objective.build(context), described)


def test_words_that_nobody_writes_are_refused() -> None:
    tree = json.loads(tiny_recipe().model_dump_json())
    tree["data"]["captions"] = {}
    described = parse_recipe(tree, "A recipe")
    context = ObjectiveContext(described.model.dim)
    with pytest.raises(RecipeError, match=r"infonce doesn't use data\.captions: set it to null"):
        check_requirements(described.objective.build(context), described)


def test_modalities_are_those_of_the_objective() -> None:
    assert used_modalities(tiny_recipe()) == {"image", "text"}
