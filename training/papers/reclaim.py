"""RECLAIM: a critic tells a pair's two features from their nearest neighbours in a memory."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.nn.functional import linear, logsigmoid, relu
from torch.utils.checkpoint import checkpoint

from training.common.distributed import gather_uneven, of_first_process, process_rank
from training.common.errors import RecipeError
from training.models.features import Features
from training.objectives.base import IMAGE_AND_TEXT, LossOutput, Pairs, Requirement
from training.objectives.composed import Base, ComposedObjective, check_one_vector
from training.objectives.similarity import NORM_EPS, full_precision

PAIRS_AT_ONCE: Final = 2**15
# Eigenvalues smaller by a share x keep a weight of (1 - x) ** (4 ** 8), which moves it by 3e-6 at most.
_FOURTH_POWERS: Final = 8


class SpectralLinear(nn.Linear):
    """A linear layer whose weight is divided by its largest singular value (Miyato et al. 2018).

    That value is computed and not followed by power iteration: it is right from the first step on, and there
    is no state other than the weight. The narrow layers of a critic make that cheap.
    """

    def normalised_weight(self) -> Tensor:
        """Return the weight (out, in) with largest singular value 1."""
        return self.weight / largest_singular_value(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer with its normalised weight."""
        return linear(input, self.normalised_weight(), self.bias)


def largest_singular_value(matrix: Tensor) -> Tensor:
    """Scalar, with gradient, of a matrix (M, N): the root of the Gram matrix's largest eigenvalue.

    The smaller of the two Gram matrices is raised to powers until only the space of its largest eigenvalue is
    left, with an error of at most 3e-6. A solver would wait for a GPU to look for errors. A matrix of zeros
    gives a tiny positive number; a matrix that is not finite gives NaN, and the run stops at a loss that is
    no number.
    """
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    tiny = torch.finfo(matrix.dtype).tiny
    space = gram.detach() / gram.detach().diagonal().sum().clamp(min=tiny)
    for _ in range(_FOURTH_POWERS):
        space = torch.linalg.matrix_power(space, 4)
        space = space / space.diagonal().sum().clamp(min=tiny)
    # Rayleigh's quotient: its gradient by the Gram matrix is the space itself.
    return (gram * space).sum().clamp(min=tiny).sqrt()


class Critic(nn.Module):
    """Two projections to one width, concatenated, and three layers with ReLU (RECLAIM, section 3.2).

    Concatenation keeps the joint distance and no layer stretches any, so
    `|critic(u, v) - critic(u', v')| <= sqrt(|u - u'|^2 + |v - v'|^2)` (equation 5). Without `spectral_norm`
    it is the plain network of the paper's ablation, which has no such bound.
    """

    def __init__(
        self, first_width: int, second_width: int, *, width: int = 64, spectral_norm: bool = True
    ) -> None:
        super().__init__()
        layer = SpectralLinear if spectral_norm else nn.Linear
        self.first = layer(first_width, width)
        self.second = layer(second_width, width)
        self.hidden = nn.ModuleList([layer(2 * width, width), layer(width, width)])
        self.score = layer(width, 1)

    def scorer(self) -> Callable[[Tensor, Tensor], Tensor]:
        """Return `forward` with the weights as they are now, divided once for any number of calls."""
        layers = [layer for layer in self.modules() if isinstance(layer, nn.Linear)]
        weights = (
            layer.normalised_weight() if isinstance(layer, SpectralLinear) else layer.weight
            for layer in layers
        )
        first, second, joined, hidden, score = zip(weights, [layer.bias for layer in layers], strict=True)
        halves = joined[0].tensor_split(2, dim=1)

        def following(left: Tensor, right: Tensor) -> Tensor:
            return linear(relu(linear(relu(left + right), *hidden)), *score).squeeze(-1)

        def scores(one: Tensor, other: Tensor) -> Tensor:
            # The joined layer adds a product with each projection, so no pair is written out before it.
            left = linear(linear(one, *first), halves[0])
            right = linear(linear(other, *second), halves[1], joined[1])
            shape = [max(sizes) for sizes in zip(left.shape[:-1], right.shape[:-1], strict=True)]
            at_once = max(1, PAIRS_AT_ONCE // math.prod(shape[:-1]))
            if len(shape) < 2 or shape[-1] <= at_once:
                return following(left, right)
            chunks = [
                [
                    part if part.shape[-2] == 1 else part[..., start : start + at_once, :]
                    for part in (left, right)
                ]
                for start in range(0, shape[-1], at_once)
            ]
            if not torch.is_grad_enabled():
                return torch.cat([following(*chunk) for chunk in chunks], dim=-1)
            again = partial(checkpoint, following, use_reentrant=False, preserve_rng_state=False)
            return torch.cat([again(*chunk) for chunk in chunks], dim=-1)

        return scores

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the logits (...) of the probability that two features belong together.

        For many pairs, what follows the projections is computed again in backward, some pairs at a time.

        Args:
            first: (..., D1).
            second: (..., D2). One of the two may be (b, 1, D), against (b, K, D) or (1, K, D) of the other.
        """
        return self.scorer()(first, second)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Rows near to each of b queries.

    Attributes:
        rows: (b, K, D), without gradient; (1, K, D) where all queries have the same.
        valid: (b, K) bool; False for rows to ignore, where fewer than K may be drawn.
    """

    rows: Tensor
    valid: Tensor


class MemoryBank(nn.Module):
    """One row for each item, updated with momentum, the same on every process.

    The rows are a buffer, so a checkpoint has them: 4 bytes for each number of each item. They begin with
    normal numbers of a seed. `groups` has the number of each item's image; None: each has one of its own.

    Raises:
        RecipeError: There are no items, or not one group for each.
    """

    rows: Tensor
    groups: Tensor

    def __init__(
        self,
        instances: int,
        width: int,
        *,
        momentum: float = 0.5,
        seed: int = 0,
        groups: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        if instances < 1:
            raise RecipeError("A memory bank keeps a row for each training item, and there are none.")
        if groups is not None and len(groups) != instances:
            raise RecipeError(f"There are {len(groups):,} groups for {instances:,} training items.")
        self.momentum = momentum
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("rows", torch.randn((instances, width), generator=generator))
        numbers = torch.arange(instances) if groups is None else torch.tensor(groups)
        self.register_buffer("groups", numbers, persistent=False)

    def nearest(self, queries: Tensor, items: Tensor | None, count: int) -> Neighbours:
        """Return at most `count` rows with the highest cosine to each query (b, D), none of its own image.

        `items` (b,) are the queries' own rows; None: the queries are no training items.
        """
        with torch.no_grad():
            # The length of a query does not change the order of its cosines.
            lengths = torch.linalg.vector_norm(self.rows, dim=1).clamp(min=NORM_EPS)
            cosines = queries.to(self.rows.dtype) @ self.rows.T / lengths
            if items is not None:
                own = self.groups[items].unsqueeze(1) == self.groups
                cosines = cosines.masked_fill(own, -torch.inf)
            best = cosines.topk(min(count, len(self.rows)), dim=1)
            return Neighbours(self.rows[best.indices], best.values > -torch.inf)

    def drawn(self, queries: Tensor, items: Tensor | None, share: float) -> Neighbours:
        """Return a share of all rows, drawn at random, the same for all queries on all processes.

        The arguments are those of `nearest`; rows of a query's own image are not valid.
        """
        with torch.no_grad():
            count = max(1, round(share * len(self.rows)))
            drawn = of_first_process(torch.randperm(len(self.rows), device=self.rows.device))[:count]
            valid = torch.ones(len(queries), count, dtype=torch.bool, device=self.rows.device)
            if items is not None:
                valid = self.groups[items].unsqueeze(1) != self.groups[drawn]
            return Neighbours(self.rows[drawn].unsqueeze(0), valid)

    def batch(self, queries: Tensor, items: Tensor | None) -> Neighbours:
        """Return the features of the whole batch, none of a query's own image; the memory isn't read."""
        everyone = gather_uneven(queries)
        if items is not None:
            valid = self.groups[items].unsqueeze(1) != self.groups[gather_uneven(items)]
        else:
            # Outside training every process has as many.
            own = torch.arange(len(queries), device=queries.device) + process_rank() * len(queries)
            valid = own.unsqueeze(1) != torch.arange(len(everyone), device=queries.device)
        return Neighbours(everyone.unsqueeze(0), valid)

    def update(self, items: Tensor, features: Tensor) -> None:
        """Move rows towards new features (b, D) of items (b,): `(1 - rho) row + rho new` (equation 7).

        With several processes the updates of all are made on each. An item that is there twice counts with
        the mean of its features.
        """
        everyone, new = gather_uneven(items), gather_uneven(full_precision(features))
        with torch.no_grad():
            # A GPU is waited for to learn how many items differ. So features of an item are added up where it
            # is first, and each of its repeats writes the same row.
            same = everyone.unsqueeze(1) == everyone
            first = same.int().argmax(dim=1)
            mean = torch.zeros_like(new).index_add_(0, first, new)[first] / same.sum(dim=1, keepdim=True)
            old = self.rows[everyone]
            self.rows[everyone] = (1 - self.momentum) * old + self.momentum * mean.to(old.dtype)


class ReclaimTermSettings(BaseModel):
    """The term by itself, as RECLAIM's authors set it; `neighbours` is 10 for small data."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weight: float = Field(default=0.1, ge=0, description="Lambda; the paper's best of .01, .1, .5 and 1.")
    neighbours: int = Field(default=100, gt=0, description="K, negatives for each feature of a pair.")
    momentum: float = Field(default=0.5, gt=0, le=1, description="Rho, share of a new feature in its row.")
    negatives: Literal["nearest", "random", "batch"] = Field(
        default="nearest",
        description="What a pair is told from: its nearest rows in memory; a random share of all rows; or "
        "the other items of the batch. The latter two are the paper's ablation.",
    )
    random_share: float = Field(default=0.8, gt=0, le=1, description="Share of all rows that `random` draws.")
    critic_width: int = Field(default=64, gt=0, description="What both features are mapped to.")
    spectral_norm: bool = Field(default=True, description="Keep the critic 1-Lipschitz.")
    bank_seed: int = Field(default=0, ge=0, description="Seed of the noise that the memory starts with.")


class ReclaimTerm(nn.Module):
    """Noise contrast of two features against their nearest neighbours in memory (RECLAIM, equations 3, 6-8).

    Minimise `weight` times what it gives; call `after_step` after every step of the optimizer. The features
    have widths D1 and D2; other items of an item's group (its image) are no negatives.
    """

    def __init__(
        self,
        first_width: int,
        second_width: int,
        instances: int,
        settings: ReclaimTermSettings,
        groups: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        self.settings = settings
        self.critic = Critic(
            first_width, second_width, width=settings.critic_width, spectral_norm=settings.spectral_norm
        )
        bank = partial(MemoryBank, instances, momentum=settings.momentum, groups=groups)
        self.first_bank = bank(first_width, seed=2 * settings.bank_seed)
        self.second_bank = bank(second_width, seed=2 * settings.bank_seed + 1)
        self._seen: tuple[Tensor, Tensor, Tensor] | None = None

    def forward(
        self, first: Tensor, second: Tensor, items: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a batch, in full precision outside autocast.

        Args:
            first: u, (b, D1).
            second: v, (b, D2), row i of the same item.
            items: (b,) rows of the memory. None, outside training only: of items that are not in it.

        Returns:
            Scalar `-L_ANS`, the mean over local rows, and detached terms: the probability that the critic
            gives to matching and to other pairs.

        Raises:
            RecipeError: Items are missing in training.
        """
        if self.training and items is None:
            raise RecipeError("RECLAIM needs to know which training items are in a batch.")
        with torch.autocast(first.device.type, enabled=False):
            u, v = full_precision(first), full_precision(second)
            near_u = self._negatives(self.first_bank, u, items)
            near_v = self._negatives(self.second_bank, v, items)
            scores = self.critic.scorer()
            matched = scores(u, v)
            others_v = scores(u.unsqueeze(1), near_v.rows)
            others_u = scores(near_u.rows, v.unsqueeze(1))
            negative = _mean_valid(logsigmoid(-others_v), near_v) + _mean_valid(logsigmoid(-others_u), near_u)
            loss = -(logsigmoid(matched) + negative).mean()
        if self.training and items is not None:
            self._seen = (items, u.detach(), v.detach())
        unmatched = (_mean_valid(others_v.sigmoid(), near_v) + _mean_valid(others_u.sigmoid(), near_u)) / 2
        terms = {
            "reclaim": loss.detach(),
            "reclaim_matched": matched.detach().sigmoid().mean(),
            "reclaim_unmatched": unmatched.detach().mean(),
        }
        return loss, terms

    def _negatives(self, bank: MemoryBank, queries: Tensor, items: Tensor | None) -> Neighbours:
        match self.settings.negatives:
            case "nearest":
                return bank.nearest(queries, items, self.settings.neighbours)
            case "random":
                return bank.drawn(queries, items, self.settings.random_share)
            case "batch":
                return bank.batch(queries, items)

    def after_step(self) -> None:
        """Put the features of the last training batch into memory."""
        if self._seen is not None:
            items, first, second = self._seen
            self.first_bank.update(items, first)
            self.second_bank.update(items, second)
            self._seen = None


def _mean_valid(values: Tensor, neighbours: Neighbours) -> Tensor:
    """The mean (b,) of values (b, K) over the valid neighbours; 0 where there are none."""
    kept = values.masked_fill(~neighbours.valid, 0).sum(dim=1)
    return kept / neighbours.valid.sum(dim=1).clamp(min=1)


class Reclaim(ComposedObjective):
    """RECLAIM's term on the embeddings of two modalities, added to a base objective: `base - weight L_ANS`.

    L_ANS (equations 3 and 6-8) is the mean over pairs of embeddings u, v (B, D) of `log g(u, v)`, plus the
    means over the nearest rows n in memory of `log(1 - g(u, n))` and `log(1 - g(n, v))`, with g the sigmoid
    of a 1-Lipschitz critic. The arguments are those of `ReclaimTermSettings`. Call it with `Features` that
    have `items` (B,), and `after_step` after each step of the optimizer.

    Use it with InfoNCE or VSE++ as a base if batches can't be large: the memory gives negatives from all the
    data. It costs a product of the batch with every row at each step.

    >>> from training.models.features import Features, ModalityFeatures
    >>> from training.objectives import InfoNCE
    >>> from training.papers.reclaim import Reclaim
    >>> modalities = {name: ModalityFeatures(torch.randn(8, 64)) for name in ("image", "text")}
    >>> loss = Reclaim(InfoNCE(), embedding_dim=64, instances=100, neighbours=10)
    >>> loss(Features(modalities, items=torch.arange(8))).shape
    torch.Size([])
    """

    options = ReclaimTermSettings
    requires: frozenset[Requirement] = frozenset({"one_vector"})

    def __init__(
        self,
        base: Base = None,
        *,
        embedding_dim: int,
        instances: int,
        groups: tuple[int, ...] | None = None,
        pairs: Pairs = IMAGE_AND_TEXT,
        **options: Any,
    ) -> None:
        super().__init__(base)
        settings = ReclaimTermSettings(**options)
        self.weight, self.pairs = settings.weight, pairs
        self.terms = nn.ModuleList(
            ReclaimTerm(embedding_dim, embedding_dim, instances, settings, groups) for _ in pairs
        )

    def compute(self, features: Features) -> LossOutput:
        """Return the base's loss plus the weighted mean of the term over the pairs."""
        base = self.base.compute(features)
        terms, losses = dict(base.terms), []
        for term, (first, second) in zip(self.terms, self.pairs, strict=True):
            for modality in (first, second):
                check_one_vector(features, modality, "reclaim")
            loss, of_pair = term(features[first].embedding, features[second].embedding, features.items)
            losses.append(loss)
            prefix = f"{first}-{second}/" if len(self.pairs) > 1 else ""
            terms |= {prefix + name: value for name, value in of_pair.items()}
        return LossOutput(base.total + self.weight * torch.stack(losses).mean(), terms)

    def after_step(self) -> None:
        """Put the last batch into the memory, and update the base."""
        super().after_step()
        for term in self.terms:
            if isinstance(term, ReclaimTerm):
                term.after_step()
