"""Heads between a tower and the embedding: projections, concepts, and QUEST's branches with their normals."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import normalize
from torch.nn.modules.batchnorm import _BatchNorm

from training.common.errors import RecipeError
from training.models.config import BranchesConfig, HeadConfig, Retrieval
from training.models.pooling import Pooling
from training.models.tower import Fork, Projection, Tower, TowerOutput, transformer_layers

NORM_EPS = 1e-7
PARALLEL_EPS = 1e-6


def normal_of(shared: Tensor, unique: Tensor) -> Tensor:
    """Unit normals (..., D - D % 3) of the planes that shared and unique outputs (..., D) span, D at least 3.

    The lengths of the outputs don't matter. Parallel outputs span no plane: a cross product shorter than a
    millionth of the product of their lengths is rounding error and isn't scaled to length 1, so that the
    pair resembles nothing and has a finite gradient. Computed outside autocast, in float32, or in float64
    if an input is float64.
    """
    with torch.autocast(shared.device.type, enabled=False):
        shared, unique = (
            normalize(output.to(torch.promote_types(output.dtype, torch.float32)), dim=-1, eps=NORM_EPS)
            for output in (shared, unique)
        )
        return unit_normal(shared, unique)


def unit_normal(shared: Tensor, unique: Tensor) -> Tensor:
    """`normal_of` for outputs (..., D) that already have length 1."""
    return normalize(block_cross(shared, unique), dim=-1, eps=PARALLEL_EPS)


def block_cross(a: Tensor, b: Tensor) -> Tensor:
    """Cross products of consecutive triples of two outputs (..., D) (QUEST, Z^n = Z^s x Z^u).

    The result (..., D - D % 3) is orthogonal to both; the last D mod 3 numbers are unused.
    """
    used = a.shape[-1] - a.shape[-1] % 3
    first, second = (output[..., :used].reshape(*output.shape[:-1], used // 3, 3) for output in (a, b))
    product: Tensor = torch.linalg.cross(first, second)
    return product.flatten(-2)


def build_head(config: HeadConfig, width: int, dim: int, start: Projection | None = None) -> nn.Sequential:
    """A head from `width` to `dim`: linear, two layers, or identity.

    A linear head is initialized with the pretrained projection `start` if shapes match.

    Raises:
        RecipeError: An identity head can't change the width.
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
    """Predict concepts from a pooled feature and fuse both into an embedding by a gate (SCO).

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
        probabilities = torch.sigmoid(self.predict(pooled))
        gate = torch.sigmoid(self.gate(torch.cat((probabilities, pooled), dim=-1)))
        concepts, context = (
            normalize(values, dim=-1, eps=NORM_EPS)
            for values in (self.of_concepts(probabilities), self.of_context(pooled))
        )
        return gate * concepts + (1 - gate) * context


def local_norm(head: nn.Module) -> nn.BatchNorm1d | None:
    """Batch norm without weights for local features that share a head; None if the head has none.

    Pooled features and regions have different distributions. Joint running statistics would fit neither, and
    embeddings in evaluation mode would differ from those in training.
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

    A head with a batch norm only receives real entries, so that padding doesn't affect its statistics; the
    result at padding is 0.

    Args:
        head: From C to D.
        entries: (B, K, C).
        mask: (B, K), False at padding; None: no padding.
        norm: A `local_norm` whose statistics replace those of the head's batch norm (its weight and bias are
            used as they are); None: the head's own.
        count: Number of True in `mask`; None: counted, which synchronizes with a GPU.
    """
    projected: Tensor
    if not any(isinstance(module, _BatchNorm) for module in head.modules()):
        projected = head(entries)
        return projected
    if mask is None:
        mask, count = entries.new_ones(entries.shape[:2], dtype=torch.bool), entries.shape[:2].numel()
    flat, real = entries.flatten(0, 1), mask.flatten()
    rows = (real.nonzero() if count is None else torch.nonzero_static(real, size=count))[:, 0]
    values = flat[rows]
    projected = head(values) if norm is None else _with_statistics(head, norm, values)
    filled: Tensor = projected.new_zeros(len(flat), projected.shape[-1]).index_copy(0, rows, projected)
    return filled.reshape(*mask.shape, -1)


def _with_statistics(head: nn.Module, norm: nn.Module, values: Tensor) -> Tensor:
    """Apply a head to values (N, C), with another norm's statistics in its batch norm."""
    for module in head.children():
        if isinstance(module, _BatchNorm):
            values = (norm(values) * module.weight + module.bias).to(values.dtype)
        else:
            values = module(values)
    return values


class ForkDecoder(nn.Module):
    """Pre-norm transformer layers over a fork's tokens, a final norm, and the tower's kind of pooling."""

    def __init__(self, tower: Tower, heads: int, layers: int) -> None:
        super().__init__()
        width = tower.local_width
        self.layers = transformer_layers(width, heads, layers)
        self.norm = nn.LayerNorm(width)
        self.pooling = Pooling(tower.fork_pooling, width)
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
    """The unique decoder of a modality with its head, on a fork of the tower or on its pooled feature."""

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


def build_unique_branch(config: BranchesConfig, tower: Tower, dim: int) -> UniqueBranch:
    """The unique branch of a tower; makes the tower return the output of its layer `fork_after`.

    Only transformers are forked. The head is configured like the tower's own, with random weights.

    Raises:
        RecipeError: The tower has fewer layers.
    """
    backbone, head = tower.backbone, tower.config.head
    if config.kind == "mlp" or backbone.heads is None:
        return UniqueBranch(None, build_head(head, tower.width, dim))
    depth = len(backbone.layers())
    if config.fork_after is not None and config.fork_after > depth:
        raise RecipeError(
            f"fork_after is {config.fork_after}, but a tower has {depth} layers: choose {depth} or less."
        )
    # By default after three quarters of the layers.
    backbone.fork_after = config.fork_after or max(1, depth * 3 // 4)
    decoder = ForkDecoder(tower, backbone.heads, config.layers)
    return UniqueBranch(decoder, build_head(head, tower.local_width, dim))


def check_fork(config: BranchesConfig, branches: Iterable[UniqueBranch | None]) -> None:
    """Check that a configured fork applies to at least one tower.

    Raises:
        RecipeError: No tower is made of transformer layers.
    """
    if config.fork_after is not None and all(branch is None or branch.decoder is None for branch in branches):
        raise RecipeError(
            "fork_after is set, but no tower is made of transformer layers: remove branches.fork_after."
        )


def retrieved(shared: Tensor, unique: Tensor, retrieval: Retrieval) -> Tensor:
    """The embedding that is searched by: one branch (B, D), both concatenated (B, 2D), or their normal.

    Concatenated branches have unit length, so the cosine is the mean of theirs.
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
