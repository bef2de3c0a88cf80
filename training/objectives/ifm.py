"""IFM: an objective that must also hold if every pair's similarity is made worse by a fixed amount."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from training.objectives.base import LossOutput, SimilarityObjective
from training.objectives.composed import Base
from training.objectives.infonce import InfoNCE
from training.objectives.similarity import Direction, Similarities


def perturbed(pairs: Similarities, epsilon: float) -> Similarities:
    """Similarities with partners moved apart and pairs that do not match together (Robinson et al. 2021).

    Matches in addition to the partner stay as they are.
    """

    def worse(direction: Direction) -> Tensor:
        shift = direction.negatives().to(direction.values) - direction.partners().to(direction.values)
        return direction.values + epsilon * shift

    return pairs.map(worse)


class IFM(SimilarityObjective):
    """Implicit feature modification of a base objective of similarities (Robinson et al. 2021).

    `(L(s) + L(s')) / 2`, with L the base's loss and s' the similarities after epsilon was taken from those of
    partners and added to those of other pairs.

    Use it for data with shortcuts: features that tell matches apart too easily no longer suffice.

    >>> from training.objectives import IFM, InfoNCE
    >>> IFM(InfoNCE(temperature=0.1), epsilon=0.1)(torch.randn(8, 64), torch.randn(8, 64)).shape
    torch.Size([])
    """

    def __init__(
        self,
        base: Base = None,
        *,
        epsilon: Annotated[
            float,
            Field(
                ge=0,
                description="Taken from the similarity of partners and added to that of others, before any "
                "temperature: with a softmax the margin is 2 epsilon / temperature, so tune both together.",
            ),
        ] = 0.1,
    ) -> None:
        super().__init__()
        base = InfoNCE() if base is None else base
        if not isinstance(base, SimilarityObjective):
            raise ValueError(
                f"ifm changes similarities, but {type(base).__name__} needs more than these: set the base to "
                "infonce (which is what quest's SIC is alone), reco, orthogonality or vse."
            )
        self.base: SimilarityObjective = base
        self.epsilon = epsilon
        self.requires = base.requires

    def of_similarities(self, pairs: Similarities) -> LossOutput:
        """Return the loss of a batch; terms: the base's, and its loss as it is and perturbed."""
        clean = self.base.of_similarities(pairs)
        worse = self.base.of_similarities(perturbed(pairs, self.epsilon))
        terms = {**clean.terms, "clean": clean.total.detach(), "perturbed": worse.total.detach()}
        return LossOutput(torch.stack([clean.total, worse.total]).mean(), terms)

    def after_step(self) -> None:
        """Update the state of the base."""
        self.base.after_step()
