"""Heads alone are trained: frozen towers encode each image and text once, and no stale feature is used."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.modules.module import register_module_forward_hook
from transformers import ResNetConfig, ResNetModel

from tests.training.models.tiny import write_bert
from tests.training.recipes.shrink import shrunk
from tests.training.runs import assert_same_checkpoints, before_step, terminate
from tests.training.trainer.scenes import tiny_recipe, write_scenes
from training.common.errors import RecipeError
from training.common.manifest import read_manifest, write_manifest
from training.evaluation.evaluate import evaluate
from training.models.encoder import load_encoder
from training.models.image_towers import ImageTower
from training.models.text_towers import TextTower
from training.recipes.load import load_recipe, parse_recipe
from training.recipes.schema import Recipe
from training.trainer.loop import TrainingLoop
from training.trainer.run import TrainResult, train
from training.trainer.run_state.errors import TrainingInterruptedError

TRAIN, VAL = 14, 6
# Texts of the train split; of the validation split with the sentences of its four labels.
TRAIN_TEXTS, VAL_TEXTS = 2 * TRAIN, 2 * VAL + 4


def write_resnet(folder: Path, *, seed: int = 0) -> Path:
    torch.manual_seed(seed)
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], layer_type="basic")
    ResNetModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def towers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pretrained towers of images and of texts."""
    folder = tmp_path_factory.mktemp("towers")
    write_resnet(folder / "image")
    (folder / "text").mkdir()
    write_bert(folder / "text")
    return folder


def heads_recipe(towers: Path, cache_images: bool | str = "memory", **changes: Any) -> Recipe:
    """The tiny recipe, augmentation included, with pretrained towers whose heads alone are trained."""
    tree: dict[str, Any] = tiny_recipe(heads=True).model_dump(mode="json")
    tree["model"]["image"] |= {"pretrained": str(towers / "image"), "options": {}}
    text = {"architecture": "bert", "pretrained": str(towers / "text"), "options": {}}
    tree["model"]["text"] |= text
    tree["data"]["cache_images"] = cache_images
    for key, value in changes.items():
        part, _, name = key.partition("__")
        tree[part] = {**tree[part], name: value} if name else value
    return parse_recipe(tree, "A recipe")


def run(recipe: Recipe, data: Path, out: Path, *, resume: bool = False) -> TrainResult:
    return train(recipe, data, out, resume=resume, device="cpu", show_progress=False)


@pytest.fixture(autouse=True)
def no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the trial before the first step, which encodes made items."""
    monkeypatch.setattr("training.trainer.run.settled_chunk_size", lambda *_: None)


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """How many images and texts pass a tower."""
    passes = {"images": 0, "texts": 0}

    def count(module: torch.nn.Module, given: tuple[Any, ...], _: object) -> None:
        if isinstance(module, ImageTower):
            passes["images"] += len(given[0])
        elif isinstance(module, TextTower):
            passes["texts"] += len(given[0].input_ids)

    handle = register_module_forward_hook(count)
    try:
        yield passes
    finally:
        handle.remove()


@pytest.fixture(scope="module")
def straight(towers: Path, scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs that nobody stopped."""
    out = tmp_path_factory.mktemp("straight") / "out"
    run(heads_recipe(towers), scenes, out)
    return out


@pytest.mark.parametrize("epochs", [1, 5])
def test_each_image_and_text_passes_its_tower_once(
    towers: Path, scenes: Path, tmp_path: Path, epochs: int
) -> None:
    with counted() as passes:
        run(heads_recipe(towers, train__epochs=epochs), scenes, tmp_path / "out")
    assert passes == {"images": TRAIN + VAL, "texts": TRAIN_TEXTS + VAL_TEXTS}


@pytest.mark.parametrize("unit", ["sentence", "report"])
def test_steps_are_those_of_a_run_that_encodes_in_every_step(
    towers: Path, scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: str
) -> None:
    recipe = heads_recipe(towers, data__text_unit=unit, train__epochs=3)
    run(recipe, scenes, tmp_path / "once")
    monkeypatch.setattr("training.trainer.run.locked_towers", lambda *_: (None, None))
    with counted() as passes:
        run(recipe, scenes, tmp_path / "always")
    assert passes["texts"] > TRAIN_TEXTS + VAL_TEXTS
    ours, theirs = (load_file(tmp_path / name / "bundle/model.safetensors") for name in ("once", "always"))
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-5, atol=1e-6)


def test_towers_stay_and_the_bundle_gives_the_vectors_of_training(
    towers: Path, scenes: Path, tmp_path: Path
) -> None:
    result = run(heads_recipe(towers), scenes, tmp_path / "out")
    weights = load_file(result.bundle / "model.safetensors")
    for tower in ("image", "text"):
        given = load_file(towers / tower / "model.safetensors")
        kept = {name.removeprefix(f"{tower}.backbone.model."): value for name, value in weights.items()}
        same = [name for name in given if name in kept]
        assert len(same) > 10
        assert all(torch.equal(given[name], kept[name]) for name in same)
    encoder = load_encoder(result.bundle, "cpu")
    figures = evaluate(encoder, read_manifest(scenes).split("val"), show_progress=False).metrics()
    assert figures == pytest.approx({name: result.metrics[name] for name in figures}, abs=1e-4)


def test_a_resumed_run_is_bit_equal(towers: Path, scenes: Path, straight: Path, tmp_path: Path) -> None:
    with before_step(TrainingLoop, 3, terminate), pytest.raises(TrainingInterruptedError):
        run(heads_recipe(towers), scenes, tmp_path / "out")
    run(heads_recipe(towers), scenes, tmp_path / "out", resume=True)
    assert_same_checkpoints(tmp_path / "out", straight)


def test_heads_of_a_bundle_are_trained_on(towers: Path, scenes: Path, straight: Path, tmp_path: Path) -> None:
    recipe = heads_recipe(towers, train__start_from=str(straight / "bundle"))
    with counted() as passes:
        result = run(recipe, scenes, tmp_path / "out")
    assert passes["images"] == TRAIN + VAL
    bundles = straight / "bundle", result.bundle
    before, after = (load_file(bundle / "model.safetensors") for bundle in bundles)
    moved = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert moved <= {"image_head", "text_head"}


def other_image_tower(towers: Path, data: Path) -> dict[str, Any]:
    shutil.rmtree(towers / "image")
    write_resnet(towers / "image", seed=1)
    return {}


def other_text_weights(towers: Path, data: Path) -> dict[str, Any]:
    weights = load_file(towers / "text" / "model.safetensors")
    weights["embeddings.word_embeddings.weight"] += 1
    save_file(weights, towers / "text" / "model.safetensors", {"format": "pt"})
    return {}


def other_size(towers: Path, data: Path) -> dict[str, Any]:
    return {"preprocessing__image": {"size": 24}}


def other_statistics(towers: Path, data: Path) -> dict[str, Any]:
    return {"preprocessing__image": {"size": 16, "mean": [0.5, 0.5, 0.5]}}


def shorter_texts(towers: Path, data: Path) -> dict[str, Any]:
    return {"preprocessing__text": {"max_tokens": 6}}


def other_bytes_at_the_same_time(towers: Path, data: Path) -> dict[str, Any]:
    """Two images change places, and keep sizes and times of their files."""
    paths = [data / "images" / f"{number}.png" for number in (0, 1)]
    for path in paths:
        # To one size, behind the end of the image.
        path.write_bytes(path.read_bytes().ljust(4096, b"\0"))
    return {}


def swapped(towers: Path, data: Path) -> dict[str, Any]:
    paths = [data / "images" / f"{number}.png" for number in (0, 1)]
    contents, times = [path.read_bytes() for path in paths], [path.stat() for path in paths]
    for path, content, time in zip(paths, reversed(contents), times, strict=True):
        path.write_bytes(content)
        os.utime(path, ns=(time.st_atime_ns, time.st_mtime_ns))
    return {}


def another_text(towers: Path, data: Path) -> dict[str, Any]:
    first, *rest = read_manifest(data).records
    write_manifest(data, [replace(first, texts=("a yellow triangle", first.texts[1])), *rest])
    return {}


def nothing(towers: Path, data: Path) -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(
    ("change", "images", "texts"),
    [
        (nothing, 0, 0),
        (other_image_tower, TRAIN, 0),
        pytest.param(other_text_weights, 0, TRAIN_TEXTS, marks=pytest.mark.slow),
        pytest.param(other_size, TRAIN, 0, marks=pytest.mark.slow),
        pytest.param(other_statistics, TRAIN, 0, marks=pytest.mark.slow),
        pytest.param(shorter_texts, 0, TRAIN_TEXTS, marks=pytest.mark.slow),
        (swapped, 2, 0),
        (another_text, 0, 1),
    ],
)
def test_features_of_something_else_are_never_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path, Path], dict[str, Any]],
    images: int,
    texts: int,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data, own = write_scenes(tmp_path / "data"), tmp_path / "own"
    other_bytes_at_the_same_time(own, data)
    (own / "text").mkdir(parents=True)
    write_resnet(own / "image")
    write_bert(own / "text")
    run(heads_recipe(own, cache_images=True), data, tmp_path / "before")
    changes = change(own, data)
    with counted() as passes:
        run(heads_recipe(own, cache_images=True, **changes), data, tmp_path / "found")
    assert passes == {"images": images + VAL, "texts": texts + VAL_TEXTS}
    run(heads_recipe(own, **changes), data, tmp_path / "anew")
    # The recipe in a checkpoint says where rows are kept.
    ours, theirs = (load_file(tmp_path / name / "bundle/model.safetensors") for name in ("found", "anew"))
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-5, atol=1e-6)


LOCAL, VIEWS = "needs local features", "needs two views of each image"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("lovt-cxr-small", LOCAL),
        pytest.param("scan-gru-coco", LOCAL, marks=pytest.mark.slow),
        pytest.param("caption-lstm-mimic-cxr", LOCAL, marks=pytest.mark.slow),
        pytest.param("byol-mimic-cxr", VIEWS, marks=pytest.mark.slow),
        ("simclr-mimic-cxr", VIEWS),
        pytest.param("pixpro-mimic-cxr", LOCAL, marks=pytest.mark.slow),
        ("quest-clip-coco", "model.branches leave a tower before its end"),
        ("reco-flickr-small", None),
        pytest.param("ltd-flickr-small", None, marks=pytest.mark.slow),
        pytest.param("vse-flickr-small", None, marks=pytest.mark.slow),
        pytest.param("ifm-flickr-small", None, marks=pytest.mark.slow),
        pytest.param("orthogonality-flickr-small", None, marks=pytest.mark.slow),
        pytest.param("blade2-flickr-small", None, marks=pytest.mark.slow),
        pytest.param("reclaim-flickr-small", None, marks=pytest.mark.slow),
        pytest.param("infonce-flickr-small", None, marks=pytest.mark.slow),
        pytest.param("dpc-coco", None, marks=pytest.mark.slow),
        pytest.param("sco-coco", None, marks=pytest.mark.slow),
        pytest.param("quest-gru-coco", None, marks=pytest.mark.slow),
        pytest.param("contrastive-binary-mimic-cxr", None, marks=pytest.mark.slow),
        pytest.param("labels-mimic-cxr", None, marks=pytest.mark.slow),
    ],
)
def test_objectives_of_global_embeddings_train_and_others_are_refused_before_anything_is_encoded(
    name: str, reason: str | None, towers: Path, sentence_encoder: Path, scenes: Path, tmp_path: Path
) -> None:
    tree = shrunk(load_recipe(name), sentence_encoder).model_dump(mode="json")
    wide = {"image": {"architecture": "resnet"}, "text": {"architecture": "bert"}}
    for tower, settings in wide.items():
        if tree["model"][tower] is not None:
            kept = {"pooling": "mean"} if tower == "text" else {"pooling": "tower"}
            own = {"pretrained": str(towers / tower), "options": {}}
            tree["model"][tower] |= {**settings, **own, **kept}
            if tree["model"][tower]["head"]["kind"] == "identity":
                tree["model"][tower]["head"] = {"kind": "linear"}
    tree["train"] |= {"heads": True, "start_from": None}
    tree["data"]["cache_images"] = "memory"
    recipe = parse_recipe(tree, "A recipe")
    with counted() as passes:
        if reason is None:
            result = run(recipe, scenes, tmp_path / "out")
            assert np.isfinite(list(result.metrics.values())).all()
            return
        with pytest.raises(RecipeError, match=reason):
            run(recipe, scenes, tmp_path / "out")
    # Local features are counted by one pass of black pixels.
    assert sum(passes.values()) == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model__image": {"architecture": "resnet"}}, "the image tower has random weights: give"),
        ({"train__lora": {}}, "leave out one of them"),
        ({"pooling": "attention"}, "model.image.pooling has weights that are trained"),
        ({"data__shortcut": "unique"}, "data.shortcut changes each image"),
    ],
)
def test_what_cannot_be_encoded_once_is_refused_in_one_sentence(
    towers: Path, scenes: Path, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    pooling = changes.pop("pooling", None)
    recipe = heads_recipe(towers, **changes)
    if pooling is not None:
        image = recipe.model.image.model_copy(update={"pooling": pooling})
        recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={"image": image})})
    with counted() as passes, pytest.raises(RecipeError, match=reason) as refused:
        run(recipe, scenes, tmp_path / "out")
    assert str(refused.value).count(". ") == 0
    assert sum(passes.values()) == 0
