"""Similarities of two batches of embeddings, in full precision and over all processes."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from training.common.distributed import gather_rows, process_count, process_rank
from training.models.blades import blade_cosines

NORM_EPS = 1e-7


def full_precision(values: Tensor) -> Tensor:
    """The values as float32; float64 stays as it is."""
    return values if values.dtype == torch.float64 else values.float()


def cosine_matrix(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of every row of one batch with every row of another, outside autocast.

    Rows are divided by max(norm, 1e-7), so a zero row has cosine 0 with everything and a finite gradient.

    Args:
        a: (N, D), any float type.
        b: (M, D), any float type.

    Returns:
        (N, M) in float32, or in float64 when an input is float64.
    """
    with torch.autocast(a.device.type, enabled=False):
        left = normalize(full_precision(a), dim=1, eps=NORM_EPS)
        right = normalize(full_precision(b), dim=1, eps=NORM_EPS)
        return left @ right.T


def similarity_matrix(a: Tensor, b: Tensor) -> Tensor:
    """Cosines (N, M) of vectors (N, D) and (M, D), or of k-blades (N, k, D) and (M, k, D)."""
    if a.ndim == 2:
        return cosine_matrix(a, b)
    with torch.autocast(a.device.type, enabled=False):
        return blade_cosines(full_precision(a), full_precision(b))


@dataclass(frozen=True, slots=True)
class Direction:
    """How the local items of one modality resemble all items of another.

    Attributes:
        values: (b, B), row i is local item i.
        own: (b,), the column of each local item's partner.
        positive_mask: (b, B) bool, True where items match; apart from the partner such an item is neither
            positive nor negative. None: only partners match.
    """

    values: Tensor
    own: Tensor
    positive_mask: Tensor | None = None

    def matched(self) -> Tensor:
        """(b,) similarity of each local item with its partner."""
        return self.values.gather(1, self.own.unsqueeze(1)).squeeze(1)

    def partners(self) -> Tensor:
        """(b, B) bool, True at each local item's partner."""
        return self.own.unsqueeze(1) == torch.arange(self.values.shape[1], device=self.values.device)

    def negatives(self) -> Tensor:
        """(b, B) bool, True where items do not match."""
        unmatched = ~self.partners()
        return unmatched if self.positive_mask is None else unmatched & ~self.positive_mask

    def neutral(self) -> Tensor | None:
        """(b, B) bool, True for matches other than the partner; None when there are none."""
        return None if self.positive_mask is None else self.positive_mask & ~self.partners()


@dataclass(frozen=True, slots=True)
class Similarities:
    """How the items of two modalities resemble each other, from this process's point of view.

    Attributes:
        rows: Local items of the first modality against all of the second.
        columns: Local items of the second modality against all of the first.
        processes: How many share the batch: B = b * processes. A sum over local rows is multiplied by it,
            because gradients are averaged over processes.
    """

    rows: Direction
    columns: Direction
    processes: int = 1

    @classmethod
    def of_square(cls, matrix: Tensor, positive_mask: Tensor | None = None) -> "Similarities":
        """Those of a whole batch in one process.

        Args:
            matrix: (B, B), row i item i of the first modality, column j item j of the second.
            positive_mask: (B, B) bool as in `Features`.
        """
        own = torch.arange(len(matrix), device=matrix.device)
        transposed = None if positive_mask is None else positive_mask.T
        return cls(Direction(matrix, own, positive_mask), Direction(matrix.T, own, transposed))

    def map(self, change: Callable[[Direction], Tensor]) -> "Similarities":
        """The same with other values, which a function makes of each direction."""
        return replace(
            self,
            rows=replace(self.rows, values=change(self.rows)),
            columns=replace(self.columns, values=change(self.columns)),
        )

    def mean_terms(self) -> dict[str, Tensor]:
        """Detached mean similarity of partners and of pairs that do not match, 0 without such pairs."""
        values, negatives = self.rows.values.detach(), self.rows.negatives()
        return {
            "positive_similarity": self.rows.matched().detach().mean(),
            "negative_similarity": (values * negatives).sum() / negatives.sum().clamp(min=1),
        }


def similarities(
    a: Tensor,
    b: Tensor,
    positive_mask: Tensor | None = None,
    measure: Callable[[Tensor, Tensor], Tensor] = similarity_matrix,
) -> Similarities:
    """The similarities of two aligned batches over all processes, with gradient.

    Args:
        a: (b, D) or (b, k, D), first modality, local rows.
        b: The same of the second modality.
        positive_mask: (B, B) bool as in `Features`.
        measure: Makes the similarities (N, M) of N and M items.
    """
    processes = process_count()
    if processes == 1:
        return Similarities.of_square(measure(a, b), positive_mask)
    # Gathered in full precision: a gradient summed over processes in half precision would lose digits.
    a, b = full_precision(a), full_precision(b)
    rows, columns = measure(a, gather_rows(b)), measure(b, gather_rows(a))
    return over_processes(rows, columns, positive_mask)


def over_processes(rows: Tensor, columns: Tensor, positive_mask: Tensor | None = None) -> Similarities:
    """Similarities from this process's rows (b, B) and columns (b, B) and the whole batch's mask (B, B)."""
    local = len(rows)
    own = torch.arange(local, device=rows.device) + process_rank() * local
    row_mask = None if positive_mask is None else positive_mask[own]
    column_mask = None if positive_mask is None else positive_mask.T[own]
    return Similarities(Direction(rows, own, row_mask), Direction(columns, own, column_mask), process_count())
