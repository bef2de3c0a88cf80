"""QUEST's unique branch: what one modality alone knows, beside the shared branch that is the tower itself."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.errors import RecipeError
from training.models.config import BranchesConfig, HeadConfig, Retrieval
from training.models.heads.normal import NORM_EPS, normal_of
from training.models.heads.pooling import build_pooling
from training.models.heads.projection import build_head
from training.models.tower import Backbone, Fork, Tower, TowerOutput


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
