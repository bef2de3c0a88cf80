"""ReCo and the orthogonality constraint: golden values, and the formulas pair by pair."""

import pytest
import torch
from torch import Tensor

from tests.training.objectives.reference import MATCHES, U, V, features, mask_of, random_embeddings
from training.objectives import Orthogonality, ReCo
from training.objectives.similarity import Similarities, cosine_matrix


def slow(
    cosines: Tensor, mask: Tensor, weight: float, *, power: float = 2, threshold: float | None = None
) -> float:
    """Explicit sums; without a threshold similarities below 0 cost as much as those above."""
    total = 0.0
    for i, row in enumerate(cosines.tolist()):
        for j, value in enumerate(row):
            if i == j:
                total += (1 - value) ** 2
            elif not mask[i, j]:
                total += weight * (value if threshold is None else max(0.0, value - threshold)) ** power
    return total


# Four pairs of `U` and `V` that don't match have a cosine above 0.
ABOVE = (1 / 6) ** 0.5, (1 / 6) ** 0.5, 1 / 2, (9 / 44) ** 0.5


@pytest.mark.parametrize(
    ("objective", "negative", "total"),
    [
        (ReCo(), 0.787878787879, 0.794804919588),
        (Orthogonality(), 1.104377104377, 0.487734212518),
        (ReCo(negative_power=4), sum(c**4 for c in ABOVE), 0.418014285979),
        (ReCo(threshold=0.1), sum((c - 0.1) ** 2 for c in ABOVE), 0.606553287853),
    ],
    ids=["ReCo", "Orthogonality", "fourth power", "threshold"],
)
def test_golden_values(objective: ReCo | Orthogonality, negative: float, total: float) -> None:
    output = objective.compute(features(U, V))
    assert float(output.terms["positive"]) == pytest.approx(0.322077646861, abs=1e-11)
    assert float(output.terms["negative"]) == pytest.approx(negative, abs=1e-11)
    assert float(output.total) == pytest.approx(total, abs=1e-11)


@pytest.mark.parametrize("pairs", MATCHES)
def test_equals_the_formula_pair_by_pair(pairs: tuple[tuple[int, int], ...]) -> None:
    (image, text), mask = random_embeddings(5), mask_of(5, *pairs)
    cosines = cosine_matrix(image, text)
    for loss, expected in (
        (ReCo(0.4), slow(cosines, mask, 0.4, threshold=0)),
        (ReCo(1.2, negative_power=4, threshold=0.05), slow(cosines, mask, 1.2, power=4, threshold=0.05)),
        (Orthogonality(0.4), slow(cosines, mask, 0.4)),
    ):
        assert float(loss(image, text, mask)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("objective", "cosine"), [(ReCo, 0.3), (Orthogonality, -0.3)])
def test_balanced_reduction_is_the_paper_s_at_a_batch_of_64_for_every_batch(
    objective: type[ReCo] | type[Orthogonality], cosine: float
) -> None:
    def pairs(size: int) -> Similarities:
        return Similarities.of_square(torch.full((size, size), cosine, dtype=torch.float64))

    expected = objective().of_similarities(pairs(64))
    balanced = objective(reduction="balanced")
    for size in (2, 64, 200):
        output = balanced.of_similarities(pairs(size))
        torch.testing.assert_close(output.total, expected.total)
        torch.testing.assert_close(dict(output.terms), dict(expected.terms))
    alone = balanced.of_similarities(pairs(1)).terms
    torch.testing.assert_close(alone["positive"], expected.terms["positive"])
    assert alone["negative"] == 0
