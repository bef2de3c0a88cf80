"""IFM: an objective that must also hold when every pair's similarity is made worse by a fixed amount."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from training.common.errors import RecipeError
from training.objectives.base import LossOutput, ObjectiveContext, SimilarityObjective
from training.objectives.composed import ComposedConfig
from training.objectives.similarity import Direction, Similarities


class IFMSettings(ComposedConfig):
    """Implicit feature modification of a base objective of similarities, InfoNCE by default."""

    name: Literal["ifm"] = "ifm"
    epsilon: float = Field(
        default=0.1,
        ge=0,
        description="Taken from the similarity of partners and added to that of others, before any "
        "temperature: with a softmax the margin is 2 epsilon / temperature, so tune both together.",
    )

    def build(self, context: ObjectiveContext) -> "IFM":
        """The objective with these settings.

        Raises:
            RecipeError: The base does not work on similarities alone.
        """
        base = self.base.build(context)
        if not isinstance(base, SimilarityObjective):
            raise RecipeError(
                f"ifm changes similarities, but {self.base.model_dump()['name']} needs more than these: set "
                "objective.base to infonce (which is what quest's SIC is alone), reco, orthogonality or vse."
            )
        return IFM(self, base)


def perturbed(pairs: Similarities, epsilon: float) -> Similarities:
    """Similarities with partners moved apart and pairs that do not match together (Robinson et al. 2021).

    Matches beside the partner stay as they are.
    """

    def worse(direction: Direction) -> Tensor:
        shift = direction.negatives().to(direction.values) - direction.partners().to(direction.values)
        return direction.values + epsilon * shift

    return pairs.map(worse)


class IFM(SimilarityObjective):
    """The mean of a base objective on the similarities as they are and on perturbed ones.

    For data with shortcuts: features that tell matches apart too easily no longer suffice.
    """

    def __init__(self, settings: IFMSettings, base: SimilarityObjective) -> None:
        super().__init__(settings)
        self.settings = settings
        self.base = base
        self.requires = base.requires

    def of_similarities(self, pairs: Similarities) -> LossOutput:
        """The loss of a batch; terms: the base's own, its loss as it is and perturbed."""
        clean = self.base.of_similarities(pairs)
        worse = self.base.of_similarities(perturbed(pairs, self.settings.epsilon))
        terms = {**clean.terms, "clean": clean.total.detach(), "perturbed": worse.total.detach()}
        return LossOutput(torch.stack([clean.total, worse.total]).mean(), terms)

    def after_step(self) -> None:
        """Update what the base keeps."""
        self.base.after_step()
