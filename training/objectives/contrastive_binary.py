"""Contrastive-Binary: a classifier tells real pairs from fake ones (a baseline of ConVIRT)."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import softplus

from training.common.distributed import gather_rows, of_first_process, process_count, process_rank
from training.models.features import Features, ModalityFeatures
from training.objectives.base import LossOutput, PairObjective, Requirement
from training.objectives.similarity import full_precision


class ContrastiveBinary(PairObjective):
    """Binary cross-entropy of real and fake pairs (ConVIRT's baseline of that name; Zhang et al. 2020).

    `(mean_i softplus(-f(x_i, y_i)) + mean_i softplus(f(x_i, y_k))) / 2`, where f is an MLP with one hidden
    layer on both embeddings (B, D), and y_k is drawn at random from the items of the batch that don't match
    x_i; ConVIRT draws it from all data. In evaluation the second part is its mean over all draws.

    Use it to see what contrast within a batch is worth. Cosines aren't trained, so texts find images
    poorly.

    >>> from training.objectives import ContrastiveBinary
    >>> ContrastiveBinary(embedding_dim=64)(torch.randn(8, 64), torch.randn(8, 64)).shape
    torch.Size([])
    """

    requires: frozenset[Requirement] = frozenset({"one_vector"})

    def __init__(
        self,
        *,
        embedding_dim: int,
        hidden: Annotated[int, Field(gt=0, description="Width of the classifier's hidden layer.")] = 512,
    ) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim
        self.classifier = nn.Sequential(nn.Linear(2 * embedding_dim, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def pair_loss(self, first: ModalityFeatures, second: ModalityFeatures, features: Features) -> LossOutput:
        """The loss of a batch, a mean over real pairs and fakes; terms: that of either."""
        with torch.autocast(first.embedding.device.type, enabled=False):
            a, own = full_precision(first.embedding), full_precision(second.embedding)
            if a.shape[1:] != (self.embedding_dim,):
                raise ValueError(
                    f"ContrastiveBinary was made for embeddings of {self.embedding_dim} numbers, and these "
                    f"have {a.shape[-1]}: give embedding_dim={a.shape[-1]}."
                )
            others = gather_rows(own)
            fakes = _unmatched(len(a), len(others), features.positive_mask, a.device)
            real = softplus(-self.scores(a, own)).mean()
            fake = self._drawn(a, others, fakes) if self.training else self._expected(a, others, fakes)
        terms = {"real": real.detach(), "fake": fake.detach()}
        return LossOutput((real + fake) / 2, terms)

    def scores(self, first: Tensor, second: Tensor) -> Tensor:
        """Logits (N,) of pairs (N, D) and (N, D)."""
        logits: Tensor = self.classifier(torch.cat((first, second), dim=1))
        return logits.squeeze(1)

    def _drawn(self, first: Tensor, others: Tensor, fakes: Tensor) -> Tensor:
        """The loss of one fake a local item; an item without one has none."""
        columns = draw_each(fakes)
        losses = softplus(self.scores(first, others[columns]))
        return torch.where(fakes.any(dim=1), losses, 0).mean()

    def _expected(self, first: Tensor, others: Tensor, fakes: Tensor) -> Tensor:
        """The mean of that loss over all draws, item by item, so that memory does not grow with B squared."""
        losses = [
            (softplus(self.scores(item.expand_as(others), others)) * row).sum() / row.sum().clamp(min=1)
            for item, row in zip(first, fakes, strict=True)
        ]
        return torch.stack(losses).mean()


def draw_each(allowed: Tensor) -> Tensor:
    """For each local row one of its allowed columns (b,), all equally likely; 0 for a row that has none.

    The numbers are the first process's for the whole batch, drawn on the CPU: several processes draw what one
    with the whole batch would.

    Args:
        allowed: (b, B) bool, as many rows on every process.
    """
    local = len(allowed)
    uniform = torch.rand(local * process_count(), dtype=torch.float64)
    drawn = of_first_process(uniform.to(allowed.device, non_blocking=True))
    own = drawn[process_rank() * local :][:local]
    ranks = (own * allowed.sum(dim=1)).long()
    return (allowed.cumsum(dim=1) > ranks.unsqueeze(1)).int().argmax(dim=1)


def _unmatched(local: int, count: int, positive_mask: Tensor | None, device: torch.device) -> Tensor:
    """(b, B) bool, True where an item does not match the local one."""
    own = torch.arange(local, device=device) + process_rank() * local
    matching = own.unsqueeze(1) == torch.arange(count, device=device)
    return ~matching if positive_mask is None else ~matching & ~positive_mask[own]
