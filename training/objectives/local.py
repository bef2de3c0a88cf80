"""Local features of a batch: regions of an image, sentences of a text, and their cosines."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from training.common.distributed import gather_detached, gather_rows, largest_of_processes
from training.common.errors import RecipeError
from training.models.features import ModalityFeatures
from training.objectives.similarity import NORM_EPS, full_precision


@dataclass(frozen=True, slots=True)
class LocalEntries:
    """Local features of a batch in full precision; padded entries are 0.

    Attributes:
        values: (B, K, D), zero where padded.
        mask: (B, K) bool, True where an entry is real.
        weights: (B, K) without gradient, zero where padded; a row sums to 1.
    """

    values: Tensor
    mask: Tensor
    weights: Tensor

    @classmethod
    def of(cls, features: ModalityFeatures) -> "LocalEntries":
        """Those of one modality; without attention weights all real entries weigh the same.

        Raises:
            RecipeError: The encoder has no local features.
        """
        if features.local is None:
            raise RecipeError("The objective compares local features: set model.local_features to true.")
        values, mask = full_precision(features.local), features.local_mask
        if mask is None:
            mask = torch.ones(values.shape[:2], dtype=torch.bool, device=values.device)
        else:
            # Not a product: padding may hold what is no number.
            mask = mask.bool()
            values = torch.where(mask.unsqueeze(2), values, 0)
        return cls(values, mask, normalised_weights(features.local_weights, mask, values.dtype))

    def of_all_processes(self) -> "LocalEntries":
        """Those of all processes in the order of their ranks, with gradient to each one's own.

        Padded to the longest; of one process they are as they were.
        """
        missing = largest_of_processes(self.values.shape[1]) - self.values.shape[1]
        return LocalEntries(
            gather_rows(pad(self.values, (0, 0, 0, missing))),
            gather_detached(pad(self.mask, (0, missing))),
            gather_detached(pad(self.weights, (0, missing))),
        )


def normalised_weights(weights: Tensor | None, mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Weights (B, K) without gradient that sum to 1 over the real entries of a row.

    Args:
        weights: (B, K), not negative; None: all the same.
        mask: (B, K) bool, True where an entry is real.
        dtype: Type of the result.
    """
    kept = mask.to(dtype) if weights is None else weights.detach().to(dtype).masked_fill(~mask, 0)
    return kept / kept.sum(dim=1, keepdim=True).clamp(min=torch.finfo(dtype).tiny)


def masked_scores(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores (B, N, K) that a softmax over the last axis confines to the real entries of `mask` (B, K).

    The lowest finite number stands in for minus infinity, so that a row without real entries, which weighs
    nothing, has a finite loss and gradient as well.
    """
    return scores.masked_fill(~mask.unsqueeze(1), torch.finfo(scores.dtype).min)


def self_cosines(a: Tensor) -> Tensor:
    """Cosines (B, K, K) of the entries (B, K, D) of each sample with each other.

    As of `a @ a.mT`, with one matrix product in backward instead of two: the product of `a` and a constant
    copy has half of the gradient, its transpose the other half. First derivatives only.
    """
    half = a @ a.detach().mT
    products = half + half.mT - half.detach()
    squares = products.diagonal(dim1=1, dim2=2)
    return over_norms(products, squares, squares)


def over_norms(products: Tensor, row_squares: Tensor, column_squares: Tensor) -> Tensor:
    """Cosines from dot products and squared norms.

    The products are divided instead of the vectors: that is (B, K, L) numbers and not (B, K, D). Norms count
    as 1e-7 at least, so a zero vector has cosine 0 with everything and a finite gradient.

    Args:
        products: (B, K, L).
        row_squares: (B, K), squared norms of the vectors of rows.
        column_squares: (B, L), of those of columns.
    """
    rows, columns = (square.clamp(min=NORM_EPS**2).rsqrt() for square in (row_squares, column_squares))
    return products * rows.unsqueeze(2) * columns.unsqueeze(1)
