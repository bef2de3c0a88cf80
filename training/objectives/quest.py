"""QUEST: contrast of what two modalities share and, by normals, of what each of them has alone."""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus

from training.common.errors import RecipeError
from training.models.config import Retrieval
from training.models.features import Features, ModalityFeatures
from training.models.heads import unit_normal
from training.objectives.base import LossOutput, PairObjective, Requirement
from training.objectives.infonce import (
    LogitScale,
    MaxScale,
    Temperature,
    TemperatureObjective,
    directional_cross_entropy,
    info_nce,
)
from training.objectives.similarity import NORM_EPS, Direction, Similarities, full_precision, similarities

UniqueConstraint = Literal["none", "sic", "uic", "p_uic"]


@dataclass(frozen=True, slots=True)
class UnitOutputs:
    """The shared and the unique outputs (b, D) of one modality, divided by their lengths.

    All parts of the loss work on these; they are made once, in full precision.
    """

    shared: Tensor
    unique: Tensor

    @classmethod
    def of(cls, features: ModalityFeatures) -> "UnitOutputs":
        """Those of a modality.

        Raises:
            RecipeError: The model has no branches.
        """
        if features.shared is None or features.unique is None:
            raise RecipeError("quest needs shared and unique outputs of every modality: give model.branches.")
        shared, unique = (
            normalize(full_precision(output), dim=1, eps=NORM_EPS)
            for output in (features.shared, features.unique)
        )
        return cls(shared, unique)


def unit_similarities(a: Tensor, b: Tensor, positive_mask: Tensor | None = None) -> Similarities:
    """Inner products of rows (b, D) as they are, over all processes.

    A second normalisation would stretch rows that are short because they are next to nothing.
    """
    return similarities(a, b, positive_mask, measure=lambda left, right: left @ right.T)


def normal_similarities(
    first: UnitOutputs, second: UnitOutputs, positive_mask: Tensor | None = None
) -> Similarities:
    """|cosine| of the normals of two modalities over all processes; a normal's sign is free."""
    a, b = (unit_normal(outputs.shared, outputs.unique) for outputs in (first, second))
    return unit_similarities(a, b, positive_mask).map(lambda direction: direction.values.abs())


def self_penalised(normals: Similarities, shared: Similarities, penalty: Tensor | float) -> Similarities:
    """Similarities of normals, raised where shared outputs resemble each other without being partners.

    The factor is exp(penalty * S) with S the shared outputs' similarity between 0 and 1. It weighs the
    negatives and teaches the shared outputs nothing: no gradient flows through S.
    """

    def penalised(direction: Direction, resemblance: Direction) -> Direction:
        factor = (penalty * resemblance.values.detach().clamp(0, 1)).exp()
        factor = factor.masked_fill(direction.partners(), 1)
        return replace(direction, values=direction.values * factor)

    return replace(
        normals,
        rows=penalised(normals.rows, shared.rows),
        columns=penalised(normals.columns, shared.columns),
    )


def quadruple_contrast(normals: Similarities, scale: Tensor | float) -> Tensor:
    """Cross entropies of both directions, added up (QUEST, L_UIC without its cosine term)."""
    return directional_cross_entropy(normals.rows, scale) + directional_cross_entropy(normals.columns, scale)


def branch_cosine(outputs: UnitOutputs) -> Tensor:
    """Mean |cosine| of shared and unique outputs; the signed one would drive them to opposite directions."""
    return (outputs.shared * outputs.unique).sum(dim=1).abs().mean()


def shared_of(features: ModalityFeatures) -> Tensor:
    """Shared output; the embedding of a model without branches, which is all shared."""
    return features.embedding if features.shared is None else features.shared


class QUEST(TemperatureObjective, PairObjective):
    """QUEST on the shared and unique outputs of two modalities (Song et al. 2024).

    InfoNCE of the shared outputs (SIC), plus `u` times the cross entropies of both directions on |cosines| of
    the normals to the planes that shared and unique outputs span, raised by self-penalization (P-UIC), plus
    `v (|cos(shared, unique)| of either modality)`, with u `unique_weight` and v `cosine_weight`. Call it with
    `Features` whose modalities have `shared` and `unique` (B, D).

    Use it if each modality tells more than both share, or if a shortcut outshines the rest. The rows of its
    ablation (table 2):

    | shared | unique | row |
    |---|---|---|
    | True | none | SIC, the baseline |
    | True | sic | SIC + SIC |
    | True | uic | SIC + UIC |
    | True | p_uic | SIC + P-UIC, QUEST |
    | False | uic | UIC alone |
    | False | p_uic | P-UIC alone |

    >>> from training.models.features import Features, ModalityFeatures
    >>> from training.objectives import QUEST
    >>> first, second = (
    ...     ModalityFeatures(shared, shared=shared, unique=torch.randn(8, 64))
    ...     for shared in (torch.randn(8, 64), torch.randn(8, 64))
    ... )
    >>> QUEST()(Features({"image": first, "text": second})).shape
    torch.Size([])
    """

    requires: frozenset[Requirement] = frozenset({"branches"})

    def __init__(
        self,
        temperature: Temperature = "auto",
        *,
        learnable_temperature: bool = True,
        max_scale: MaxScale = 100.0,
        shared: Annotated[bool, Field(description="InfoNCE on the shared outputs (SIC).")] = True,
        unique: Annotated[
            UniqueConstraint,
            Field(
                description="On the unique outputs: `sic` InfoNCE, `uic` InfoNCE on the normals and the "
                "cosine term, `p_uic` the same with self-penalization, `none` nothing; then a model without "
                "branches is enough."
            ),
        ] = "p_uic",
        unique_weight: Annotated[
            float,
            Field(
                ge=0,
                description="Weight of the contrast of unique outputs. The paper's 1 adds two cross "
                "entropies, where the contrast of shared outputs is a mean of two.",
            ),
        ] = 1.0,
        cosine_weight: Annotated[
            float,
            Field(
                ge=0, description="Weight of the term that keeps shared and unique outputs at right angles."
            ),
        ] = 1.0,
        penalty: Annotated[
            float,
            Field(
                ge=0, le=10, description="Lambda of the self-penalization; at the start, if it is learned."
            ),
        ] = 1.0,
        learnable_penalty: Annotated[
            bool, Field(description="Each gradient lowers it, since a smaller one makes the task easier.")
        ] = False,
    ) -> None:
        super().__init__()
        self.shared, self.unique = shared, unique
        self.unique_weight, self.cosine_weight = unique_weight, cosine_weight
        self.fixed_penalty = penalty
        self.scale = LogitScale(temperature, learnable=learnable_temperature, limit=max_scale)
        if unique == "none":
            self.requires = frozenset()
        self.retrievals = _retrievals(shared, unique)
        # softplus of this is the penalty, which so stays above 0.
        self.raw_penalty = (
            nn.Parameter(torch.tensor(math.log(math.expm1(penalty)))) if learnable_penalty else None
        )

    @classmethod
    def check(cls, settings: Any) -> None:
        """Check that something is left to learn from, and that nothing is set without effect."""
        if not settings.shared and settings.unique == "none":
            raise ValueError("nothing is left to learn from: set shared to true, or unique to a constraint")
        changed = settings.model_dump(exclude_defaults=True)
        if settings.unique == "none" and "unique_weight" in changed:
            raise ValueError("unique_weight belongs to unique: sic, uic or p_uic")
        if settings.unique not in ("uic", "p_uic") and "cosine_weight" in changed:
            raise ValueError("cosine_weight belongs to unique: uic or p_uic")
        if settings.unique != "p_uic" and changed.keys() & {"penalty", "learnable_penalty"}:
            raise ValueError("penalty and learnable_penalty belong to unique: p_uic")
        if settings.learnable_penalty and settings.penalty == 0:
            raise ValueError("a penalty that is learned starts above 0")

    def penalty(self) -> Tensor | float:
        """Return lambda of the self-penalization."""
        return self.fixed_penalty if self.raw_penalty is None else softplus(self.raw_penalty)

    def pair_loss(self, first: ModalityFeatures, second: ModalityFeatures, features: Features) -> LossOutput:
        """The loss of a batch; terms: each constraint, mean similarities of shared outputs, temperature."""
        with torch.autocast(first.embedding.device.type, enabled=False):
            scale = self.scale()
            losses, shared = self._losses(first, second, features.positive_mask, scale)
            total = torch.stack(list(losses.values())).sum()
        terms = {
            **{name: loss.detach() for name, loss in losses.items()},
            **shared.mean_terms(),
            "temperature": scale.detach().reciprocal(),
        }
        if self.raw_penalty is not None:
            terms["penalty"] = torch.as_tensor(self.penalty()).detach()
        return LossOutput(total, terms)

    def _losses(
        self,
        first: ModalityFeatures,
        second: ModalityFeatures,
        positive_mask: Tensor | None,
        scale: Tensor,
    ) -> tuple[dict[str, Tensor], Similarities]:
        """Weighted losses by name, and the similarities of the shared outputs."""
        if self.unique == "none":
            shared = similarities(shared_of(first), shared_of(second), positive_mask)
            return {"sic": info_nce(shared, scale)[0]}, shared
        one, other = UnitOutputs.of(first), UnitOutputs.of(second)
        shared = unit_similarities(one.shared, other.shared, positive_mask)
        losses = {"sic": info_nce(shared, scale)[0]} if self.shared else {}
        if self.unique == "sic":
            pairs = unit_similarities(one.unique, other.unique, positive_mask)
            return losses | {"unique_sic": self.unique_weight * info_nce(pairs, scale)[0]}, shared
        normals = normal_similarities(one, other, positive_mask)
        if self.unique == "p_uic":
            normals = self_penalised(normals, shared, self.penalty())
        losses[self.unique] = self.unique_weight * quadruple_contrast(normals, scale)
        losses["cosine"] = self.cosine_weight * (branch_cosine(one) + branch_cosine(other))
        return losses, shared


def _retrievals(shared: bool, unique: UniqueConstraint) -> frozenset[Retrieval]:
    """Return the outputs that the loss brings together, by which the trained model may be searched."""
    if unique == "none":
        return frozenset({"shared"})
    if unique == "sic":
        return frozenset({"shared", "unique", "concat"} if shared else {"unique"})
    return frozenset({"shared", "unique", "concat", "normal"} if shared else {"normal"})
