"""Image towers: a backbone and its pooling; CLIP's ResNet."""

from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from training.common.errors import RecipeError
from training.common.frozen import Frozen
from training.models.config import ImageTowerConfig
from training.models.torchvision_resnet import is_weight_file
from training.models.tower import (
    BackboneOutput,
    ImageBackbone,
    PooledTower,
    Projection,
    TowerOutput,
    read_options,
    use_channels_last,
)

_EXPANSION = 4


class ImageTower(PooledTower):
    """A vision backbone and its pooling."""

    config: ImageTowerConfig
    backbone: ImageBackbone

    def __init__(self, config: ImageTowerConfig, backbone: ImageBackbone) -> None:
        if config.pooling == "cls" and not backbone.has_cls:
            raise RecipeError(f"{config.architecture} has no class token: choose another pooling than 'cls'.")
        super().__init__(config, backbone, config.pooling)

    def forward(self, pixels: Tensor) -> TowerOutput:
        """Features of normalised images (B, 3, S, S)."""
        features = self.run_backbone(pixels)
        mask = features.local.new_ones(features.local.shape[:2], dtype=torch.bool)
        return self.pool(features, mask, mask.numel())


def build_image_tower(config: ImageTowerConfig, *, load_pretrained: bool) -> ImageTower:
    """The image tower of a configuration.

    Raises:
        RecipeError: The pretrained model, an option, the pooling or frozen layers are invalid.
    """
    # Importing transformers takes seconds.
    from training.models.pretrained.folder import local_folder
    from training.models.transformers_backbones import build_image_backbone, build_torchvision_resnet

    pretrained = config.pretrained
    if config.architecture == "resnet" and pretrained is not None and is_weight_file(pretrained):
        file = Path(pretrained).expanduser()
        return ImageTower(config, build_torchvision_resnet(file, weights=load_pretrained))
    folder = None if pretrained is None else local_folder(pretrained)
    if config.architecture == "clip_resnet":
        return ImageTower(config, build_clip_resnet(config.options, folder, weights=load_pretrained))
    backbone = build_image_backbone(config.architecture, config.options, folder, weights=load_pretrained)
    return ImageTower(config, backbone)


def check_image_size(backbone: ImageBackbone, size: int, setting: str = "preprocessing.image.size") -> None:
    """Check that a backbone accepts images of this size.

    Raises:
        RecipeError: It requires another size; the message names `setting`.
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


class ClipResNetOptions(Frozen):
    """Size of the network; the defaults are RN50."""

    layers: tuple[int, int, int, int] = (3, 4, 6, 3)
    width: int = Field(default=64, gt=1, multiple_of=2, description="Channels behind the stem.")
    heads: int = Field(default=32, gt=0, description="Heads of the attention pooling.")
    image_size: int = Field(default=224, gt=0, multiple_of=32)


class _Bottleneck(nn.Module):
    """Residual block that downsamples by average pooling before a convolution of stride 1."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = width * _EXPANSION
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shrink = nn.AvgPool2d(stride) if stride > 1 else nn.Identity()
        self.conv3 = nn.Conv2d(width, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.downsample: nn.Module = nn.Identity()
        if stride > 1 or channels != out:
            parts = {
                "pool": nn.AvgPool2d(stride),
                "0": nn.Conv2d(channels, out, 1, bias=False),
                "1": nn.BatchNorm2d(out),
            }
            self.downsample = nn.Sequential(OrderedDict(parts))

    def forward(self, features: Tensor) -> Tensor:
        hidden = functional.relu(self.bn1(self.conv1(features)))
        hidden = functional.relu(self.bn2(self.conv2(hidden)))
        hidden = self.bn3(self.conv3(self.shrink(hidden)))
        return functional.relu(hidden + self.downsample(features))


class _AttentionPool(nn.Module):
    """Attention pooling with the mean of the map as query; its output projection is left to the head."""

    def __init__(self, cells: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.positional_embedding = nn.Parameter(torch.randn(cells + 1, width) / width**0.5)
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)

    def forward(self, cells: Tensor) -> Tensor:
        tokens = torch.cat([cells.mean(dim=1, keepdim=True), cells], dim=1) + self.positional_embedding
        query, key, value = (
            projection(part).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for projection, part in (
                (self.q_proj, tokens[:, :1]),
                (self.k_proj, tokens),
                (self.v_proj, tokens),
            )
        )
        return functional.scaled_dot_product_attention(query, key, value).flatten(1)


class ClipResNet(ImageBackbone):
    """The modified ResNet of CLIP (Radford et al. 2021, section 2.4): three-layer stem, antialiased strides.

    Its pooled feature precedes CLIP's projection. Parameters are named as in the published weights
    (`visual.*` in open_clip's files), which load directly.
    """

    stem_paths = ("conv1", "bn1", "conv2", "bn2", "conv3", "bn3")

    def __init__(self, options: ClipResNetOptions) -> None:
        super().__init__()
        width, final = options.width, options.width * 8 * _EXPANSION
        self.options = options.model_dump(mode="json")
        self.image_size = options.image_size
        self.width = self.local_width = final
        self.conv1 = nn.Conv2d(3, width // 2, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width // 2)
        self.conv2 = nn.Conv2d(width // 2, width // 2, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width // 2)
        self.conv3 = nn.Conv2d(width // 2, width, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(width)
        self.layer1 = _stage(width, width, options.layers[0], stride=1)
        self.layer2 = _stage(width * _EXPANSION, width * 2, options.layers[1], stride=2)
        self.layer3 = _stage(width * 2 * _EXPANSION, width * 4, options.layers[2], stride=2)
        self.layer4 = _stage(width * 4 * _EXPANSION, width * 8, options.layers[3], stride=2)
        self.attnpool = _AttentionPool((options.image_size // 32) ** 2, final, options.heads)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        use_channels_last(self)

    def forward(self, pixels: Tensor) -> BackboneOutput:
        """Features of normalised images (B, 3, S, S)."""
        hidden = pixels.contiguous(memory_format=torch.channels_last)
        for convolution, norm in ((self.conv1, self.bn1), (self.conv2, self.bn2), (self.conv3, self.bn3)):
            hidden = functional.relu(norm(convolution(hidden)))
        hidden = functional.avg_pool2d(hidden, 2)
        for stage in self._stages():
            hidden = stage(hidden)
        cells = hidden.flatten(2).transpose(1, 2)
        return BackboneOutput(cells, self.attnpool(cells))

    def layers(self) -> list[list[nn.Module]]:
        """The residual blocks."""
        return [[block] for stage in self._stages() for block in stage]

    def _stages(self) -> tuple[nn.Sequential, ...]:
        return self.layer1, self.layer2, self.layer3, self.layer4


def _stage(channels: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    rest = [_Bottleneck(width * _EXPANSION, width, 1) for _ in range(blocks - 1)]
    return nn.Sequential(_Bottleneck(channels, width, stride), *rest)


def build_clip_resnet(options: dict[str, Any], folder: Path | None, *, weights: bool) -> ClipResNet:
    """CLIP's ResNet from options with random weights, or from a folder with weights in open_clip's naming.

    Raises:
        RecipeError: An option is invalid, or the folder has no such weights.
    """
    from training.models.pretrained.folder import read_tensors

    if folder is None:
        return ClipResNet(read_options(ClipResNetOptions, "clip_resnet", options))
    tensors = {
        name.removeprefix("visual."): tensor
        for name, tensor in read_tensors(folder, prefixes=["visual."]).items()
    }
    if "attnpool.positional_embedding" not in tensors:
        raise RecipeError(f"{folder} holds no CLIP ResNet: its weights have no visual.attnpool.")
    model = ClipResNet(read_options(ClipResNetOptions, "clip_resnet", _inferred_options(tensors)))
    weight, bias = tensors.pop("attnpool.c_proj.weight"), tensors.pop("attnpool.c_proj.bias")
    if weights:
        try:
            model.load_state_dict(tensors)
        except RuntimeError as error:
            raise RecipeError(f"The weights in {folder} are not those of a CLIP ResNet: {error}") from error
        model.projection = Projection(weight, bias)
    return model


def _inferred_options(tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Options inferred from weights; a head is always 64 wide."""
    layers = [
        len({name.split(".")[1] for name in tensors if name.startswith(f"layer{stage}.")})
        for stage in (1, 2, 3, 4)
    ]
    positions, final = tensors["attnpool.positional_embedding"].shape
    side = round((positions - 1) ** 0.5) * 32
    return {"layers": layers, "width": final // 32, "heads": max(1, final // 64), "image_size": side}
