"""A manifest whose labels are easy to see, and a recipe so small that a run takes a second."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from training.classification.recipe import ImageRecipe
from training.common.manifest import Record, Split, write_manifest
from training.recipes.load import parse_as

SIZE = 16
RESNET: dict[str, Any] = {
    "embedding_size": 8,
    "hidden_sizes": [8, 16],
    "depths": [1, 1],
    "layer_type": "basic",
}


def write_squares(folder: Path, *, train: int = 40, val: int = 12, test: int = 12, seed: int = 5) -> Path:
    """Noisy squares, each bright or dark and each red or not; two images share a group."""
    (folder / "images").mkdir(parents=True)
    generator = np.random.default_rng(seed)
    counts: dict[Split, int] = {"train": train, "val": val, "test": test}
    splits = [split for split, count in counts.items() for _ in range(count)]
    records = []
    for number, split in enumerate(splits):
        bright, red = number % 2 == 0, number % 4 < 2
        colour = np.array([150.0 if bright else 60.0] * 3) + (np.array([50, -30, -30]) if red else 0)
        pixels = np.clip(colour + generator.integers(-20, 20, size=(SIZE, SIZE, 3)), 0, 255)
        path = f"images/{number}.png"
        Image.fromarray(pixels.astype(np.uint8)).save(folder / path)
        labels = (*(["bright"] if bright else []), *(["red"] if red else []))
        records.append(Record(f"s{number}", path, split, labels=labels, group=f"{split}{number // 2}"))
    write_manifest(folder, records)
    return folder


def tiny_tree(**changes: Any) -> dict[str, Any]:
    """The settings of a ResNet of 16 numbers with batch norm and augmentation: all a resume may lose."""
    tree: dict[str, Any] = {
        "name": "tiny",
        "description": "For tests.",
        "task": "labels",
        "model": {"architecture": "resnet", "options": RESNET},
        "preprocessing": {"size": SIZE},
        "frozen": False,
        "augmentation": {"flip": 0.5, "rotation": 10, "blur_kernel": 3},
        "optimizer": {"lr": 2e-2, "tower_lr": 1e-2, "weight_decay": 0.01, "max_grad_norm": 1.0},
        "schedule": {"warmup_steps": 2},
        "train": {"batch_size": 8, "epochs": 2, "log_every_steps": 1, "precision": "fp32"},
    }
    for key, value in changes.items():
        tree[key] = {**tree[key], **value} if isinstance(tree.get(key), dict) and value else value
    return tree


def tiny_recipe(**changes: Any) -> ImageRecipe:
    """A recipe of `tiny_tree`."""
    return parse_as(ImageRecipe, tiny_tree(**changes), "The tiny recipe")
