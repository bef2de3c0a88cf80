"""A locked image tower, or both where heads alone are trained, encodes all once; no stale feature is used."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from safetensors.torch import load_file, save_file
from transformers import ResNetConfig, ResNetModel

from tests.training.models.tiny import image_tower, tiny_model, write_bert
from tests.training.recipes.shrink import shrunk
from tests.training.runs import assert_same_checkpoints, lines
from tests.training.trainer.scenes import (
    assert_close_weights,
    counted,
    run,
    stop,
    tiny_recipe,
    weights,
    write_scenes,
)
from training.common.errors import RecipeError
from training.common.manifest import read_manifest, write_manifest
from training.evaluation.evaluate import evaluate
from training.models.config import ImagePreprocessingConfig
from training.models.encoder import load_encoder
from training.models.preprocessing import ImagePreprocessing
from training.recipes.load import load_recipe, parse_recipe
from training.recipes.schema import Recipe
from training.trainer.optimisation.locked_tower import LockedTower

TRAIN, VAL, BATCH, BATCHES = 14, 6, 4, 3
# Texts of the train split; of the validation split with the sentences of its four labels.
TRAIN_TEXTS, VAL_TEXTS = 2 * TRAIN, 2 * VAL + 4
UNCHANGED: dict[str, Any] = {"flip": 0.0, "rotation": 0.0, "brightness": 0.0, "blur_kernel": 0}
Form = Callable[..., Recipe]


def write_resnet(folder: Path, *, seed: int = 0) -> Path:
    """A pretrained image tower whose batch norm has seen other images."""
    torch.manual_seed(seed)
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], layer_type="basic")
    model = ResNetModel(config)
    for name, value in model.named_buffers():
        if name.endswith("running_mean"):
            torch.nn.init.normal_(value, std=0.1)
    model.save_pretrained(folder)
    return folder


def write_towers(folder: Path) -> Path:
    write_resnet(folder / "image")
    (folder / "text").mkdir()
    write_bert(folder / "text")
    return folder


@pytest.fixture(scope="module")
def towers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pretrained towers of images and of texts; tests do not change them."""
    return write_towers(tmp_path_factory.mktemp("towers") / "both")


def locked(towers: Path, *, pooling: str = "tower", flip: float = 0.0, **changes: Any) -> Recipe:
    """The tiny recipe with a locked image tower, which sees the same images in every step."""
    image = {"pretrained": str(towers / "image"), "options": {}, "frozen_layers": "all", "pooling": pooling}
    data = {"cache_images": "memory"} | changes.pop("data", {})
    return tiny_recipe(model={"image": image}, augmentation=UNCHANGED | {"flip": flip}, **changes, data=data)


def heads(towers: Path, **changes: Any) -> Recipe:
    """The tiny recipe, augmentation included, with pretrained towers whose heads alone are trained."""
    image = {"pretrained": str(towers / "image"), "options": {}} | changes.pop("image", {})
    text = {"architecture": "bert", "pretrained": str(towers / "text"), "options": {}}
    data = {"cache_images": "memory"} | changes.pop("data", {})
    return tiny_recipe(heads=True, model={"image": image, "text": text}, **changes, data=data)


@pytest.fixture(autouse=True)
def no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the trial before the first step, which encodes made items."""
    monkeypatch.setattr("training.trainer.run.settled_chunk_size", lambda *_: None)


@pytest.fixture(scope="module")
def straight(towers: Path, scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each kind, of two epochs, that nobody stopped."""
    folder = tmp_path_factory.mktemp("straight")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.trainer.run.settled_chunk_size", lambda *_: None)
        for form in (locked, heads):
            run(form(towers), scenes, folder / form.__name__)
    return folder


@pytest.mark.parametrize(
    ("form", "changes", "images", "texts"),
    [
        (locked, {}, TRAIN + VAL, None),
        # The features for the loss and for the search of the validation split are made apart.
        pytest.param(locked, {"select_by": "loss"}, TRAIN + 2 * VAL, None, marks=pytest.mark.slow),
        (heads, {"epochs": 1}, TRAIN + VAL, TRAIN_TEXTS + VAL_TEXTS),
        (heads, {"epochs": 5}, TRAIN + VAL, TRAIN_TEXTS + VAL_TEXTS),
    ],
)
def test_each_image_and_text_passes_its_tower_once(
    towers: Path,
    scenes: Path,
    tmp_path: Path,
    form: Form,
    changes: dict[str, Any],
    images: int,
    texts: int | None,
) -> None:
    with counted() as passes:
        run(form(towers, **changes), scenes, tmp_path / "out")
    assert sum(passes["images"]) == images
    assert texts is None or sum(passes["texts"]) == texts


@pytest.mark.parametrize(
    ("form", "changes"),
    [
        (locked, {}),
        (heads, {"data": {"text_unit": "sentence"}, "epochs": 3}),
        (heads, {"data": {"text_unit": "report"}, "epochs": 3}),
    ],
)
def test_steps_are_those_of_a_run_that_encodes_in_every_step(
    towers: Path,
    scenes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: Form,
    changes: dict[str, Any],
) -> None:
    recipe = form(towers, **changes)
    run(recipe, scenes, tmp_path / "once")
    monkeypatch.setattr("training.trainer.run.locked_towers", lambda *_: (None, None))
    with counted() as passes:
        run(recipe, scenes, tmp_path / "always")
    assert sum(passes["images"]) == (recipe.train.epochs or 0) * (BATCHES * BATCH + VAL)
    assert_close_weights(tmp_path / "once", tmp_path / "always")
    for one, other in zip(lines(tmp_path / "once"), lines(tmp_path / "always"), strict=True):
        assert one.keys() == other.keys()
        for name in other.keys() - {"kind", "samples_per_second"}:
            assert one[name] == pytest.approx(other[name], rel=1e-4)


@pytest.mark.parametrize("form", [locked, heads])
def test_a_resumed_run_is_bit_equal(
    towers: Path, scenes: Path, straight: Path, tmp_path: Path, form: Form
) -> None:
    stop(form(towers), scenes, tmp_path / "out", 3)
    with counted() as passes:
        run(form(towers), scenes, tmp_path / "out", resume=True)
    assert sum(passes["images"]) == TRAIN + VAL
    assert_same_checkpoints(tmp_path / "out", straight / form.__name__)


def test_towers_stay_and_the_bundle_gives_the_vectors_of_training(
    towers: Path, scenes: Path, straight: Path
) -> None:
    out = straight / "heads"
    for tower in ("image", "text"):
        given = load_file(towers / tower / "model.safetensors")
        kept = {name.removeprefix(f"{tower}.backbone.model."): value for name, value in weights(out).items()}
        same = [name for name in given if name in kept]
        assert len(same) > 10
        assert all(torch.equal(given[name], kept[name]) for name in same)
    encoder = load_encoder(out / "bundle", "cpu")
    figures = evaluate(encoder, read_manifest(scenes).split("val"), show_progress=False).metrics()
    validations = [line for line in lines(out) if line["kind"] == "validation"]
    best = max(validations, key=lambda line: float(line["rsum"]))
    assert figures == pytest.approx({name: best[name] for name in figures}, abs=1e-4)


def test_heads_of_a_bundle_are_trained_on(towers: Path, scenes: Path, straight: Path, tmp_path: Path) -> None:
    recipe = heads(towers, start_from=str(straight / "heads/bundle"))
    with counted() as passes:
        run(recipe, scenes, tmp_path / "out")
    assert sum(passes["images"]) == TRAIN + VAL
    before, after = weights(straight / "heads"), weights(tmp_path / "out")
    moved = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert moved <= {"image_head", "text_head"}


def test_features_of_other_weights_are_others() -> None:
    fabric, image = Fabric(accelerator="cpu"), ImagePreprocessing(ImagePreprocessingConfig(size=16))
    tower = image_tower(tiny_model())
    first = LockedTower(tower, image, fabric, "fp32")
    assert LockedTower(tower, image, fabric, "fp32").key == first.key
    assert LockedTower(tower, image, fabric, "bf16").key != first.key
    torch.nn.init.normal_(next(tower.parameters()).detach())
    assert LockedTower(tower, image, fabric, "fp32").key != first.key


@pytest.mark.parametrize(
    "changes",
    [
        {"flip": 0.5},
        pytest.param({"pooling": "attention"}, marks=pytest.mark.slow),
        pytest.param({"steps": 2}, marks=pytest.mark.slow),
    ],
)
def test_a_tower_that_gives_other_features_in_every_step_is_not_cached(
    towers: Path, scenes: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    with counted() as passes:
        run(locked(towers, **changes), scenes, tmp_path / "out")
    assert passes["images"][:2] == [BATCH, BATCH]


def other_image_tower(towers: Path, data: Path) -> None:
    shutil.rmtree(towers / "image")
    write_resnet(towers / "image", seed=1)


def other_text_weights(towers: Path, data: Path) -> None:
    changed = load_file(towers / "text/model.safetensors")
    changed["embeddings.word_embeddings.weight"] += 1
    save_file(changed, towers / "text/model.safetensors", {"format": "pt"})


def swapped(towers: Path, data: Path) -> None:
    """Two images change places, and keep sizes and times of their files."""
    paths = [data / "images" / f"{number}.png" for number in (0, 1)]
    contents, times = [path.read_bytes() for path in paths], [path.stat() for path in paths]
    for path, content, time in zip(paths, reversed(contents), times, strict=True):
        path.write_bytes(content)
        os.utime(path, ns=(time.st_atime_ns, time.st_mtime_ns))


def another_text(towers: Path, data: Path) -> None:
    first, *rest = read_manifest(data).records
    write_manifest(data, [replace(first, texts=("a yellow triangle", first.texts[1])), *rest])


def nothing(towers: Path, data: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("change", "settings", "images", "texts"),
    [
        (nothing, {}, 0, 0),
        (other_image_tower, {}, TRAIN, 0),
        pytest.param(other_text_weights, {}, 0, TRAIN_TEXTS, marks=pytest.mark.slow),
        pytest.param(nothing, {"image": {"size": 24}}, TRAIN, 0, marks=pytest.mark.slow),
        pytest.param(nothing, {"image": {"mean": [0.5, 0.5, 0.5]}}, TRAIN, 0, marks=pytest.mark.slow),
        pytest.param(nothing, {"text": {"max_tokens": 6}}, 0, TRAIN_TEXTS, marks=pytest.mark.slow),
        (swapped, {}, 2, 0),
        (another_text, {}, 0, 1),
    ],
)
def test_features_of_something_else_are_never_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path, Path], None],
    settings: dict[str, Any],
    images: int,
    texts: int,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data, own = write_scenes(tmp_path / "data"), write_towers(tmp_path / "own")
    for number in (0, 1):
        # To one size, behind the end of the image.
        path = data / "images" / f"{number}.png"
        path.write_bytes(path.read_bytes().ljust(4096, b"\0"))
    kept = {"data": {"cache_images": True}, "epochs": 1}
    run(heads(own, **kept), data, tmp_path / "before")
    change(own, data)
    with counted() as passes:
        run(heads(own, **kept, preprocessing=settings), data, tmp_path / "kept")
    assert {name: sum(each) for name, each in passes.items()} == {
        "images": images + VAL,
        "texts": texts + VAL_TEXTS,
    }
    run(heads(own, epochs=1, preprocessing=settings), data, tmp_path / "anew")
    assert_close_weights(tmp_path / "kept", tmp_path / "anew")


LOCAL, VIEWS = "needs local features", "needs two views of each image"
REASONS = {
    "lovt-cxr-small": LOCAL,
    "scan-gru-coco": LOCAL,
    "caption-lstm-mimic-cxr": LOCAL,
    "byol-mimic-cxr": VIEWS,
    "simclr-mimic-cxr": VIEWS,
    "pixpro-mimic-cxr": LOCAL,
    "quest-clip-coco": "model.branches leave a tower before its end",
}
TRAINED = (
    *(
        f"{name}-flickr-small"
        for name in ["reco", "ltd", "vse", "ifm", "orthogonality", "blade2", "reclaim", "infonce"]
    ),
    *("dpc-coco", "sco-coco", "quest-gru-coco", "contrastive-binary-mimic-cxr", "labels-mimic-cxr"),
)
_FAST = ("lovt-cxr-small", "simclr-mimic-cxr", "quest-clip-coco", "reco-flickr-small")


@pytest.mark.parametrize(
    "name",
    [name if name in _FAST else pytest.param(name, marks=pytest.mark.slow) for name in (*REASONS, *TRAINED)],
)
def test_objectives_of_global_embeddings_train_and_others_are_refused_before_anything_is_encoded(
    name: str, towers: Path, sentence_encoder: Path, scenes: Path, tmp_path: Path
) -> None:
    tree = shrunk(load_recipe(name), sentence_encoder).model_dump(mode="json")
    for tower, architecture, pooling in (("image", "resnet", "tower"), ("text", "bert", "mean")):
        if tree["model"][tower] is not None:
            own = {"pretrained": str(towers / tower), "options": {}}
            tree["model"][tower] |= {"architecture": architecture, "pooling": pooling, **own}
            if tree["model"][tower]["head"]["kind"] == "identity":
                tree["model"][tower]["head"] = {"kind": "linear"}
    tree["train"] |= {"heads": True, "start_from": None}
    tree["data"]["cache_images"] = "memory"
    recipe = parse_recipe(tree, "A recipe")
    with counted() as passes:
        if name not in REASONS:
            result = run(recipe, scenes, tmp_path / "out")
            assert np.isfinite(list(result.metrics.values())).all()
            return
        with pytest.raises(RecipeError, match=REASONS[name]):
            run(recipe, scenes, tmp_path / "out")
    assert passes == {"images": [], "texts": []}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"image": {"pretrained": None}}, "the image tower has random weights: give"),
        ({"lora": {}}, "leave out one of them"),
        ({"image": {"pooling": "attention"}}, "model.image.pooling has weights that are trained"),
        ({"data": {"shortcut": "unique"}}, "data.shortcut changes each image"),
    ],
)
def test_what_cannot_be_encoded_once_is_refused_in_one_sentence(
    towers: Path, scenes: Path, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    with counted() as passes, pytest.raises(RecipeError, match=reason) as refused:
        run(heads(towers, **changes), scenes, tmp_path / "out")
    assert str(refused.value).count(". ") == 0
    assert passes == {"images": [], "texts": []}
