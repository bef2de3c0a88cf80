"""Shared parts of all towers: backbones, pooling, frozen layers, and batches run in slices."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, TypeVar

import torch
from pydantic import BaseModel, ValidationError
from torch import Tensor, nn
from torch.nn import functional

from training.common.errors import RecipeError
from training.models.config import TowerConfig
from training.models.pooling import Pooling, PoolingName

Options = TypeVar("Options", bound=BaseModel)
# On two cores, MobileNetV2's forward pass takes a third less time per image than with 256.
_IMAGES: Final = 32
# Flickr8k captions have 12 tokens on average and at most 40; smaller slices save little more.
_TEXTS: Final = 32


@dataclass(frozen=True, slots=True)
class Fork:
    """Hidden states (B, M, C) where a branch leaves a tower, and which tokens (B, M) are real."""

    states: Tensor
    mask: Tensor


@dataclass(frozen=True, slots=True)
class TowerOutput:
    """The features of one modality before projection.

    Attributes:
        pooled: Global feature (B, W).
        local: Local features (B, K, C): the cells of a map row by row, patches, tokens or frames.
        local_mask: (B, K), False at padding; None: no padding.
        local_weights: (B, K) attention weight of each local feature in `pooled`; None without attention.
        fork: Input of the unique branch; None if there is none.
        local_count: Number of real local features in the batch; None: unknown.
    """

    pooled: Tensor
    local: Tensor
    local_mask: Tensor | None = None
    local_weights: Tensor | None = None
    fork: Fork | None = None
    local_count: int | None = None


@dataclass(frozen=True, slots=True)
class Projection:
    """The linear map that a pretrained model applies to its pooled feature: weight (D, W), bias (D,)."""

    weight: Tensor
    bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class BackboneOutput:
    """The features of a backbone.

    Attributes:
        local: (B, K, C), as in `TowerOutput`.
        pooled: The architecture's own pooled feature (B, W), the class token if it has one; or None.
        mask: (B, K), which local features are real; only for sounds.
        fork: Hidden states (B, M, C) after layer `fork_after`, class and register tokens first.
    """

    local: Tensor
    pooled: Tensor | None = None
    mask: Tensor | None = None
    fork: Tensor | None = None


class Backbone(nn.Module):
    """A network without head and without this package's pooling.

    Attributes:
        width: Width of the architecture's own pooled feature.
        local_width: Width of the local features.
        options: Rebuild the architecture.
        stem_paths: Names of the modules before the first layer.
        layer_path: Name of the list of layers.
        projection: The pretrained model's projection of its pooled feature, if any.
        heads: Attention heads of a transformer that can be forked; None: can't be.
        fork_after: Layer, counted from 1, whose output is returned for a branch, if any.
        has_cls: Whether its pooled feature is a class token.
        prefix: Number of class and register tokens before the local ones in its hidden states.
    """

    width: int
    local_width: int
    options: dict[str, Any]
    stem_paths: tuple[str, ...]
    layer_path: str
    projection: Projection | None = None
    heads: int | None = None
    fork_after: int | None = None
    has_cls: bool = False
    prefix: int = 0

    def stem(self) -> list[nn.Module]:
        """The modules before the first layer."""
        return [self.get_submodule(path) for path in self.stem_paths]

    def layers(self) -> list[list[nn.Module]]:
        """The layers in the order of the forward pass; a layer may consist of several modules."""
        return [[layer] for layer in self.get_submodule(self.layer_path).children()]


class ImageBackbone(Backbone):
    """A backbone that maps normalised images (B, 3, S, S) to features.

    Attributes:
        image_size: Required side in pixels; None: any multiple of `size_multiple`.
    """

    image_size: int | None = None
    size_multiple: int = 1


class TextBackbone(Backbone):
    """A backbone that maps ids and mask (B, T) to features; padding never changes a real token.

    Attributes:
        max_tokens: Length limit of a text.
        causal: Whether a token only attends to those before it.
        pools_itself: Whether it returns its own end-of-text feature instead of the last real token.
        projected_pooling: Pooling of the feature that `projection` applies to, if any.
    """

    max_tokens: int
    projected_pooling: PoolingName | None = None
    causal: bool = False
    pools_itself: bool = False


class AudioBackbone(Backbone):
    """A backbone that maps spectrograms (B, M, T) and their mask (B, T) to features.

    Attributes:
        mels: Required number M of bands.
        max_frames: Length limit of a spectrogram; None: unlimited.
    """

    mels: int
    max_frames: int | None = None


class Tower(nn.Module):
    """A backbone and its pooling; frozen layers have no gradients and stay in evaluation mode.

    Attributes:
        config: Resolved: rebuilds the architecture without the pretrained folder.
        pooling: Pools local features; None: the backbone's own pooled feature is used.
        width: Width of the pooled feature.
        projection: The pretrained model's projection of the pooled feature, if any.
        fork_pooling: Pooling of a branch.
        fork_prefix: Number of a branch's first tokens that aren't pooled.

    Raises:
        RecipeError: The backbone doesn't support the pooling, or has fewer layers than are frozen.
    """

    config: TowerConfig
    backbone: Backbone
    projection: Projection | None
    fork_pooling: PoolingName
    fork_prefix: int = 0

    def __init__(self, config: TowerConfig, backbone: Backbone, pooling: PoolingName | None) -> None:
        super().__init__()
        self.config = config.model_copy(update={"pretrained": None, "options": backbone.options})
        self.backbone = backbone
        self.pooling = None if pooling is None else Pooling(pooling, backbone.local_width)
        self.width = backbone.width if pooling is None else backbone.local_width
        self.local_width = backbone.local_width
        self._frozen = frozen_modules(backbone, config.frozen_layers)
        for module in self._frozen:
            module.requires_grad_(False)
            module.eval()

    def train(self, mode: bool = True) -> Self:
        """Set the mode, except of frozen parts, whose batch-norm statistics must not change."""
        super().train(mode)
        for module in self._frozen:
            module.eval()
        return self

    def run_backbone(self, *inputs: Tensor) -> BackboneOutput:
        """Run the backbone, without gradients if it is entirely frozen."""
        with torch.no_grad() if self.config.frozen_layers == "all" else nullcontext():
            features: BackboneOutput = self.backbone(*inputs)
        return features


class PooledTower(Tower):
    """A tower of images or sounds; the pooling "tower" is the architecture's own pooled feature."""

    def __init__(
        self,
        config: TowerConfig,
        backbone: Backbone,
        pooling: Literal["tower", "cls", "mean", "max", "attention"],
    ) -> None:
        super().__init__(config, backbone, None if pooling == "tower" or pooling == "cls" else pooling)
        own = pooling == "tower"
        self.projection = backbone.projection if own else None
        self.fork_pooling = pooling if pooling != "tower" else "cls" if backbone.has_cls else "mean"
        self.fork_prefix = 0 if self.fork_pooling == "cls" else backbone.prefix

    def pool(self, features: BackboneOutput, mask: Tensor, count: int | None = None) -> TowerOutput:
        """Pool a backbone's features, of which `mask` (B, K) says which are real and `count` how many."""
        fork = None
        if features.fork is not None:
            # The shape and not the length, which an export would fix.
            prefix = mask.new_ones((mask.shape[0], self.backbone.prefix))
            fork = Fork(features.fork, torch.cat([prefix, mask], dim=1))
        pooled, weights = features.pooled, None
        if self.pooling is not None:
            pooled, weights = self.pooling(features.local, mask)
        assert pooled is not None
        return TowerOutput(pooled, features.local, mask, weights, fork, count)


def read_options(kind: type[Options], architecture: str, options: Mapping[str, Any]) -> Options:
    """Check the options of an architecture.

    Raises:
        RecipeError: An option is unknown or does not fit.
    """
    try:
        return kind.model_validate(options)
    except ValidationError as error:
        raise RecipeError(f"The options of {architecture} do not fit: {error}") from error


def transformer_layers(width: int, heads: int, count: int, dropout: float = 0.0) -> nn.ModuleList:
    """Pre-norm transformer layers with GELU, four times as wide inside."""
    return nn.ModuleList(
        nn.TransformerEncoderLayer(
            width,
            heads,
            dim_feedforward=4 * width,
            dropout=dropout,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        for _ in range(count)
    )


def use_channels_last(module: nn.Module) -> None:
    """Keep the weights of convolutions in channels-last memory: the same numbers, faster on a CPU."""
    for parameter in module.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)


def frozen_modules(backbone: Backbone, count: int | Literal["all"]) -> tuple[nn.Module, ...]:
    """The stem and the first `count` layers; nothing for 0, the whole backbone for "all".

    Raises:
        RecipeError: The backbone has fewer layers.
    """
    if count == "all":
        return (backbone,)
    if count == 0:
        return ()
    layers = backbone.layers()
    if count > len(layers):
        raise RecipeError(
            f"frozen_layers is {count}, but the tower has {len(layers)} layers: choose fewer, or 'all'."
        )
    return (*backbone.stem(), *(module for layer in layers[:count] for module in layer))


def run_layers(layers: Sequence[nn.Module], hidden: Tensor) -> Tensor:
    """Run layers in sequence; on a CPU, the first ones run on slices of the batch (B, ...) if they can.

    Slices keep activations in the processor's cache. A layer can run on slices if it is in evaluation mode,
    so that items don't influence each other, and keeps nothing for a backward pass.
    """
    first = 0
    if hidden.device.type == "cpu" and len(hidden) > _IMAGES and not hidden.requires_grad:
        while first < len(layers) and _independent(layers[first]):
            first += 1
    if first:
        with torch.no_grad():
            hidden = torch.cat([_run(layers[:first], part) for part in torch.split(hidden, _IMAGES)])
    return _run(layers[first:], hidden)


def _independent(layer: nn.Module) -> bool:
    if any(module.training for module in layer.modules()):
        return False
    return not torch.is_grad_enabled() or not any(weight.requires_grad for weight in layer.parameters())


def _run(layers: Sequence[nn.Module], hidden: Tensor) -> Tensor:
    for layer in layers:
        hidden = layer(hidden)
    return hidden


def read_by_length(
    read: Callable[[Tensor, Tensor], BackboneOutput], input_ids: Tensor, attention_mask: Tensor
) -> BackboneOutput:
    """Read texts; on a CPU in slices of similar length, to waste little time on padding.

    Args:
        read: Maps ids and mask (B, T) to features; trailing padding must not change a real token.
        input_ids: (B, T).
        attention_mask: (B, T), 1 for real tokens, all of which precede the padding.

    Returns:
        The features of the texts in order; zeros at padding that wasn't read.
    """
    if input_ids.device.type != "cpu" or len(input_ids) <= _TEXTS:
        return read(input_ids, attention_mask)
    lengths = attention_mask.sum(dim=1)
    order = torch.argsort(lengths, stable=True)
    back, parts = torch.argsort(order), []
    for rows in torch.split(order, _TEXTS):
        longest = max(1, int(lengths[rows[-1]]))
        parts.append(read(input_ids[rows, :longest], attention_mask[rows, :longest]))

    def joined(pieces: Sequence[Tensor]) -> Tensor:
        full = [functional.pad(piece, (0, 0, 0, input_ids.shape[1] - piece.shape[1])) for piece in pieces]
        return torch.cat(full)[back]

    pooled = [part.pooled for part in parts if part.pooled is not None]
    forks = [part.fork for part in parts if part.fork is not None]
    return BackboneOutput(
        joined([part.local for part in parts]),
        torch.cat(pooled)[back] if pooled else None,
        fork=joined(forks) if forks else None,
    )
