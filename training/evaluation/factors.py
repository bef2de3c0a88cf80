"""Linear probes of image, text and sound vectors for each known factor: metadata and labels."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from training.common.manifest import Record
from training.evaluation.embedding import EmbeddedManifest
from training.evaluation.retrieval import mean_of
from training.evaluation.similarity import inner_products

Matrix = NDArray[np.float64]
Codes = NDArray[np.int64]
_FOLDS: Final = 5
_STRENGTHS: Final = (1e-3, 1e-2, 1e-1, 1.0)
_MAX_RECORDS: Final = 1000
_MAX_VALUES: Final = 20
_MAX_NUMBERS: Final = 10
_MIN_PER_VALUE: Final = 5
_PARTS: Final = 3
_SEED: Final = 0


@dataclass(frozen=True)
class _Fold:
    """Eigendecomposition of the centred kernel of a fold's training items."""

    fitted: Codes
    held_out: Codes
    values: NDArray[np.float64]
    vectors: Matrix
    to_held_out: Matrix
    scale: float


class LinearProbe:
    """Cross-validated ridge regression of classes, decided by the nearest class mean.

    Kernel ridge regression works for all kinds of vectors: see `similarity.inner_products`.

    Args:
        kernel: (N, N) inner products of all items.
        groups: Group of each item; a group is never split between folds. None: a group of its own.
    """

    def __init__(self, kernel: Matrix, groups: Sequence[str | None]) -> None:
        number = _fold_numbers(groups)
        used = np.unique(number)
        self._folds = [_fold(kernel, number == fold) for fold in used] if len(used) > 1 else []

    def balanced_accuracy(self, codes: Codes, classes: int) -> float | None:
        """Mean recall over the classes, on held-out items; chance is one in `classes`.

        Codes (N,) are the classes of items; -1: unknown.

        Returns:
            From 0 to 1; None if a class is missing, at all or from the training items of a fold.
        """
        if not self._folds:
            return None
        predicted = np.full(len(codes), -1)
        for fold in self._folds:
            fitted = codes[fold.fitted]
            if len(set(fitted.tolist()) - {-1}) < classes:
                return None
            predicted[fold.held_out] = _predict(fold, fitted, classes)
        recalls = [(predicted[codes == code] == code).mean() for code in range(classes)]
        return float(np.mean(recalls))


def _fold_numbers(groups: Sequence[str | None]) -> Codes:
    """Fold of each item; whole groups are assigned in random order."""
    names = [("alone", row) if group is None else ("group", group) for row, group in enumerate(groups)]
    distinct = list(dict.fromkeys(names))
    order = np.random.default_rng(_SEED).permutation(len(distinct))
    fold_of = {name: int(rank) % _FOLDS for name, rank in zip(distinct, order, strict=True)}
    return np.array([fold_of[name] for name in names], dtype=np.int64)


def _fold(kernel: Matrix, out: NDArray[np.bool_]) -> _Fold:
    fitted, held_out = np.flatnonzero(~out), np.flatnonzero(out)
    inner, across = kernel[np.ix_(fitted, fitted)], kernel[np.ix_(held_out, fitted)]
    columns, mean = inner.mean(axis=0), inner.mean()
    centred = inner - columns - columns[:, None] + mean
    values, vectors = np.linalg.eigh(centred)
    to_held_out = across - columns - across.mean(axis=1, keepdims=True) + mean
    # Equal items only differ by rounding, which must not be amplified.
    least = float(np.finfo(np.float32).eps) * max(1.0, float(np.diagonal(inner).mean()))
    scale = max(float(values.mean()), least)
    return _Fold(fitted, held_out, values.clip(min=0.0), vectors, to_held_out, scale)


def _predict(fold: _Fold, codes: Codes, classes: int) -> Codes:
    """Predicted class of each held-out item."""
    targets = np.zeros((len(codes), classes))
    targets[codes >= 0, codes[codes >= 0]] = 1.0
    # The targets of items of unknown class are 0.
    targets[codes >= 0] -= targets[codes >= 0].mean(axis=0)
    turned = fold.vectors.T @ targets
    fits = []
    for strength in _STRENGTHS:
        shrunk = 1.0 / (fold.values + strength * fold.scale)
        weights = fold.vectors @ (shrunk[:, None] * turned)
        # Leave-one-out residuals.
        missed = weights / ((fold.vectors**2) @ shrunk)[:, None]
        fits.append((float((missed[codes >= 0] ** 2).mean()), weights, targets - missed))
    _, weights, left_out = min(fits, key=lambda fit: fit[0])
    means = np.stack([left_out[codes == code].mean(axis=0) for code in range(classes)])
    scores = fold.to_held_out @ weights
    nearest: Codes = ((scores[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    return nearest


@dataclass(frozen=True, slots=True)
class FactorReading:
    """Accuracy of linear probes for one factor, with its number of values (classes) and of records.

    Attributes:
        name: Metadata key, or `labels`: the mean over labels of whether an image has the label.
        image: Balanced accuracy in percent of a linear probe on image vectors.
        text: On the mean of an image's text vectors; None without texts.
        chance: Accuracy of guessing, in percent.
        audio: On the vectors of sounds; None without sounds.
    """

    name: str
    values: int
    records: int
    image: float | None
    text: float | None
    chance: float
    audio: float | None = None


@dataclass(frozen=True, slots=True)
class Factor:
    """Class (N,) of each record out of `values`; -1: unknown."""

    name: str
    codes: Codes
    values: int


def read_factors(embedded: EmbeddedManifest) -> tuple[FactorReading, ...]:
    """Probe every factor of a manifest, in each embedded modality.

    Probes are cross-validated on the records, without splitting groups. Of more than 1,000 records, a random
    1,000 are used.
    """
    rows = _sample(len(embedded.records))
    records = [embedded.records[row] for row in rows]
    factors = metadata_factors(records)
    labels = label_factors(records)
    if not factors and not labels:
        return ()
    groups = [record.group for record in records]
    everywhere, images = np.arange(len(rows)), embedded.image_vectors[rows]
    image = _probe(everywhere, inner_products(images, images), groups)
    text = _probe(*_text_kernel(embedded, rows), groups)
    audio = _probe(*_sound_kernel(embedded, rows), groups)

    def read(factor: Factor) -> FactorReading:
        return FactorReading(
            name=factor.name,
            values=factor.values,
            records=int((factor.codes >= 0).sum()),
            image=image(factor),
            text=text(factor),
            chance=100 / factor.values,
            audio=audio(factor),
        )

    readings = [read(factor) for factor in factors]
    by_label = [read(factor) for factor in labels]
    if by_label:
        columns = zip(*((one.image, one.text, one.audio) for one in by_label), strict=True)
        by_image, by_text, by_sound = map(mean_of, columns)
        readings.append(replace(by_label[0], image=by_image, text=by_text, audio=by_sound))
    return tuple(readings)


def metadata_factors(records: Sequence[Record]) -> list[Factor]:
    """Factors of the metadata, by name.

    Texts, booleans, lists and numbers with few values are classes; other numbers are split into three equal
    parts. Keys whose value differs for most records, and values of fewer than five records, are left out.
    """
    names = sorted({name for record in records for name in record.metadata})
    return [factor for name in names if (factor := _metadata_factor(name, records)) is not None]


def label_factors(records: Sequence[Record]) -> list[Factor]:
    """One factor per label that enough labelled images have and enough don't have."""
    labelled = np.array([bool(record.labels) for record in records])
    factors = []
    for label in sorted({label for record in records for label in record.labels}):
        codes = np.array([int(label in record.labels) for record in records], dtype=np.int64)
        codes[~labelled] = -1
        if min((codes == 0).sum(), (codes == 1).sum()) >= _MIN_PER_VALUE:
            factors.append(Factor("labels", codes, 2))
    return factors


def _metadata_factor(name: str, records: Sequence[Record]) -> Factor | None:
    values = [record.metadata.get(name) for record in records]
    numbers = {
        row: value
        for row, value in enumerate(values)
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    if len(set(numbers.values())) > _MAX_NUMBERS:
        edges = np.quantile([*numbers.values()], np.arange(1, _PARTS) / _PARTS)
        parts = np.searchsorted(edges, [*numbers.values()], side="right").tolist()
        values = [*map(dict(zip(numbers, parts, strict=True)).get, range(len(records)))]
    counts = Counter(value for value in values if value is not None)
    kept = sorted((value for value, count in counts.items() if count >= _MIN_PER_VALUE), key=repr)
    if not 2 <= len(kept) <= _MAX_VALUES or len(counts) > sum(counts.values()) / 2:
        return None
    code = {value: number for number, value in enumerate(kept)}
    codes = [-1 if value is None else code.get(value, -1) for value in values]
    return Factor(name, np.array(codes, dtype=np.int64), len(kept))


def _sample(records: int) -> NDArray[np.int64]:
    if records <= _MAX_RECORDS:
        return np.arange(records)
    chosen = np.random.default_rng(_SEED).choice(records, _MAX_RECORDS, replace=False)
    return np.sort(chosen)


def _text_kernel(embedded: EmbeddedManifest, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], Matrix]:
    """Positions in `rows` of records with texts, and the kernel of the means of their texts."""
    owners = _positions(embedded.text_owner, rows)
    vectors, owners = embedded.text_vectors[owners >= 0], owners[owners >= 0]
    described, starts, counts = np.unique(owners, return_index=True, return_counts=True)
    kernel = np.empty((len(described), len(described)))
    for row, (start, count) in enumerate(zip(starts.tolist(), counts.tolist(), strict=True)):
        with_all = inner_products(vectors[start : start + count], vectors).mean(axis=0)
        kernel[row] = np.add.reduceat(with_all, starts) / counts
    return described, kernel


def _sound_kernel(embedded: EmbeddedManifest, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], Matrix]:
    """Positions in `rows` of records with a sound, and the kernel of the sounds."""
    if embedded.sounds is None:
        return np.zeros(0, dtype=np.int64), np.empty((0, 0))
    owners = _positions(embedded.sounds.owner, rows)
    vectors = embedded.sounds.vectors[owners >= 0]
    return owners[owners >= 0], inner_products(vectors, vectors)


def _positions(owners: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Position of each owner among the sorted rows; -1: it isn't among them."""
    positions = np.searchsorted(rows, owners).clip(max=len(rows) - 1)
    return np.where(rows[positions] == owners, positions, -1)


def _probe(
    positions: NDArray[np.int64], kernel: Matrix, groups: Sequence[str | None]
) -> Callable[[Factor], float | None]:
    """Balanced accuracy in percent by factor, of a probe on the records at these positions, if any."""
    probe = LinearProbe(kernel, [groups[row] for row in positions]) if len(positions) else None

    def read(factor: Factor) -> float | None:
        share = None if probe is None else probe.balanced_accuracy(factor.codes[positions], factor.values)
        return None if share is None else 100 * share

    return read
