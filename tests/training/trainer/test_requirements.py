"""What an objective needs is asked of the recipe before any image is read."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.trainer.scenes import SIZE, run, tiny_recipe
from training.common.errors import DataError, RecipeError
from training.common.manifest import Manifest
from training.common.record import Record
from training.common.rejections import Rejections
from training.objectives.base import ObjectiveContext
from training.recipes.load import load_recipe
from training.recipes.schema import Recipe
from training.trainer import split_data
from training.trainer.requirements import check_requirements, used_modalities, warn_of_slow_random_towers
from training.trainer.setup import ObjectiveResources, build_model, build_objective

MLP: dict[str, Any] = {"branches": {"kind": "mlp"}}
AUDIO = {"architecture": "audio_cnn", "options": {"mels": 16, "width": 8}}
REGIONS = {"local_features": True, "share_local_head": True}
ALL_PAIRS = {"name": "infonce", "pairs": [["image", "audio"]]}


def check(recipe: Recipe, **sizes: Any) -> None:
    sizes = {"pair_attention": recipe.model.pair_attention} | sizes
    check_requirements(recipe.objective.build(ObjectiveContext(recipe.model.dim, **sizes)), recipe)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"objective": {"name": "lovt"}}, r"model\.local_features"),
        ({"objective": {"name": "local_uniformity"}}, r"model\.local_features"),
        ({"objective": {"name": "quest"}}, r"model\.branches"),
        ({"objective": {"name": "ltd"}}, r"data\.target_encoder"),
        ({"objective": {"name": "reclaim", "base": {"name": "quest"}}}, r"model\.branches"),
        ({"objective": ALL_PAIRS}, r"model\.audio"),
        ({"objective": {"name": "caption_lstm"}}, r"model\.text untrained: set it to null"),
        (
            {"objective": {"name": "reco"}, "model": {**MLP, "retrieval": "normal"}},
            r"set model\.retrieval from normal to",
        ),
        ({"objective": {"name": "reclaim"}, "model": {"blades": 2}}, r"model\.blades to 1"),
        (
            {"objective": {"name": "lovt", "grid": [3, 5]}, "model": {"local_features": True}},
            r"objective\.grid",
        ),
        (
            {
                "objective": {"name": "reclaim", "base": {"name": "lovt", "grid": [3, 5]}},
                "model": {"local_features": True},
            },
            r"objective\.grid",
        ),
        ({"batch_size": 16}, "Only 14 images have a text, fewer than a batch of 16"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_said_before_any_image_is_read(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], said: str
) -> None:
    monkeypatch.setattr(split_data, "open_images", lambda *_, **__: pytest.fail("images were read"))
    with pytest.raises((RecipeError, DataError), match=said):
        run(tiny_recipe(**changes), scenes, tmp_path / "out")
    assert not (tmp_path / "out").exists()


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
        recipe = tiny_recipe(objective=objective, model={**MLP, "retrieval": retrieval})
        if retrieval in allowed.split():
            check(recipe, instances=4, target_dim=3)
            continue
        choices = " or ".join(sorted(allowed.split()))
        with pytest.raises(RecipeError, match=rf"set model\.retrieval from {retrieval} to {choices}\.$"):
            check(recipe, instances=4, target_dim=3)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"objective": {"name": "infonce", "pairs": []}}, "one pair of two modalities or more"),
        (
            {"objective": {"name": "infonce", "pairs": [["text", "text"]]}},
            "one pair of two modalities or more",
        ),
        ({"objective": {"name": "reco", "pairs": [["image", "text"]] * 2}}, "none of them twice"),
        ({"objective": {"name": "ltd", "pairs": [["image", "audio"]]}}, r"name text in objective\.pairs"),
        (
            {"objective": {"name": "reclaim", "pairs": [["image", "audio"]], "base": {"name": "ltd"}}},
            r"name text in objective\.pairs",
        ),
        (
            {"objective": ALL_PAIRS, "model": {"audio": AUDIO, "text": None}, "data": {"shortcut": "unique"}},
            r"set data\.shortcut\.modalities to \[image\]",
        ),
    ],
)
def test_recipes_that_mean_nothing_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        tiny_recipe(**changes)


@pytest.mark.parametrize(
    ("pair", "untrained"),
    [(["image", "text"], "audio"), (["image", "audio"], "text"), (["text", "audio"], "image")],
)
def test_a_tower_that_no_pair_trains_is_refused(pair: list[str], untrained: str) -> None:
    with pytest.raises(RecipeError, match=rf"leaves model\.{untrained} untrained: name {untrained}"):
        used_modalities(tiny_recipe(objective={"name": "infonce", "pairs": [pair]}, model={"audio": AUDIO}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"objective": {"name": "scan"}, "model": REGIONS}, r"give model\.pair_attention"),
        (
            {"objective": {"name": "vse"}, "model": {**REGIONS, "pair_attention": {"queries": "words"}}},
            r"vse doesn't use model\.pair_attention",
        ),
        ({"data": {"shortcut": {"kind": "unique", "in_targets": True}}}, r"in_targets .* set it to false\.$"),
        ({"data": {"captions": {}}}, r"infonce doesn't use data\.captions: set it to null"),
        ({"objective": {"name": "simclr"}, "model": {"text": None}}, None),
        ({"objective": {"name": "simclr"}, "model": {"text": None}, "augmentation": {}}, "give augmentation"),
        (
            {"objective": {"name": "caption_lstm"}, "model": {"text": None}, "data": {"captions": {}}},
            "model.local_features to true; and .*model.share_local_head to true",
        ),
        (
            {
                "objective": {"name": "caption_lstm"},
                "model": {"text": None, "local_features": True},
                "data": {"captions": {}},
            },
            "model.share_local_head to true",
        ),
        (
            {"objective": {"name": "caption_lstm"}, "model": {"text": None, **REGIONS}},
            "data.captions, such as",
        ),
    ],
    ids=str,
)
def test_objective_model_and_data_go_together(changes: dict[str, Any], said: str | None) -> None:
    recipe = tiny_recipe(**changes)
    assert used_modalities(recipe) == ({"image", "text"} if recipe.model.text else {"image"})
    sizes = {"vocabulary": 300} if recipe.objective.name == "caption_lstm" else {}
    if said is None:
        check(recipe, **sizes)
    else:
        with pytest.raises(RecipeError, match=said):
            check(recipe, **sizes)


@pytest.mark.parametrize("retrieval", ["concat", "normal"])
def test_terms_of_embeddings_fit_those_of_two_branches(retrieval: str) -> None:
    recipe = tiny_recipe(
        objective={"name": "reclaim", "base": {"name": "quest"}}, model={**MLP, "retrieval": retrieval}
    )
    records = tuple(
        Record(id=str(n), image=f"{n}.png", split="train", texts=(f"text {n}",)) for n in range(4)
    )
    split = Manifest(Path(), records, Rejections(4))
    model, preprocessing = build_model(recipe, split, load_pretrained=False)
    features = model(torch.rand(4, 3, SIZE, SIZE), preprocessing.text([r.texts[0] for r in records]))
    objective = build_objective(recipe, split, ObjectiveResources.of_run(recipe, split, torch.device("cpu")))
    assert objective(replace(features, items=torch.arange(4))).isfinite()


def warnings(caplog: pytest.LogCaptureFixture, name: str, *overrides: str) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        warn_of_slow_random_towers(load_recipe(name, overrides))
    return [record.getMessage() for record in caplog.records]


def test_a_recipe_that_needs_pretrained_weights_says_so(caplog: pytest.LogCaptureFixture) -> None:
    for name in ("reco-flickr30k", "orthogonality-flickr30k"):
        both = warnings(caplog, name)
        assert len(both) == 2
        assert "model.image.pretrained" in both[0] and "1e-06" in both[0]
        (text,) = warnings(caplog, name, "model.image.pretrained=clip-rn50")
        assert "model.text.pretrained" in text
        assert not warnings(caplog, name, "model.image.pretrained=a", "model.text.pretrained=a")
    # The rate is that of the towers.
    assert not warnings(caplog, "demo-scenes")
    assert len(warnings(caplog, "demo-scenes", "optimizer.tower_lr=1e-6")) == 2
    assert not warnings(caplog, "demo-scenes", "optimizer.lr=1e-6", "optimizer.tower_lr=1e-3")
