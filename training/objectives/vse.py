"""VSE0 and VSE++: a matching pair leads pairs that don't match by a margin."""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from training.objectives.base import LossOutput, SimilarityObjective
from training.objectives.similarity import Direction, Similarities

Margin = Annotated[float, Field(gt=0, description="By how much a match has to lead.")]
Hardest = Annotated[
    bool,
    Field(
        description="Only the most similar item that doesn't match counts (VSE++). False: all count (VSE0)."
    ),
]


def hinge_costs(direction: Direction, margin: float) -> Tensor:
    """Return by how much each pair that doesn't match (b, B) misses the margin; 0 for pairs that match."""
    lead = direction.matched().unsqueeze(1) - direction.values
    return (margin - lead).clamp(min=0).masked_fill(~direction.negatives(), 0)


def hinge_loss(pairs: Similarities, *, margin: float, hardest: bool) -> LossOutput:
    """Return the hinge in both directions, a sum over items (VSE++, equations 5 and 6).

    For each item it is the largest cost, or without `hardest` the sum of all. Matches in addition to the
    partner cost nothing. Terms: either direction and mean similarities.
    """

    def directional(direction: Direction) -> Tensor:
        costs = hinge_costs(direction, margin)
        return (costs.max(dim=1).values.sum() if hardest else costs.sum()) * pairs.processes

    forth, back = directional(pairs.rows), directional(pairs.columns)
    terms = {"first_to_second": forth.detach(), "second_to_first": back.detach(), **pairs.mean_terms()}
    return LossOutput(forth + back, terms)


class VSE(SimilarityObjective):
    """The hinge of VSE++ on the embeddings of two modalities (Faghri et al. 2018, equations 5 and 6).

    `sum_i max_j max(0, m - s_ii + s_ij)` plus the same from texts to images, with s the cosines (B, B) and m
    the margin; VSE0 (`hardest` False) sums over j.

    Use it with clean pairs and batches of a hundred or more. Items that match without being marked are its
    hardest negatives: mark them in the positive mask, or use VSE0.

    >>> from training.objectives import VSE
    >>> VSE(margin=0.2)(torch.randn(8, 64), torch.randn(8, 64)).shape
    torch.Size([])
    """

    def __init__(self, margin: Margin = 0.2, *, hardest: Hardest = True) -> None:
        super().__init__()
        self.margin, self.hardest = margin, hardest

    def of_similarities(self, pairs: Similarities) -> LossOutput:
        """Return the loss of a batch, a sum over items; terms: both directions and mean similarities."""
        return hinge_loss(pairs, margin=self.margin, hardest=self.hardest)
