"""Recipes made small in one way for all: other towers, sizes and lengths; what they do stays what it is."""

from copy import deepcopy
from pathlib import Path
from typing import Any

from tests.training.models.tiny import IMAGE_OPTIONS, TEXT_OPTIONS
from training.recipes.library import Library
from training.recipes.load import parse_recipe
from training.recipes.schema import Recipe

BATCH = 4
DIM = 12
AUDIO_OPTIONS: dict[str, dict[str, Any]] = {
    "audio_cnn": {"mels": 16, "width": 16, "layers": 2},
    "audio_spectrogram_transformer": {
        "hidden_size": 16,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "num_mel_bins": 16,
        "max_length": 48,
        "patch_size": 8,
        "frequency_stride": 8,
        "time_stride": 8,
    },
}
# The architecture that a name on the hub stands for, where it differs from its kind's own defaults.
HUB_OPTIONS: dict[str, dict[str, Any]] = {
    "emilyalsentzer/Bio_ClinicalBERT": {"vocab_size": 28996},
    "microsoft/resnet-50": {},
    "microsoft/resnet-152": {"depths": [3, 8, 36, 3]},
    "openai/clip-vit-base-patch32": {},
    "MIT/ast-finetuned-audioset-10-10-0.4593": {},
}


def first_runs(library: Library) -> list[str]:
    """Every recipe of a library, of a sweep its first run."""
    return [next(iter(library.runs(name)), name) for name in library.names]


def without_downloads(recipe: Recipe) -> Recipe:
    """The recipe at its full size, with random weights where it names a model on the hub."""
    tree = recipe.model_dump(mode="json")
    for tower in towers(tree):
        if tower["pretrained"] is not None:
            tower["options"] = {**HUB_OPTIONS[tower["pretrained"]], **tower["options"]}
            tower["pretrained"] = None
    return parse_recipe(tree, recipe.name)


def shrunk(recipe: Recipe, sentence_encoder: Path) -> Recipe:
    """The recipe with towers of a few numbers, tiny images, short texts, and two steps of four pairs."""
    tree = recipe.model_dump(mode="json")
    model = tree["model"]
    options = {
        str(architecture): settings
        for known in (IMAGE_OPTIONS, TEXT_OPTIONS, AUDIO_OPTIONS)
        for architecture, settings in known.items()
    }
    for tower in towers(tree):
        tower |= {"pretrained": None, "options": deepcopy(options[tower["architecture"]]), "frozen_layers": 0}
        if tower["head"]["kind"] == "identity":
            tower["options"]["width"] = DIM
        tower["head"]["hidden"] = None if tower["head"]["hidden"] is None else 2 * DIM
    model["dim"] = DIM
    model["concepts"] = None if model["concepts"] is None else 3
    if model["local_head"] and model["local_head"]["hidden"]:
        model["local_head"]["hidden"] = 2 * DIM
    if model["branches"] and model["branches"]["fork_after"]:
        # Behind three quarters of the layers, as in the towers of full size.
        model["branches"]["fork_after"] = 2
    # Conv nets leave one cell in 32 pixels; local features need a few.
    size = 64 if model["local_features"] else 32
    image = tree["preprocessing"]["image"]
    image |= {"size": size, "resize_to": None if image["resize_to"] is None else size + size // 7}
    tree["preprocessing"]["text"]["max_tokens"] = 24
    tree["preprocessing"]["audio"] |= {"mels": 16, "seconds": 0.4}
    if tree["data"]["target_encoder"] is not None:
        tree["data"]["target_encoder"] = str(sentence_encoder)
    tree["train"] |= {"batch_size": BATCH, "steps": 2, "epochs": None, "precision": "fp32"}
    tree["train"] |= {"select_by": "loss", "log_every_steps": 1}
    tree["schedule"]["warmup_steps"] = min(1, tree["schedule"]["warmup_steps"])
    return parse_recipe(tree, recipe.name)


def towers(tree: dict[str, Any]) -> list[dict[str, Any]]:
    """The settings of the towers that a recipe's tree has."""
    found = (tree["model"][name] for name in ("image", "text", "audio"))
    return [tower for tower in found if tower is not None]
