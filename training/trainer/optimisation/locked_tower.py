"""An image tower that a run does not change: each image passes it once, and steps begin with its features."""

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray

from training.models.dual_encoder import DualEncoder
from training.models.encoder import Encoder
from training.models.features import ModalityFeatures
from training.models.images.towers import ImageTower
from training.models.inputs.images import Pixels
from training.models.preprocessing import ImagePreprocessing, Preprocessing
from training.objectives.base import Objective
from training.recipes.schema import Precision, Recipe
from training.trainer.run_state.devices import chosen_precision

_BATCH: Final = 64


class LockedTower:
    """Pooled features (W,) of images, by a tower whose weights and statistics stay as they are.

    Source: Zhai et al., LiT: Zero-Shot Transfer with Locked-image text Tuning, 2022, section 3.

    Args:
        tower: On the device, with its last weights.
        image: How it takes images.
        fabric: Device and precision.
        precision: Its name.
    """

    def __init__(
        self, tower: ImageTower, image: ImagePreprocessing, fabric: Fabric, precision: Precision
    ) -> None:
        self.shape: tuple[int, ...] = (tower.width,)
        self.key = _digest(tower, image, fabric.device, precision)
        self.what = "features of the locked image tower"
        self._tower = tower
        self._image = image
        self._fabric = fabric

    def __call__(self, images: Sequence[Pixels]) -> list[NDArray[np.float32]]:
        """The features (W,) of each image (3, S, S)."""
        features: list[NDArray[np.float32]] = []
        for start in range(0, len(images), _BATCH):
            some = torch.from_numpy(np.stack(images[start : start + _BATCH])).to(self._fabric.device)
            # Compiled, it would give other numbers, and be compiled for nothing more than this.
            with torch.no_grad(), self._fabric.autocast(), torch.compiler.set_stance("force_eager"):
                pooled = self._tower(self._image.normalise(self._image.to_unit(some))).pooled
            features.extend(pooled.float().cpu().numpy())
        return features


class LockedEncoder(Encoder):
    """Encoder whose image tower is locked: an image that it has embedded before skips it.

    Args:
        model: Measured; its image tower has the weights of the locked one.
        preprocessing: Of what it sees.
        device: Where it computes.
        locked: Its image tower.
        in_bfloat16: Whether its other parts compute in bfloat16.
    """

    def __init__(
        self,
        model: DualEncoder,
        preprocessing: Preprocessing,
        device: torch.device,
        locked: LockedTower,
        *,
        in_bfloat16: bool = False,
    ) -> None:
        super().__init__(model, preprocessing, device, in_bfloat16=in_bfloat16)
        self._locked = locked
        self._known: dict[bytes, NDArray[np.float32]] = {}

    def _image_features(self, images: Pixels) -> ModalityFeatures:
        keys = [hashlib.sha256(image.data).digest() for image in images]
        new = {key: image for key, image in zip(keys, images, strict=True) if key not in self._known}
        self._known |= zip(new, self._locked(list(new.values())), strict=True)
        features = np.stack([self._known[key] for key in keys])
        return self.model.encode_image(torch.from_numpy(features).to(self.device))


def locked_tower(
    model: DualEncoder, objective: Objective, recipe: Recipe, image: ImagePreprocessing, fabric: Fabric
) -> LockedTower | None:
    """The image tower of a run if its pooled features are all that is used of it and always the same.

    Args:
        model: On the device, with the weights that the run begins with or goes on from.
        objective: That is trained.
        recipe: Of the run.
        image: How the model takes images.
        fabric: Device and precision.
    """
    tower = model.image
    if tower is None or tower.config.frozen_layers != "all":
        return None
    if any(parameter.requires_grad for parameter in tower.parameters()):
        return None
    if model.config.local_features or model.config.branches is not None:
        return None
    shortcut = recipe.data.shortcut
    pasted = shortcut is not None and "image" in shortcut.modalities
    if pasted or recipe.augmentation.changes or "views" in objective.requires:
        return None
    return LockedTower(tower, image, fabric, chosen_precision(recipe.train.precision, fabric.device))


def _digest(tower: ImageTower, image: ImagePreprocessing, device: torch.device, precision: Precision) -> str:
    """SHA-256 over the weights, and all else that decides the features of prepared images."""
    settings = (tower.config, image.config.mean, image.config.std, device.type, precision)
    digest = hashlib.sha256(repr(settings).encode())
    for name, value in tower.state_dict().items():
        digest.update(name.encode())
        digest.update(value.cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
