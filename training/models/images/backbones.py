"""The vision models of transformers as image backbones."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from torch import Tensor, nn

from training.models.config import ImageArchitecture
from training.models.images.torchvision_resnet import load_torchvision, read_weights, resnet_options
from training.models.pretrained.architecture import (
    architecture_options,
    configuration,
    load_pretrained,
    pretrained_configuration,
    read_projection,
)
from training.models.slices import run_layers
from training.models.tower import ImageBackbone, ImageFeatures, Projection, use_channels_last


@dataclass(frozen=True, slots=True)
class _Family:
    """Where a model of transformers keeps what a tower needs.

    `output` is the shape of its last hidden state: a map, patches, or a class token and patches. In a conv
    net `tail` comes behind the layers, and `norm` behind the mean of the map. With `any_size` a transformer
    takes images of any whole number of patches.
    """

    config: str
    model: str
    output: Literal["map", "patches", "cls_patches"]
    stem: tuple[str, ...]
    layers: str
    settings: tuple[tuple[str, Any], ...] = ()
    tail: tuple[str, ...] = ()
    norm: str | None = None
    any_size: bool = False


_FAMILIES: dict[str, _Family] = {
    "resnet": _Family("ResNetConfig", "ResNetModel", "map", ("embedder",), "encoder.stages"),
    "convnext": _Family(
        "ConvNextConfig", "ConvNextModel", "map", ("embeddings",), "encoder.stages", norm="layernorm"
    ),
    "efficientnet": _Family(
        "EfficientNetConfig",
        "EfficientNetModel",
        "map",
        ("embeddings",),
        "encoder.blocks",
        tail=("encoder.top_conv", "encoder.top_bn", "encoder.top_activation"),
    ),
    "mobilenet_v2": _Family(
        "MobileNetV2Config", "MobileNetV2Model", "map", ("conv_stem",), "layer", tail=("conv_1x1",)
    ),
    # Most checkpoints of a ViT have no pooler; the class token is what they were trained to classify by.
    "vit": _Family(
        "ViTConfig", "ViTModel", "cls_patches", ("embeddings",), "layers", (("add_pooling_layer", False),)
    ),
    "clip_vision_model": _Family(
        "CLIPVisionConfig", "CLIPVisionModel", "cls_patches", ("embeddings", "pre_layrnorm"), "encoder.layers"
    ),
    "dinov2": _Family(
        "Dinov2Config", "Dinov2Model", "cls_patches", ("embeddings",), "encoder.layer", any_size=True
    ),
    "dinov2_with_registers": _Family(
        "Dinov2WithRegistersConfig",
        "Dinov2WithRegistersModel",
        "cls_patches",
        ("embeddings",),
        "encoder.layer",
        any_size=True,
    ),
    "dinov3_vit": _Family(
        "DINOv3ViTConfig", "DINOv3ViTModel", "cls_patches", ("embeddings",), "model.layer", any_size=True
    ),
    "siglip_vision_model": _Family(
        "SiglipVisionConfig", "SiglipVisionModel", "patches", ("embeddings",), "encoder.layers"
    ),
}


class TransformersImageBackbone(ImageBackbone):
    """A vision model of transformers; conv nets run in channels-last memory, which is faster on a CPU."""

    def __init__(self, family: _Family, model: nn.Module, options: dict[str, Any]) -> None:
        super().__init__()
        self._family = family
        self.model = model
        self.options = options
        self.has_cls = family.output == "cls_patches"
        # Register tokens come between the class token and the patches.
        self.prefix = int(self.has_cls) + int(options.get("num_register_tokens", 0))
        if family.any_size:
            self.size_multiple = int(options["patch_size"])
        elif family.output != "map":
            self.image_size = int(options["image_size"])
        self.width = self.local_width = _width(family, model, options)
        self.heads = None if family.output == "map" else int(options["num_attention_heads"])
        if family.output == "map":
            use_channels_last(self)

    def forward(self, pixels: Tensor) -> ImageFeatures:
        """Features of normalised images (B, 3, S, S)."""
        if self._family.output == "map":
            return self._map(pixels.contiguous(memory_format=torch.channels_last))
        settings = {} if self.fork_after is None else {"output_hidden_states": True}
        output = self.model(pixel_values=pixels, **settings)
        hidden: Tensor = output.last_hidden_state
        fork = None if self.fork_after is None else output.hidden_states[self.fork_after]
        if self._family.output == "patches":
            pooled = output.pooler_output
            return ImageFeatures(hidden.mean(dim=1) if pooled is None else pooled, hidden, fork=fork)
        final_norm = getattr(self.model, "post_layernorm", None)
        if final_norm is not None:
            hidden = final_norm(hidden)
        return ImageFeatures(hidden[:, 0], hidden[:, self.prefix :], hidden[:, 0], fork)

    def _map(self, pixels: Tensor) -> ImageFeatures:
        """What the model's own forward gives; run layer by layer, frozen ones need a fraction of the time."""
        layers = [*self.stem(), *(module for layer in self.layers() for module in layer)]
        layers += [attrgetter(path)(self.model) for path in self._family.tail]
        hidden = run_layers(layers, pixels)
        pooled = hidden.mean(dim=(-2, -1))
        if self._family.norm is not None:
            pooled = attrgetter(self._family.norm)(self.model)(pooled)
        return ImageFeatures(pooled, hidden.flatten(2).transpose(1, 2))

    def stem(self) -> Sequence[nn.Module]:
        """The modules before the first layer."""
        return [attrgetter(path)(self.model) for path in self._family.stem]

    def layers(self) -> Sequence[Sequence[nn.Module]]:
        """Transformer layers, or the blocks of a conv net; a downsampling belongs to the block behind it."""
        found: list[list[nn.Module]] = []
        for layer in attrgetter(self._family.layers)(self.model):
            blocks = getattr(layer, "layers", None) if self._family.layers == "encoder.stages" else [layer]
            first = list(getattr(layer, "downsampling_layer", []))
            for block in blocks or []:
                found.append([*first, block])
                first = []
        return found


def _width(family: _Family, model: nn.Module, options: dict[str, Any]) -> int:
    if "hidden_size" in options:
        return int(options["hidden_size"])
    if "hidden_sizes" in options:
        return int(options["hidden_sizes"][-1])
    tail = attrgetter(family.tail[0])(model)
    return int(getattr(tail, "convolution", tail).out_channels)


def build_transformers_backbone(
    architecture: ImageArchitecture, options: dict[str, Any], folder: Path | None, *, weights: bool
) -> TransformersImageBackbone:
    """A vision model from options with random weights, or from a pretrained folder.

    Args:
        architecture: Its model type in transformers.
        options: Of the architecture; a folder's own come first.
        folder: Of a pretrained model; None: random weights.
        weights: Load the folder's weights, not only its architecture.
    """
    family = _FAMILIES[architecture]
    kind = getattr(transformers, family.config)
    model_kind = getattr(transformers, family.model)
    settings = dict(family.settings)
    config = (
        configuration(kind, options)
        if folder is None
        else pretrained_configuration(kind, folder, tuple(_FAMILIES))
    )
    resolved = architecture_options(config)
    if folder is None or not weights:
        return TransformersImageBackbone(family, model_kind(config, **settings), resolved)
    model = load_pretrained(model_kind, config, folder, **settings)
    backbone = TransformersImageBackbone(family, model, resolved)
    backbone.projection = _projection(architecture, folder, backbone.width)
    return backbone


def build_torchvision_resnet(file: Path, *, weights: bool) -> TransformersImageBackbone:
    """A ResNet of the depth and width that a file of weights with torchvision's names has.

    Raises:
        RecipeError: The file is not that of a ResNet.
    """
    tensors = read_weights(file)
    config = configuration(transformers.ResNetConfig, resnet_options(tensors, file))
    model_kind: Any = transformers.ResNetModel
    model = model_kind(config)
    if weights:
        model = load_torchvision(model, tensors, file)
    return TransformersImageBackbone(_FAMILIES["resnet"], model, architecture_options(config))


def _projection(architecture: ImageArchitecture, folder: Path, width: int) -> Projection | None:
    if architecture == "clip_vision_model":
        return read_projection(folder, "visual_projection.weight")
    if architecture == "siglip_vision_model":
        return Projection(torch.eye(width))
    return None
