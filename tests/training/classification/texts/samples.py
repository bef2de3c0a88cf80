"""Folders of GLUE tasks with an easy rule, and recipes so small that a run takes a second."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from training.classification.load import load_classification_recipe
from training.classification.texts.config import TextRecipe
from training.recipes.load import parse_as

_GOOD = ("good", "lovely", "bright", "warm")
_BAD = ("bad", "awful", "dark", "cold")
_FILLER = ("film", "story", "the", "a", "day", "music", "very", "of")


def write_sst(folder: Path, *, train: int = 64, dev: int = 16) -> Path:
    """A sentence is positive when its one word of judgement is."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(3)
    for name, count in (("train", train), ("dev", dev)):
        lines = ["sentence\tlabel"]
        for number in range(count):
            label = number % 2
            words = list(generator.choice(_FILLER, size=int(generator.integers(2, 6))))
            words.insert(int(generator.integers(len(words) + 1)), str(generator.choice((_BAD, _GOOD)[label])))
            lines.append(f"{' '.join(words)}\t{label}")
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def write_sts(folder: Path, *, train: int = 64, dev: int = 16) -> Path:
    """The score of two sentences is 2.5 for each of the two that has a word of praise."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(4)
    columns = "index genre filename year old_index source1 source2 sentence1 sentence2 score"
    for name, count in (("train", train), ("dev", dev)):
        lines = [columns.replace(" ", "\t")]
        for number in range(count):
            first, second = generator.integers(2, size=2)
            words = [str(generator.choice((_BAD, _GOOD)[kind])) for kind in (first, second)]
            words[0] = f"{words[0]} {generator.choice(_FILLER)}"
            score = 2.5 * (first + second)
            lines.append(f"{number}\tg\tf\t2012\t1\ts\ts\t{words[0]}\t{words[1]}\t{score}")
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def text_recipe(name: str, overrides: Sequence[str] = ()) -> TextRecipe:
    """A recipe of texts that comes with the project."""
    recipe = load_classification_recipe(name, overrides)
    assert isinstance(recipe, TextRecipe)
    return recipe


def tiny_recipe(task: str = "sst-2", *, reclaim: bool = False, **train: Any) -> TextRecipe:
    """A transformer of 16 numbers with dropout."""
    return parse_as(
        TextRecipe,
        {
            "name": "tiny",
            "description": "For tests.",
            "task": task,
            "model": {
                "architecture": "small_transformer",
                "options": {"width": 16, "layers": 1, "heads": 2, "dropout": 0.1},
                "vocabulary_size": 320,
                "max_tokens": 24,
            },
            "data": {"validation_share": 0.25},
            "reclaim": {"neighbours": 5, "critic_width": 8} if reclaim else None,
            "optimizer": {"lr": 5e-3, "weight_decay": 0.01, "max_grad_norm": 1.0},
            "schedule": {"name": "linear", "warmup_steps": 2},
            "train": {"batch_size": 8, "epochs": 2, "log_every_steps": 1, "precision": "fp32", **train},
        },
        "The tiny recipe",
    )
