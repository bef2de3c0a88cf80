"""Projection heads from a tower's width to the embedding."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import normalize
from torch.nn.modules.batchnorm import _BatchNorm

from training.common.errors import RecipeError
from training.models.config import BranchesConfig, HeadConfig, Retrieval
from training.models.heads.normal import NORM_EPS, normal_of
from training.models.heads.pooling import build_pooling
from training.models.tower import Backbone, Fork, Projection, Tower, TowerOutput

_EPS = 1e-7


def build_head(config: HeadConfig, width: int, dim: int, start: Projection | None = None) -> nn.Sequential:
    """A linear head, one of two layers, or none at all, from `width` to `dim`.

    Args:
        config: Kind, hidden width, batch norm, activation and dropout.
        width: Of the input.
        dim: Of the output.
        start: A pretrained projection that a linear head of the same shape starts from.

    Raises:
        RecipeError: Without a head the embedding would have another width.
    """
    if config.kind == "identity":
        if width != dim:
            raise RecipeError(
                f"Without a head the embedding has the {width} numbers of its tower, not {dim}: set "
                f"model.dim to {width}, or the head's kind to linear."
            )
        return nn.Sequential()
    if config.kind == "mlp":
        hidden = config.hidden or dim
        norm = [nn.BatchNorm1d(hidden)] if config.norm else []
        activation = nn.GELU() if config.activation == "gelu" else nn.ReLU()
        return nn.Sequential(
            nn.Linear(width, hidden), *norm, activation, nn.Dropout(config.dropout), nn.Linear(hidden, dim)
        )
    linear = nn.Linear(width, dim)
    if start is not None and start.weight.shape == linear.weight.shape:
        with torch.no_grad():
            linear.weight.copy_(start.weight)
            linear.bias.copy_(torch.zeros_like(linear.bias) if start.bias is None else start.bias)
    return nn.Sequential(nn.Dropout(config.dropout), linear)


class ConceptHead(nn.Module):
    """Predicts concepts from a pooled feature, and fuses both into an embedding by a gate (SCO).

    v = t * p + (1 - t) * x, where p and x are projections of unit length of the concepts' probabilities and
    of the feature, and t is a gate for each number.
    """

    def __init__(self, width: int, concepts: int, dim: int) -> None:
        super().__init__()
        self.predict = nn.Linear(width, concepts)
        self.of_concepts = nn.Linear(concepts, dim)
        self.of_context = nn.Linear(width, dim)
        self.gate = nn.Linear(concepts + width, dim)

    def forward(self, pooled: Tensor) -> Tensor:
        """Embeddings (..., D) of pooled features (..., W)."""
        found = torch.sigmoid(self.predict(pooled))
        gate = torch.sigmoid(self.gate(torch.cat((found, pooled), dim=-1)))
        concepts, context = (
            normalize(values, dim=-1, eps=_EPS)
            for values in (self.of_concepts(found), self.of_context(pooled))
        )
        return gate * concepts + (1 - gate) * context


def local_norm(head: nn.Module) -> nn.BatchNorm1d | None:
    """Batch norm without weights for local features that share a head; None for a head without batch norm.

    Pooled features and single regions are different distributions. Running statistics of both together fit
    neither, so an embedding in evaluation mode would not be the one that was trained.
    """
    shared = next((module for module in head.modules() if isinstance(module, _BatchNorm)), None)
    return None if shared is None else nn.BatchNorm1d(shared.num_features, affine=False)


def project_entries(
    head: nn.Module,
    entries: Tensor,
    mask: Tensor | None = None,
    norm: nn.Module | None = None,
    count: int | None = None,
) -> Tensor:
    """Project local features (B, K, C) to (B, K, D), each by itself.

    A head with a batch norm sees the real entries only, so that padding is no part of its statistics; the
    others come out as zeros.

    Args:
        head: From C to D.
        entries: (B, K, C).
        mask: (B, K), True where an entry is real; None: all are.
        norm: Statistics of the entries, as `local_norm` makes them, in place of those of the head's batch
            norm, whose weight and bias stay; None: the head's own.
        count: Number of True in `mask`; None: counted, for which a GPU is waited for.
    """
    projected: Tensor
    if not any(isinstance(module, _BatchNorm) for module in head.modules()):
        projected = head(entries)
        return projected
    if mask is None:
        mask, count = entries.new_ones(entries.shape[:2], dtype=torch.bool), entries.shape[:2].numel()
    flat, real = entries.flatten(0, 1), mask.flatten()
    places = real.nonzero() if count is None else torch.nonzero_static(real, size=count)
    values = flat[places[:, 0]]
    projected = head(values) if norm is None else _with_statistics(head, norm, values)
    filled: Tensor = projected.new_zeros(len(flat), projected.shape[-1]).index_copy(
        0, places[:, 0], projected
    )
    return filled.reshape(*mask.shape, -1)


def _with_statistics(head: nn.Module, norm: nn.Module, values: Tensor) -> Tensor:
    """The image (N, D) of values (N, C) under a head, with another norm's statistics in its batch norm."""
    for module in head.children():
        if isinstance(module, _BatchNorm):
            values = (norm(values) * module.weight + module.bias).to(values.dtype)
        else:
            values = module(values)
    return values


class ForkDecoder(nn.Module):
    """Pre-norm transformer layers over the tokens of a fork, a last norm and the tower's kind of pooling."""

    def __init__(self, tower: Tower, heads: int, layers: int) -> None:
        super().__init__()
        width = tower.local_width
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width,
                heads,
                dim_feedforward=4 * width,
                dropout=0.0,
                activation="gelu",
                batch_first=True,
                norm_first=True,
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.pooling = build_pooling(tower.fork_pooling, width)
        self.prefix = tower.fork_prefix

    def forward(self, fork: Fork) -> Tensor:
        """The pooled feature (B, C) of a fork's tokens (B, M, C)."""
        hidden = fork.states
        for layer in self.layers:
            hidden = layer(hidden, src_key_padding_mask=~fork.mask)
        pooled: Tensor
        pooled, _ = self.pooling(self.norm(hidden)[:, self.prefix :], fork.mask[:, self.prefix :])
        return pooled


class UniqueBranch(nn.Module):
    """The unique decoder of one modality with its head: at a fork of the tower, or on its pooled feature."""

    def __init__(self, decoder: ForkDecoder | None, head: nn.Sequential) -> None:
        super().__init__()
        self.decoder: ForkDecoder | None = decoder
        self.head: nn.Sequential = head

    def forward(self, output: TowerOutput) -> Tensor:
        """The unique feature (B, D)."""
        feature = output.pooled
        if self.decoder is not None and output.fork is not None:
            feature = self.decoder(output.fork)
        unique: Tensor = self.head(feature)
        return unique


def build_unique_branch(config: BranchesConfig, head: HeadConfig, tower: Tower, dim: int) -> UniqueBranch:
    """The unique branch of a tower, which returns what its layer `fork_after` gives from now on.

    Args:
        config: Of the branches.
        head: From the decoder to the embedding; like the tower's own, but it starts from random weights.
        tower: Is not forked where it has no transformer layers.
        dim: Of the output.

    Raises:
        RecipeError: The tower has fewer layers.
    """
    backbone = tower.backbone
    if config.kind == "mlp" or backbone.heads is None:
        return UniqueBranch(None, build_head(head, tower.width, dim))
    backbone.fork_after = _fork_layer(backbone, config.fork_after)
    decoder = ForkDecoder(tower, backbone.heads, config.layers)
    return UniqueBranch(decoder, build_head(head, tower.local_width, dim))


def _fork_layer(backbone: Backbone, wanted: int | None) -> int:
    """The layer behind which the branch leaves: three quarters of the tower unless one is wanted."""
    depth = len(backbone.layers())
    if wanted is None:
        return max(1, depth * 3 // 4)
    if wanted > depth:
        raise RecipeError(f"fork_after is {wanted}, but a tower has {depth} layers: choose {depth} or less.")
    return wanted


def check_fork(config: BranchesConfig, branches: Iterable[UniqueBranch | None]) -> None:
    """Make sure that a chosen fork is one of some tower.

    Raises:
        RecipeError: No tower is made of transformer layers.
    """
    if config.fork_after is not None and all(branch is None or branch.decoder is None for branch in branches):
        raise RecipeError(
            "fork_after is set, but no tower is made of transformer layers: remove branches.fork_after."
        )


def retrieved(shared: Tensor, unique: Tensor, retrieval: Retrieval) -> Tensor:
    """What is searched by: one of two branches (B, D), both side by side (B, 2D), or their normal.

    Side by side, both have length one, so the cosine is the mean of theirs.
    """
    match retrieval:
        case "shared":
            return shared
        case "unique":
            return unique
        case "concat":
            parts = (functional.normalize(part.float(), dim=-1, eps=NORM_EPS) for part in (shared, unique))
            return torch.cat(list(parts), dim=-1)
        case "normal":
            return normal_of(shared, unique)
