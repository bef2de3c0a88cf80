"""A linear probe: how well a class can be read from vectors that the probe was not fitted to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Codes = NDArray[np.int64]

_FOLDS: Final = 5
_STRENGTHS: Final = (1e-3, 1e-2, 1e-1, 1.0)
_SEED: Final = 0


@dataclass(frozen=True)
class _Fold:
    """The centred kernel of the items that a fold is fitted to, in its eigenvectors."""

    fitted: Codes
    held_out: Codes
    values: NDArray[np.float64]
    vectors: Matrix
    to_held_out: Matrix
    scale: float


class LinearProbe:
    """Ridge regression of classes, cross-validated, with the nearest class mean as its decision.

    Ridge regression in its kernel form probes all kinds of vectors alike: see `similarity.inner_products`.

    Args:
        kernel: (N, N) inner products of every item with every other.
        groups: Group of each item; no group is both fitted and held out. None is a group of its own.
    """

    def __init__(self, kernel: Matrix, groups: Sequence[str | None]) -> None:
        number = _fold_numbers(groups)
        used = np.unique(number)
        self._folds = [_fold(kernel, number == fold) for fold in used] if len(used) > 1 else []

    def balanced_accuracy(self, codes: Codes, classes: int) -> float | None:
        """Mean over the classes of the share of their items that are recognised when held out.

        Chance is one in `classes`, however unequal they are.

        Args:
            codes: (N,) class of each item; -1 where it is unknown.
            classes: Number of classes.

        Returns:
            From 0 to 1; None when a class is missing from what a fold is fitted to, or altogether.
        """
        if not self._folds:
            return None
        found = np.full(len(codes), -1)
        for fold in self._folds:
            known = codes[fold.fitted]
            if len(set(known.tolist()) - {-1}) < classes:
                return None
            found[fold.held_out] = _predict(fold, known, classes)
        recalls = [(found[codes == code] == code).mean() for code in range(classes)]
        return float(np.mean(recalls))


def _fold_numbers(groups: Sequence[str | None]) -> Codes:
    """The fold of each item; whole groups are dealt out in random order."""
    names = [("alone", row) if group is None else ("group", group) for row, group in enumerate(groups)]
    distinct = list(dict.fromkeys(names))
    order = np.random.default_rng(_SEED).permutation(len(distinct))
    fold_of = {name: int(place) % _FOLDS for name, place in zip(distinct, order, strict=True)}
    return np.array([fold_of[name] for name in names], dtype=np.int64)


def _fold(kernel: Matrix, out: NDArray[np.bool_]) -> _Fold:
    fitted, held_out = np.flatnonzero(~out), np.flatnonzero(out)
    inner, across = kernel[np.ix_(fitted, fitted)], kernel[np.ix_(held_out, fitted)]
    columns, mean = inner.mean(axis=0), inner.mean()
    centred = inner - columns - columns[:, None] + mean
    values, vectors = np.linalg.eigh(centred)
    to_held_out = across - columns - across.mean(axis=1, keepdims=True) + mean
    # Items that are all the same differ by rounding alone, which is not to be enlarged.
    least = float(np.finfo(np.float32).eps) * max(1.0, float(np.diagonal(inner).mean()))
    scale = max(float(values.mean()), least)
    return _Fold(fitted, held_out, values.clip(min=0.0), vectors, to_held_out, scale)


def _predict(fold: _Fold, known: Codes, classes: int) -> Codes:
    """The class of each held-out item."""
    targets = np.zeros((len(known), classes))
    targets[known >= 0, known[known >= 0]] = 1.0
    # Items of unknown class have a target of 0 for every class.
    targets[known >= 0] -= targets[known >= 0].mean(axis=0)
    turned = fold.vectors.T @ targets
    fits = []
    for strength in _STRENGTHS:
        shrunk = 1.0 / (fold.values + strength * fold.scale)
        weights = fold.vectors @ (shrunk[:, None] * turned)
        # Leave-one-out residual of each item.
        missed = weights / ((fold.vectors**2) @ shrunk)[:, None]
        fits.append((float((missed[known >= 0] ** 2).mean()), weights, targets - missed))
    _, weights, left_out = min(fits, key=lambda fit: fit[0])
    means = np.stack([left_out[known == code].mean(axis=0) for code in range(classes)])
    scores = fold.to_held_out @ weights
    nearest: Codes = ((scores[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    return nearest
