"""Towers that start from random weights with a learning rate made for pretrained ones."""

import logging
from typing import Final

from training.recipes.schema import Recipe

logger = logging.getLogger(__name__)

_LEAST_RATE: Final = 5e-5


def warn_of_slow_random_towers(recipe: Recipe) -> None:
    """Say which towers will hardly learn, since they have no pretrained weights and a tiny learning rate."""
    model, optimizer = recipe.model, recipe.optimizer
    rate = optimizer.lr if optimizer.tower_lr is None else optimizer.tower_lr
    towers = {"image": model.image, "text": model.text, "audio": model.audio}
    for name, tower in towers.items():
        if tower is not None and tower.pretrained is None and rate < _LEAST_RATE:
            logger.warning(
                "The %s tower starts from random weights, and its learning rate of %g is made for pretrained "
                "ones: it will hardly learn. Give weights with --set model.%s.pretrained=FOLDER.",
                name,
                rate,
                name,
            )
