"""RECLAIM: a critic tells a pair's two features from their nearest neighbours in memory."""

from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from training.common.errors import RecipeError
from training.models.features import Features
from training.objectives.base import LossOutput, ObjectiveContext, Requirement
from training.objectives.composed import ComposedConfig, ComposedObjective, check_one_vector
from training.objectives.critic import Critic
from training.objectives.memory_bank import MemoryBank, Neighbours
from training.objectives.similarity import full_precision


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
    random_share: float = Field(default=0.8, gt=0, le=1, description="Of `random`.")
    critic_width: int = Field(default=64, gt=0, description="What both features are mapped to.")
    spectral_norm: bool = Field(default=True, description="Keep the critic 1-Lipschitz.")
    bank_seed: int = Field(default=0, ge=0, description="Of the noise that the memory begins with.")


class ReclaimSettings(ComposedConfig, ReclaimTermSettings):
    """RECLAIM's term with a base objective: `base - weight * L_ANS`."""

    name: Literal["reclaim"] = "reclaim"

    def build(self, context: ObjectiveContext) -> "Reclaim":
        """The objective with these settings."""
        return Reclaim(self, context)


class ReclaimTerm(nn.Module):
    """Noise contrast of two features against their nearest neighbours in memory (RECLAIM, equations 3, 6-8).

    Minimise `weight` times what it gives; call `after_step` after every step of the optimizer.

    Args:
        first_width: D1.
        second_width: D2.
        instances: Training items.
        settings: Of the term.
        groups: The number of each item's image; its other items are no negatives.
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
        self.first_bank, self.second_bank = (
            MemoryBank(
                instances,
                width,
                momentum=settings.momentum,
                seed=2 * settings.bank_seed + number,
                groups=groups,
            )
            for number, width in enumerate((first_width, second_width))
        )
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
            critic = self.critic.scorer()
            matched = critic.scores(u, v)
            others_v = critic.scores(u.unsqueeze(1), near_v.rows)
            others_u = critic.scores(near_u.rows, v.unsqueeze(1))
            negative = _mean_found(logsigmoid(-others_v), near_v) + _mean_found(logsigmoid(-others_u), near_u)
            loss = -(logsigmoid(matched) + negative).mean()
        if self.training and items is not None:
            self._seen = (items, u.detach(), v.detach())
        unmatched = (_mean_found(others_v.sigmoid(), near_v) + _mean_found(others_u.sigmoid(), near_u)) / 2
        terms = {
            "reclaim": loss.detach(),
            "reclaim_matched": matched.detach().sigmoid().mean(),
            "reclaim_unmatched": unmatched.detach().mean(),
        }
        return loss, terms

    def _negatives(self, bank: MemoryBank, queries: Tensor, items: Tensor | None) -> Neighbours:
        """What queries (b, D) are told from."""
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


def _mean_found(values: Tensor, neighbours: Neighbours) -> Tensor:
    """The mean (b,) of values (b, K) over the neighbours that were found; 0 where there are none."""
    kept = values.masked_fill(~neighbours.found, 0).sum(dim=1)
    return kept / neighbours.found.sum(dim=1).clamp(min=1)


class Reclaim(ComposedObjective):
    """RECLAIM's term on the embeddings of two modalities, added to a base objective.

    The memory gives negatives from all the data whatever the batch; it costs a product of the batch with
    every row at each step. Made for InfoNCE and VSE++ as a base.
    """

    requires: frozenset[Requirement] = frozenset({"items", "one_vector"})

    def __init__(self, settings: ReclaimSettings, context: ObjectiveContext) -> None:
        super().__init__(settings, context)
        self.weight = settings.weight
        self.pairs = settings.pairs
        width = context.embedding_width
        self.terms = nn.ModuleList(
            ReclaimTerm(width, width, context.instances, settings, context.groups) for _ in self.pairs
        )

    def forward(self, features: Features) -> LossOutput:
        """The base's loss and the weighted mean of the term over the pairs."""
        base = self.base_loss(features)
        terms, losses = dict(base.terms), []
        for term, (first, second) in zip(self.terms, self.pairs, strict=True):
            for modality in (first, second):
                check_one_vector(features, modality, "reclaim")
            loss, found = term(features[first].embedding, features[second].embedding, features.items)
            losses.append(loss)
            prefix = f"{first}-{second}/" if len(self.pairs) > 1 else ""
            terms |= {prefix + name: value for name, value in found.items()}
        return LossOutput(base.total + self.weight * torch.stack(losses).mean(), terms)

    def after_step(self) -> None:
        """Put the last batch into memory, and update the base."""
        super().after_step()
        for term in self.terms:
            if isinstance(term, ReclaimTerm):
                term.after_step()
