"""A data folder and a recipe so small that a whole run takes a second."""

from pathlib import Path

import numpy as np
from PIL import Image

from training.common.manifest import Record, Split, write_manifest
from training.recipes.load import parse_recipe
from training.recipes.schema import Recipe

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


def tiny_recipe(**train: object) -> Recipe:
    """A recipe with dropout, batch norm, augmentation and a learned temperature: all a resume may lose."""
    settings: dict[str, object] = {"batch_size": 4, "epochs": 2, "select_by": "rsum", "log_every_steps": 1}
    settings |= train
    return parse_recipe(
        {
            "name": "tiny",
            "description": "For tests.",
            "model": {
                "dim": 8,
                "image": {
                    "architecture": "resnet",
                    "options": {
                        # With four channels a backward pass of oneDNN's writes beside its memory.
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
            "optimizer": {"lr": 1e-2, "tower_lr": 5e-3, "weight_decay": 0.01, "max_grad_norm": 1.0},
            "schedule": {"warmup_steps": 2},
            "train": settings,
        },
        "The tiny recipe",
    )
