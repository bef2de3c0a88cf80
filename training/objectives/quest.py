"""QUEST: contrast of what two modalities share and, by normals, of what each of them has alone."""

import math
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus

from training.common.errors import RecipeError
from training.models.config import Retrieval
from training.models.features import Features, ModalityFeatures
from training.models.heads import unit_normal
from training.objectives.base import LossOutput, ObjectiveContext, PairObjective, Requirement
from training.objectives.infonce import TemperatureConfig, directional_cross_entropy, info_nce
from training.objectives.similarity import NORM_EPS, Direction, Similarities, full_precision, similarities

UniqueConstraint = Literal["none", "sic", "uic", "p_uic"]


class QuestSettings(TemperatureConfig):
    """All of QUEST by default; its ablation (table 2) is one row a setting.

    | shared | unique | row |
    |---|---|---|
    | true | none | SIC, the baseline |
    | true | sic | SIC + SIC |
    | true | uic | SIC + UIC |
    | true | p_uic | SIC + P-UIC, QUEST |
    | false | uic | UIC alone |
    | false | p_uic | P-UIC alone |
    """

    name: Literal["quest"] = "quest"
    shared: bool = Field(default=True, description="InfoNCE on the shared outputs (SIC).")
    unique: UniqueConstraint = Field(
        default="p_uic",
        description="On the unique outputs: `sic` InfoNCE, `uic` InfoNCE on the normals and the cosine term, "
        "`p_uic` the same with self-penalisation, `none` nothing; then a model without branches will do.",
    )
    cosine_weight: float = Field(
        default=1.0, ge=0, description="Of the term that holds shared and unique outputs at right angles."
    )
    penalty: float = Field(
        default=1.0,
        ge=0,
        le=10,
        description="Lambda of the self-penalisation; at the start, when it is learned.",
    )
    learnable_penalty: bool = Field(
        default=False, description="Each gradient lowers it, since a smaller one makes the task easier."
    )

    @property
    def retrievals(self) -> frozenset[Retrieval]:
        """By what the trained model may be searched: what the loss has brought together."""
        if self.unique == "none":
            return frozenset({"shared"})
        if self.unique == "sic":
            return frozenset({"shared", "unique", "concat"} if self.shared else {"unique"})
        return frozenset({"shared", "unique", "concat", "normal"} if self.shared else {"normal"})

    @model_validator(mode="after")
    def _something_is_left(self) -> Self:
        if not self.shared and self.unique == "none":
            raise ValueError("nothing is left to learn from: set shared to true, or unique to a constraint")
        return self

    @model_validator(mode="after")
    def _nothing_is_set_in_vain(self) -> Self:
        fields = type(self).model_fields
        has_normals = self.unique in ("uic", "p_uic")
        if not has_normals and self.cosine_weight != fields["cosine_weight"].default:
            raise ValueError("cosine_weight belongs to unique: uic or p_uic")
        if self.unique != "p_uic" and (self.learnable_penalty or self.penalty != fields["penalty"].default):
            raise ValueError("penalty and learnable_penalty belong to unique: p_uic")
        if self.learnable_penalty and self.penalty == 0:
            raise ValueError("a penalty that is learned starts above 0")
        return self

    def build(self, context: ObjectiveContext) -> "Quest":
        """The objective with these settings."""
        return Quest(self)


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


class Quest(PairObjective):
    """QUEST on the shared and unique outputs of two modalities (Song et al. 2024).

    For data where each modality tells more than both share, or where a shortcut outshines the rest: the
    shared outputs meet as in InfoNCE, and the planes that both outputs span meet by their normals.
    """

    requires: frozenset[Requirement] = frozenset({"branches"})

    def __init__(self, settings: QuestSettings) -> None:
        super().__init__(settings)
        self.settings = settings
        self.scale = settings.scale()
        if settings.unique == "none":
            self.requires = frozenset()
        self.retrievals = settings.retrievals
        if settings.learnable_penalty:
            # softplus of this is the penalty, which so stays above 0.
            self.raw_penalty = nn.Parameter(torch.tensor(math.log(math.expm1(settings.penalty))))

    def penalty(self) -> Tensor | float:
        """Lambda of the self-penalisation."""
        return softplus(self.raw_penalty) if self.settings.learnable_penalty else self.settings.penalty

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
        if self.settings.learnable_penalty:
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
        if self.settings.unique == "none":
            shared = similarities(shared_of(first), shared_of(second), positive_mask)
            return {"sic": info_nce(shared, scale)[0]}, shared
        one, other = UnitOutputs.of(first), UnitOutputs.of(second)
        shared = unit_similarities(one.shared, other.shared, positive_mask)
        losses = {"sic": info_nce(shared, scale)[0]} if self.settings.shared else {}
        if self.settings.unique == "sic":
            pairs = unit_similarities(one.unique, other.unique, positive_mask)
            return losses | {"unique_sic": info_nce(pairs, scale)[0]}, shared
        normals = normal_similarities(one, other, positive_mask)
        if self.settings.unique == "p_uic":
            normals = self_penalised(normals, shared, self.penalty())
        losses[self.settings.unique] = quadruple_contrast(normals, scale)
        losses["cosine"] = self.settings.cosine_weight * (branch_cosine(one) + branch_cosine(other))
        return losses, shared
