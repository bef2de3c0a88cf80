"""Folders of sentences with an easy grammar, and recipes so small that a run takes a second."""

from pathlib import Path
from typing import Any

import numpy as np

from training.language_models.config import LanguageModelRecipe
from training.recipes.load import parse_as

_NOUNS = ("cat", "dog", "bird", "fish")
_VERBS = ("sees", "hears", "likes")


def write_sentences(folder: Path, *, train: int = 48, valid: int = 16, test: int = 16) -> Path:
    """The animal that begins a sentence ends it too, so a code helps."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(6)
    for name, count in (("train", train), ("valid", valid), ("test", test)):
        lines = []
        for _ in range(count):
            noun, other = (str(word) for word in generator.choice(_NOUNS, size=2))
            middle = " ".join(["very"] * int(generator.integers(0, 4)))
            lines.append(" ".join(f"the {noun} {generator.choice(_VERBS)} {middle} {other} {noun}".split()))
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return folder


def tiny_tree(*, reclaim: bool = False, **model: Any) -> dict[str, Any]:
    """The settings of a model of a few numbers with dropout and annealing: all that a resume may lose."""
    return {
        "name": "tiny",
        "description": "For tests.",
        "task": "language-model",
        "model": {
            "word_width": 8,
            "width": 12,
            "latent": 4,
            "dropout": 0.1,
            "word_dropout": 0.1,
            "ratio": {"width": 8, "updates": 2, "lr": 1e-3},
            **model,
        },
        "kl": {"epochs": 2},
        "reclaim": {"neighbours": 5, "critic_width": 8} if reclaim else None,
        "optimizer": {"name": "adam", "lr": 2e-2, "weight_decay": 0.0, "max_grad_norm": 5.0},
        "train": {"batch_size": 8, "epochs": 2, "log_every_steps": 1, "precision": "fp32"},
    }


def tiny_recipe(*, reclaim: bool = False, epochs: int = 2, **model: Any) -> LanguageModelRecipe:
    """A recipe of `tiny_tree`."""
    tree = tiny_tree(reclaim=reclaim, **model)
    tree["train"]["epochs"] = epochs
    return parse_as(LanguageModelRecipe, tree, "The tiny recipe")
