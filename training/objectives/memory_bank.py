"""A memory of one feature for every training item, from which the nearest of other images are drawn."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training.common.distributed import gather_uneven, of_first_process, process_rank
from training.common.errors import RecipeError
from training.objectives.similarity import NORM_EPS, full_precision


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Rows near to each of b queries.

    Attributes:
        rows: (b, K, D), without gradient; (1, K, D) where all queries have the same.
        found: (b, K) bool; False where fewer than K rows may be drawn, such a row is to be ignored.
    """

    rows: Tensor
    found: Tensor


class MemoryBank(nn.Module):
    """One row for each item, updated with momentum, the same on every process.

    The rows are a buffer, so a checkpoint has them: 4 bytes for each number of each item.

    Args:
        instances: Number of items.
        width: Of a row.
        momentum: Rho, the share of the new feature in an updated row.
        seed: Of the normal numbers that the rows begin with.
        groups: The number of each item's image; None: every item is an image of its own.

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
        """The rows with the highest cosine to each query, none of the query's own image.

        Args:
            queries: (b, D).
            items: (b,) the queries' own rows; None: the queries are no training items.
            count: How many at most.
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
        """Rows drawn at random, the same for all queries on all processes.

        Those of a query's own image are not found.

        Args:
            queries: (b, D).
            items: (b,) the queries' own rows; None: the queries are no training items.
            share: Of all rows.
        """
        with torch.no_grad():
            count = max(1, round(share * len(self.rows)))
            drawn = of_first_process(torch.randperm(len(self.rows), device=self.rows.device))[:count]
            found = torch.ones(len(queries), count, dtype=torch.bool, device=self.rows.device)
            if items is not None:
                found = self.groups[items].unsqueeze(1) != self.groups[drawn]
            return Neighbours(self.rows[drawn].unsqueeze(0), found)

    def batch(self, queries: Tensor, items: Tensor | None) -> Neighbours:
        """The features of the whole batch, none of a query's own image; nothing is taken from memory."""
        everyone = gather_uneven(queries)
        if items is not None:
            found = self.groups[items].unsqueeze(1) != self.groups[gather_uneven(items)]
        else:
            # Outside training every process has as many.
            own = torch.arange(len(queries), device=queries.device) + process_rank() * len(queries)
            found = own.unsqueeze(1) != torch.arange(len(everyone), device=queries.device)
        return Neighbours(everyone.unsqueeze(0), found)

    def update(self, items: Tensor, features: Tensor) -> None:
        """Move rows towards the new features of their items: `(1 - rho) row + rho new` (equation 7).

        With several processes the updates of all are made on each. An item that is there twice counts with
        the mean of its features.

        Args:
            items: (b,), local.
            features: (b, D), local.
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
