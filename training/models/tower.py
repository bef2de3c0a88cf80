"""What all towers have in common: backbones, their output, and the choice of layers to freeze."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

import torch
from pydantic import BaseModel, ValidationError
from torch import Tensor, nn

from training.common.errors import RecipeError
from training.models.heads.pooling import PoolingName

Options = TypeVar("Options", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Fork:
    """What a branch that leaves a tower between two layers begins with.

    Attributes:
        states: (B, M, C), the output of the layer for all tokens.
        mask: (B, M), True where a token is real and not padding.
    """

    states: Tensor
    mask: Tensor


@dataclass(frozen=True, slots=True)
class TowerOutput:
    """The features of one modality before projection.

    Attributes:
        pooled: Global feature (B, W).
        local: Local features (B, K, C): the cells of a map row by row, patches, or tokens.
        local_mask: (B, K), True where a local feature is real and not padding; None: all are.
        local_weights: (B, K) attention weight of each local feature in `pooled`, where the pooling has such.
        fork: Where a branch leaves the tower; None if none does.
        local_count: Number of real local features in the batch; None: counted on the device when needed.
    """

    pooled: Tensor
    local: Tensor
    local_mask: Tensor | None = None
    local_weights: Tensor | None = None
    fork: Fork | None = None
    local_count: int | None = None


@dataclass(frozen=True, slots=True)
class Projection:
    """The linear map that a pretrained model puts behind its pooled feature: weight (D, W), bias (D,)."""

    weight: Tensor
    bias: Tensor | None = None


class Backbone(nn.Module, ABC):
    """A network without pooling of ours and without a head.

    Attributes:
        width: Width of the architecture's own pooled feature.
        local_width: Width of the local features.
        options: Everything that rebuilds the architecture.
        projection: What the pretrained model projects its pooled feature with; None if there is none.
        heads: Of the attention in a backbone of transformer layers that can fork; None: it cannot.
        fork_after: The layer, counted from 1, whose output it returns for a branch; None: it returns none.
    """

    width: int
    local_width: int
    options: dict[str, Any]
    projection: Projection | None = None
    heads: int | None = None
    fork_after: int | None = None

    @abstractmethod
    def stem(self) -> Sequence[nn.Module]:
        """The modules before the first layer."""

    @abstractmethod
    def layers(self) -> Sequence[Sequence[nn.Module]]:
        """The layers in the order of the forward pass; a layer may consist of several modules."""


@dataclass(frozen=True, slots=True)
class ImageFeatures:
    """What an image backbone sees: pooled (B, W), local (B, K, C), and its class token (B, C) if any.

    `fork` are its hidden states (B, M, C), the class token first, behind layer `fork_after`.
    """

    pooled: Tensor
    local: Tensor
    cls: Tensor | None = None
    fork: Tensor | None = None


class ImageBackbone(Backbone):
    """A backbone that maps normalised images (B, 3, S, S) to ImageFeatures.

    Attributes:
        image_size: Side in pixels that it demands; None where any multiple of `size_multiple` will do.
        size_multiple: Pixels, a divisor of the side.
        has_cls: Whether it has a class token.
        prefix: Class and register tokens before those of its hidden states that are local.
    """

    image_size: int | None = None
    size_multiple: int = 1
    has_cls: bool = False
    prefix: int = 0


@dataclass(frozen=True, slots=True)
class TextFeatures:
    """What a text backbone reads: tokens (B, T, C), and its own pooled feature (B, W) if any.

    `fork` are its hidden states (B, T, C) behind layer `fork_after`.
    """

    tokens: Tensor
    pooled: Tensor | None = None
    fork: Tensor | None = None


class TextBackbone(Backbone):
    """A backbone that maps ids and mask (B, T) to TextFeatures; padding never changes a real token.

    Attributes:
        max_tokens: Longest text that it takes.
        causal: Whether a token knows only those before it.
        pools_itself: Whether its end-of-text feature is its own and not the last real token.
        projected_pooling: Pooling of the feature that `projection` is for; None if there is none.
    """

    max_tokens: int
    projected_pooling: PoolingName | None = None
    causal: bool = False
    pools_itself: bool = False


@dataclass(frozen=True, slots=True)
class AudioFeatures:
    """What an audio backbone hears: pooled (B, W), local (B, K, C) and which of these are real (B, K).

    `fork` are its hidden states (B, P + K, C), P tokens before the local ones, behind layer `fork_after`.
    """

    pooled: Tensor
    local: Tensor
    mask: Tensor
    fork: Tensor | None = None


class AudioBackbone(Backbone):
    """A backbone that maps spectrograms (B, M, T) and their mask (B, T) to AudioFeatures.

    Attributes:
        mels: Number M of bands that it demands.
        max_frames: Longest spectrogram that it takes; None where any will do.
        prefix: Class tokens before those of its hidden states that are local.
    """

    mels: int
    prefix: int = 0
    max_frames: int | None = None


def read_options(kind: type[Options], architecture: str, options: Mapping[str, Any]) -> Options:
    """Check the options of an architecture.

    Raises:
        RecipeError: An option is unknown or does not fit.
    """
    try:
        return kind.model_validate(options)
    except ValidationError as error:
        raise RecipeError(f"The options of {architecture} do not fit: {error}") from error


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


class Tower(nn.Module):
    """A backbone and its pooling; frozen layers have no gradients and stay in evaluation mode.

    Attributes:
        backbone: The network without pooling and head.
        width: Of the pooled feature.
        local_width: Of the local features.
        projection: What the pretrained model projects the pooled feature with; None if there is none.
        fork_pooling: How a branch that leaves the backbone is pooled.
        fork_prefix: How many of its tokens come before those that are pooled.
    """

    backbone: Backbone
    width: int
    local_width: int
    projection: Projection | None
    fork_pooling: PoolingName
    fork_prefix: int = 0
    _frozen: tuple[nn.Module, ...] = ()

    def freeze(self, count: int | Literal["all"]) -> None:
        """Keep the stem and the first layers as they are; see `frozen_modules`."""
        self._frozen = frozen_modules(self.backbone, count)
        for module in self._frozen:
            module.requires_grad_(False)
            module.eval()

    def train(self, mode: bool = True) -> Self:
        """Set the mode of all but the frozen parts, so that their batch-norm statistics stay."""
        super().train(mode)
        for module in self._frozen:
            module.eval()
        return self
