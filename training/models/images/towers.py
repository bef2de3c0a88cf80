"""Image towers: a backbone and its pooling."""

from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor

from training.common.errors import RecipeError
from training.models.config import ImageTowerConfig
from training.models.heads.pooling import Pooling, PoolingName, build_pooling
from training.models.images.torchvision_resnet import is_weight_file
from training.models.tower import Fork, ImageBackbone, Tower, TowerOutput


class ImageTower(Tower):
    """A vision backbone and its pooling.

    Attributes:
        config: Resolved: it rebuilds the architecture without the pretrained folder.
    """

    backbone: ImageBackbone

    def __init__(self, config: ImageTowerConfig, backbone: ImageBackbone) -> None:
        super().__init__()
        if config.pooling == "cls" and not backbone.has_cls:
            raise RecipeError(f"{config.architecture} has no class token: choose another pooling than 'cls'.")
        self.config = config.model_copy(update={"pretrained": None, "options": backbone.options})
        self.backbone = backbone
        self.pooling: Pooling | None = None
        if config.pooling != "tower" and config.pooling != "cls":
            self.pooling = build_pooling(config.pooling, backbone.local_width)
        self.width = backbone.width if config.pooling == "tower" else backbone.local_width
        self.local_width = backbone.local_width
        self.projection = backbone.projection if config.pooling == "tower" else None
        self.fork_pooling: PoolingName = "cls" if backbone.has_cls else "mean"
        if config.pooling != "tower":
            self.fork_pooling = config.pooling
        self.fork_prefix = 0 if self.fork_pooling == "cls" else backbone.prefix
        self.freeze(config.frozen_layers)

    def forward(self, pixels: Tensor) -> TowerOutput:
        """Features of normalised images (B, 3, S, S)."""
        with torch.no_grad() if self.config.frozen_layers == "all" else nullcontext():
            features = self.backbone(pixels)
        local = features.local
        mask = torch.ones(local.shape[:2], dtype=torch.bool, device=local.device)
        fork = None
        if features.fork is not None:
            fork = Fork(features.fork, features.fork.new_ones(features.fork.shape[:2], dtype=torch.bool))
        if self.pooling is not None:
            pooled, weights = self.pooling(local, mask)
            return TowerOutput(pooled, local, mask, weights, fork, mask.numel())
        pooled = features.cls if self.config.pooling == "cls" else features.pooled
        return TowerOutput(pooled, local, mask, fork=fork, local_count=mask.numel())


def build_image_tower(config: ImageTowerConfig, *, load_pretrained: bool) -> ImageTower:
    """The image tower of a configuration.

    Raises:
        RecipeError: The pretrained model, an option, the pooling or the frozen layers do not fit.
    """
    # The import of transformers takes seconds.
    from training.models.images.backbones import build_torchvision_resnet, build_transformers_backbone
    from training.models.images.clip_resnet import build_clip_resnet
    from training.models.pretrained.folder import local_folder

    backbone: ImageBackbone
    if (
        config.architecture == "resnet"
        and config.pretrained is not None
        and is_weight_file(config.pretrained)
    ):
        file = Path(config.pretrained).expanduser()
        return ImageTower(config, build_torchvision_resnet(file, weights=load_pretrained))
    folder = None if config.pretrained is None else local_folder(config.pretrained)
    if config.architecture == "clip_resnet":
        backbone = build_clip_resnet(config.options, folder, weights=load_pretrained)
    else:
        backbone = build_transformers_backbone(
            config.architecture, config.options, folder, weights=load_pretrained
        )
    return ImageTower(config, backbone)


def check_image_size(backbone: ImageBackbone, size: int, setting: str = "preprocessing.image.size") -> None:
    """Make sure that a backbone can take images of this size.

    Args:
        backbone: Of an image tower.
        size: Side of images in pixels.
        setting: By which a size is given, for messages.

    Raises:
        RecipeError: It demands another size.
    """
    if backbone.image_size is not None and backbone.image_size != size:
        raise RecipeError(
            f"The image tower takes images of {backbone.image_size} pixels, not {size}: "
            f"set {setting} to {backbone.image_size}."
        )
    multiple = backbone.size_multiple
    if size % multiple:
        nearest = max(1, round(size / multiple)) * multiple
        raise RecipeError(
            f"The image tower takes images whose side is a multiple of {multiple} pixels, not {size}: "
            f"set {setting} to {nearest}."
        )
