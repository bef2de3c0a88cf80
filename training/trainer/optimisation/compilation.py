"""Compiled towers: torch.compile fuses their operations."""

import shutil
from typing import Final

from training.errors import RecipeError
from training.models.dual_encoder import DualEncoder

_COMPILERS: Final = ("g++", "clang++")


def compile_towers(model: DualEncoder) -> None:
    """Compile the backbones of a model at their first pass; names and weights stay as they are.

    Raises:
        RecipeError: There is no C++ compiler.
    """
    if not any(map(shutil.which, _COMPILERS)):
        raise RecipeError("train.compile needs a C++ compiler: install g++, or set train.compile to false.")
    for tower in (model.image, model.text, model.audio):
        if tower is not None:
            tower.backbone.compile()
