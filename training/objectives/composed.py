"""Objectives that are made of others: one with a term of its own added to a base, and a weighted sum."""

from abc import ABC
from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor, nn

from training.common.errors import RecipeError
from training.models.config import Modality
from training.models.features import Features
from training.objectives.base import Extras, LossOutput, Objective, ObjectiveData, as_objective
from training.objectives.infonce import InfoNCE

Base = Annotated[
    Objective | nn.Module | None,
    Field(description="What the term is added to, with the pairs of the whole; InfoNCE unless it is named."),
]


class ComposedObjective(Objective, ABC):
    """An objective with a base: needs, loss, terms and updates of the base are also its own."""

    def __init__(self, base: Objective | nn.Module | None) -> None:
        super().__init__()
        self.base: Objective = InfoNCE() if base is None else as_objective(base)
        self.requires = type(self).requires | self.base.requires
        self.needs = {**type(self).needs, **self.base.needs}
        self.momentum = self.base.momentum
        self.retrievals = self.base.retrievals

    def prepare(self, data: ObjectiveData) -> Extras:
        """Return what the base needs."""
        return self.base.prepare(data)

    def check_regions(self, count: int) -> None:
        """Check that the base takes images with so many local features."""
        self.base.check_regions(count)

    def after_step(self) -> None:
        """Update the state of the base."""
        self.base.after_step()


class WeightedSum(Objective):
    """The weighted sum of several objectives on the same batch: `sum_k w_k L_k`.

    On frozen towers, InfoNCE at a temperature of .1 plus ReCo with a weight of 1/64 had the best recall. A
    recipe writes it as `objective: {sum: [infonce, {reco: {negative_weight: .6}, weight: 0.0156}]}`.

    >>> from training.objectives import InfoNCE, ReCo, WeightedSum
    >>> loss = WeightedSum([InfoNCE(temperature=0.1), ReCo()], [1, 1 / 64])
    >>> loss(torch.randn(8, 64), torch.randn(8, 64)).shape
    torch.Size([])
    """

    def __init__(
        self,
        objectives: Annotated[Sequence[Objective | nn.Module], Field(min_length=1)],
        weights: Annotated[
            Sequence[Annotated[float, Field(ge=0)]], Field(description="One for each objective.")
        ],
    ) -> None:
        super().__init__()
        parts = [as_objective(one) for one in objectives]
        momenta = {one.momentum for one in parts if one.momentum}
        if len(momenta) > 1:
            raise ValueError(
                f"WeightedSum: the objectives have several momenta, {sorted(momenta)}: give one."
            )
        self.objectives = nn.ModuleList(parts)
        self.weights = tuple(weights)
        self.requires = frozenset().union(*(one.requires for one in parts))
        self.needs = {key: value for one in parts for key, value in one.needs.items()}
        self.momentum = max(momenta, default=0.0)
        self.retrievals = frozenset.intersection(*(one.retrievals for one in parts))
        self.pairs = parts[0].pairs
        self.compares_items = any(one.compares_items for one in parts)

    @classmethod
    def check(cls, settings: Any) -> None:
        """Check that there is a weight for each objective, and a loss with a gradient."""
        if len(settings.objectives) != len(settings.weights):
            raise ValueError(
                f"there are {len(settings.objectives)} objectives and {len(settings.weights)} weights: give "
                "one for each"
            )
        if not any(settings.weights):
            raise ValueError("all weights of the sum are 0: give one above 0")

    def compute(self, features: Features) -> LossOutput:
        """Return the loss of a batch; terms: those of each objective, with its number and name."""
        total: Tensor | None = None
        terms: dict[str, Tensor] = {}
        for number, (objective, weight) in enumerate(zip(self._parts(), self.weights, strict=True), 1):
            loss = objective.compute(features)
            total = weight * loss.total if total is None else total + weight * loss.total
            prefix = f"{number}-{type(objective).__name__}"
            terms |= {prefix: loss.total.detach()} | {f"{prefix}/{k}": v for k, v in loss.terms.items()}
        assert total is not None
        return LossOutput(total, terms)

    def prepare(self, data: ObjectiveData) -> Extras:
        """Return what any of the objectives needs."""
        return reduce(or_, (objective.prepare(data) for objective in self._parts()))

    def check_regions(self, count: int) -> None:
        """Check that every objective takes images with so many local features."""
        for objective in self._parts():
            objective.check_regions(count)

    def after_step(self) -> None:
        """Update the state of every objective."""
        for objective in self._parts():
            objective.after_step()

    def _parts(self) -> list[Objective]:
        return [one for one in self.objectives if isinstance(one, Objective)]


def check_one_vector(features: Features, modality: Modality, objective: str) -> None:
    """Check that a modality's embeddings are single vectors.

    Raises:
        RecipeError: They are k-blades.
    """
    if features[modality].embedding.ndim != 2:
        raise RecipeError(f"{objective} reads embeddings of one vector each: set model.blades to 1.")
