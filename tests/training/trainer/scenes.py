"""A data folder and a recipe so small that a whole run takes a second, and what runs of it leave."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from tests.training.runs import before_step, terminate
from training.common.manifest import Record, Split, write_manifest
from training.models.image_towers import ImageTower
from training.models.text_towers import TextTower
from training.recipes.load import parse_recipe
from training.recipes.schema import Recipe
from training.trainer.loop import TrainingLoop
from training.trainer.run import TrainResult, train
from training.trainer.run_state.errors import TrainingInterruptedError

COLOURS = {"red": (200, 40, 40), "green": (40, 180, 60), "blue": (50, 70, 210), "white": (230, 230, 230)}
SIZE = 16


def write_scenes(folder: Path, *, train: int = 14, val: int = 6, repeated: bool = False) -> Path:
    """Noisy images of one colour, with two texts and a label each; repeated texts are those of others too."""
    generator = np.random.default_rng(7)
    (folder / "images").mkdir(parents=True)
    records = []
    splits: list[Split] = ["train" if number < train else "val" for number in range(train + val)]
    for number, split in enumerate(splits):
        name = list(COLOURS)[number % len(COLOURS)]
        noise = generator.integers(-30, 30, size=(SIZE, SIZE, 3))
        pixels = np.clip(np.array(COLOURS[name]) + noise, 0, 255).astype(np.uint8)
        path = f"images/{number}.png"
        Image.fromarray(pixels).save(folder / path)
        texts = (f"a {name} square number {number}", f"something {name} and {number} more")
        if repeated:
            texts = (f"a {name} square", f"something {name}")
        records.append(Record(id=f"s{number}", image=path, split=split, texts=texts, labels=(name,)))
    write_manifest(folder, records)
    return folder


# These parts of a recipe are replaced as a whole.
_WHOLE = ("objective", "options", "augmentation")


def tiny_recipe(**changes: Any) -> Recipe:
    """A recipe with dropout, batch norm, augmentation and a learned temperature: all a resume may lose.

    Args:
        changes: Settings of `train`, and parts of the recipe (`model={"text": None}`).
    """
    tree: dict[str, Any] = {
        "name": "tiny",
        "description": "For tests.",
        "model": {
            "dim": 8,
            "image": {
                "architecture": "resnet",
                # With four channels, a backward pass of oneDNN writes outside its memory.
                "options": {
                    "embedding_size": 8,
                    "hidden_sizes": [8, 8],
                    "depths": [1, 1],
                    "layer_type": "basic",
                },
            },
            "text": {
                "architecture": "small_transformer",
                "options": {"width": 8, "layers": 1, "heads": 2, "dropout": 0.2},
                "vocabulary_size": 300,
            },
        },
        "preprocessing": {"image": {"size": SIZE}, "text": {"max_tokens": 16}},
        "objective": {"name": "infonce"},
        "augmentation": {"flip": 0.5, "rotation": 10, "brightness": 0.2, "blur_kernel": 3},
        "data": {},
        "optimizer": {"lr": 1e-2, "tower_lr": 5e-3, "weight_decay": 0.01, "max_grad_norm": 1.0},
        "schedule": {"warmup_steps": 2},
        "train": {"batch_size": 4, "epochs": 2, "select_by": "rsum", "log_every_steps": 1},
    }
    parts = {name: changes.pop(name) for name in [*changes] if name in tree}
    if "steps" in changes:
        changes["epochs"] = None
    return parse_recipe(_changed(tree, {**parts, "train": changes}), "The tiny recipe")


def _changed(tree: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    changed = dict(tree)
    for name, value in changes.items():
        old = tree.get(name)
        if isinstance(old, dict) and isinstance(value, dict) and name not in _WHOLE:
            value = _changed(old, value)
        changed[name] = value
    return changed


def run(recipe: Recipe | str, data: Path, out: Path, **options: Any) -> TrainResult:
    """Train on a CPU without bars."""
    return train(recipe, data, out, device="cpu", show_progress=False, **options)


def stop(recipe: Recipe, data: Path, out: Path, step: int, **options: Any) -> None:
    """A run that is asked to stop in this step, from 1."""
    with (
        before_step(TrainingLoop, step, terminate),
        pytest.raises(TrainingInterruptedError, match=f"after step {step} of"),
    ):
        run(recipe, data, out, **options)


def stop_and_resume(recipe: Recipe, data: Path, out: Path, step: int, **options: Any) -> TrainResult:
    """The same, resumed with other random numbers."""
    stop(recipe, data, out, step, **options)
    torch.manual_seed(99)
    return run(recipe, data, out, resume=True, **options)


def weights(out: Path) -> dict[str, Tensor]:
    """Those of the bundle that a run has left."""
    return load_file(out / "bundle/model.safetensors")


def assert_close_weights(ours: Path, theirs: Path) -> None:
    """Two runs have left the same weights but for rounding."""
    torch.testing.assert_close(weights(ours), weights(theirs), rtol=1e-5, atol=1e-6)


@contextmanager
def counted() -> Iterator[dict[str, list[int]]]:
    """How many images and texts each pass of a tower gets."""
    passes: dict[str, list[int]] = {"images": [], "texts": []}

    def count(module: nn.Module, given: tuple[Any, ...], _: object) -> None:
        if isinstance(module, ImageTower):
            passes["images"].append(len(given[0]))
        elif isinstance(module, TextTower):
            passes["texts"].append(len(given[0].input_ids))

    handle = register_module_forward_hook(count)
    try:
        yield passes
    finally:
        handle.remove()
