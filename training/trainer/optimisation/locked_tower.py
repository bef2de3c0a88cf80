"""Towers that a run does not change: each image or text passes them once, and steps begin with features."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor

from training.common.errors import RecipeError
from training.data.pairs import Text
from training.data.prepared_rows import RowMaker, SourceFile, Together, find_room, prepare
from training.models.config import Modality
from training.models.dual_encoder import DualEncoder
from training.models.encoder import Encoder
from training.models.features import ModalityFeatures
from training.models.image_input import Pixels
from training.models.image_towers import ImageTower
from training.models.preprocessing import ImagePreprocessing, Preprocessing, TextPreprocessing, TokenBatch
from training.models.text_towers import TextTower
from training.objectives.base import Objective
from training.recipes.schema import Precision, Recipe
from training.trainer.run_state.devices import chosen_precision

_BATCH: Final = 64

Features = NDArray[np.float32]
# By the key of a tower, the features of what it has encoded: texts, or digests of images.
EncodedByTower = dict[str, dict[Any, Features]]


class LockedTower:
    """Pooled features (W,) of images, by a tower whose weights and statistics stay as they are.

    Source: Zhai et al., LiT: Zero-Shot Transfer with Locked-image text Tuning, 2022, section 3.
    """

    def __init__(
        self, tower: ImageTower, image: ImagePreprocessing, fabric: Fabric, precision: Precision
    ) -> None:
        self.shape: tuple[int, ...] = (tower.width,)
        self.key = _digest(tower, image.config.mean, image.config.std, fabric.device.type, precision)
        self.what = "features of the locked image tower"
        self._tower = tower
        self._image = image
        self._fabric = fabric

    def __call__(self, images: Sequence[Pixels]) -> list[Features]:
        """The features (W,) of each image (3, S, S)."""
        features: list[Features] = []
        for start in range(0, len(images), _BATCH):
            some = torch.from_numpy(np.stack(images[start : start + _BATCH])).to(self._fabric.device)
            features.extend(
                _pooled(self._tower, self._image.normalise(self._image.to_unit(some)), self._fabric)
            )
        return features


class LockedTextTower:
    """Pooled features (W,) of texts, by a tower whose weights stay as they are."""

    def __init__(
        self, tower: TextTower, text: TextPreprocessing, fabric: Fabric, precision: Precision
    ) -> None:
        self.shape = (tower.width,)
        self.key = _digest(tower, text.config, text.tokenizer.to_json(), fabric.device.type, precision)
        self._tower = tower
        self._text = text
        self._fabric = fabric

    def __call__(self, texts: Sequence[Text]) -> list[Features]:
        """The features (W,) of each text."""
        features: list[Features] = []
        for start in range(0, len(texts), _BATCH):
            tokens = self._text(texts[start : start + _BATCH]).to(self._fabric.device)
            features.extend(_pooled(self._tower, tokens, self._fabric))
        return features

    def encoded(
        self, texts: Iterable[Text], folder: Path, processes: Together, *, on_disk: bool, show_progress: bool
    ) -> "EncodedTexts | None":
        """The features of all texts that can be drawn; None where neither disk nor memory can hold them.

        Args:
            texts: May hold a text several times.
            folder: Folder of the data set.
            processes: Processes that draw from the same texts; the others wait while the main one fills the
                disk.
            on_disk: Keep them for later runs.
            show_progress: Show a bar on standard error.
        """
        # Texts of about one length are read together.
        distinct = sorted(dict.fromkeys(texts), key=lambda text: (len(json.dumps(text)), str(text)))

        def sources() -> list[SourceFile]:
            contents = (json.dumps(text).encode() for text in distinct)
            return [SourceFile(hashlib.sha256(one).hexdigest(), len(one), 0) for one in contents]

        maker = RowMaker(
            folder,
            len(distinct),
            sources,
            self.shape,
            np.dtype(np.float32),
            self.key,
            "features of the locked text tower",
            lambda rows: self([distinct[row] for row in rows]),
        )
        room = find_room(maker.nbytes, maker.count, on_disk=on_disk, processes=processes, costly=True)

        def prepared() -> EncodedTexts | None:
            # No text is ever rejected.
            rows = prepare(maker, lambda _row, _reason: None, room, show_progress=show_progress)
            if rows is None:
                return None
            return EncodedTexts(rows.array, dict(zip(distinct, rows.places.tolist(), strict=True)))

        return processes.main_first(prepared) if room.disk else prepared()


class EncodedTexts:
    """Gives the features of texts that were encoded before.

    Args:
        rows: (R, W) features, in memory or mapped.
        row_of: The row of each text.
    """

    def __init__(self, rows: Features, row_of: dict[Text, int]) -> None:
        self._rows = rows
        self._row_of = row_of

    def __call__(self, texts: Sequence[Text]) -> Tensor:
        """The features (B, W) of texts."""
        return torch.from_numpy(self._rows[[self._row_of[text] for text in texts]])


class LockedEncoder(Encoder):
    """Encoder with locked towers: an image or a text that it has embedded before skips them.

    Args:
        model: Measured; its locked towers have the weights of those given.
        preprocessing: Preprocessing of what it sees.
        device: Where it computes.
        image: Its image tower, if it is locked.
        text: Its text tower, if it is locked.
        in_bfloat16: Whether its other parts compute in bfloat16.
        encoded: What its towers have encoded before, in earlier runs of this process; gets what they encode.
    """

    def __init__(
        self,
        model: DualEncoder,
        preprocessing: Preprocessing,
        device: torch.device,
        image: LockedTower | None,
        text: LockedTextTower | None,
        *,
        in_bfloat16: bool = False,
        encoded: EncodedByTower | None = None,
    ) -> None:
        super().__init__(model, preprocessing, device, in_bfloat16=in_bfloat16)
        self._image, self._text = image, text
        encoded = {} if encoded is None else encoded
        self._images: dict[bytes, Features] = {} if image is None else encoded.setdefault(image.key, {})
        self._texts: dict[Text, Features] = {} if text is None else encoded.setdefault(text.key, {})

    def _image_features(self, images: Pixels) -> ModalityFeatures:
        if self._image is None:
            return super()._image_features(images)
        keys = [hashlib.sha256(image.data).digest() for image in images]
        new = {key: image for key, image in zip(keys, images, strict=True) if key not in self._images}
        self._images |= zip(new, self._image(list(new.values())), strict=True)
        return self.model.encode_image(self._stacked([self._images[key] for key in keys]))

    def _text_features(self, batch: TokenBatch, texts: Sequence[str | Sequence[str]]) -> ModalityFeatures:
        if self._text is None:
            return super()._text_features(batch, texts)
        keys: list[Text] = [text if isinstance(text, str) else tuple(text) for text in texts]
        new = [text for text in dict.fromkeys(keys) if text not in self._texts]
        self._texts |= zip(new, self._text(new), strict=True)
        return self.model.encode_text(self._stacked([self._texts[text] for text in keys]))

    def _stacked(self, features: Sequence[Features]) -> Tensor:
        return torch.from_numpy(np.stack(features)).to(self.device)


def locked_towers(
    model: DualEncoder, objective: Objective, recipe: Recipe, preprocessing: Preprocessing, fabric: Fabric
) -> tuple[LockedTower | None, LockedTextTower | None]:
    """The towers of images and of texts whose pooled features are all that is used, and always the same.

    Args:
        model: On the device, with the weights that the run starts or resumes with.
        objective: Objective that is trained.
        recipe: Recipe of the run.
        preprocessing: Preprocessing of what the model sees.
        fabric: Device and precision.

    Raises:
        RecipeError: Heads alone are to be trained, and a tower's features are not all that it takes.
    """
    precision = chosen_precision(recipe.train.precision, fabric.device)
    image, text = None, None
    if model.image is not None and _locked(model.image, "image", model, objective, recipe):
        image = LockedTower(model.image, preprocessing.image, fabric, precision)
    if model.text is not None and _locked(model.text, "text", model, objective, recipe):
        text = LockedTextTower(model.text, preprocessing.text, fabric, precision)
    return image, text


def _locked(
    tower: ImageTower | TextTower, name: Modality, model: DualEncoder, objective: Objective, recipe: Recipe
) -> bool:
    """Whether a tower is locked.

    Raises:
        RecipeError: It is not, and heads alone are to be trained.
    """
    shortcut = recipe.data.shortcut
    changing = {
        f"model.{name}.frozen_layers leaves layers to be trained": tower.config.frozen_layers != "all",
        f"model.{name}.pooling has weights that are trained": any(
            parameter.requires_grad for parameter in tower.parameters()
        ),
        "model.local_features takes more than one feature of each": model.config.local_features,
        "model.branches leave a tower before its end": tower.backbone.fork_after is not None,
        f"data.shortcut changes each {name}": shortcut is not None and name in shortcut.modalities,
        "augmentation changes each image": name == "image"
        and (recipe.augmentation.changes or "views" in objective.requires),
    }
    reason = next((reason for reason, holds in changing.items() if holds), None)
    if reason is not None and recipe.train.heads:
        raise RecipeError(
            f"train.heads has frozen towers encode each {name} once, but {reason}: change that setting, or "
            "leave train.heads out."
        )
    return reason is None


def _pooled(tower: torch.nn.Module, given: object, fabric: Fabric) -> Features:
    """Pooled features (B, W) of a batch."""
    # Compiled, it would give other numbers, and be compiled for nothing more than this.
    with torch.no_grad(), fabric.autocast(), torch.compiler.set_stance("force_eager"):
        pooled: Features = tower(given).pooled.float().cpu().numpy()
    return pooled


def _digest(tower: torch.nn.Module, *settings: object) -> str:
    """SHA-256 over the weights, and all else that decides the features."""
    versions = [version(library) for library in ("torch", "transformers")]
    digest = hashlib.sha256(repr((tower.config, *settings, *versions)).encode())
    for name, value in tower.state_dict().items():
        digest.update(name.encode())
        digest.update(value.cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
