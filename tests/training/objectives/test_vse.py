"""VSE0 and VSE++: golden values, and the formula pair by pair."""

import pytest

from tests.training.objectives.reference import MATCHES, U, V, features, mask_of, random_embeddings
from training.objectives import VSE
from training.objectives.similarity import cosine_matrix


def test_golden_values() -> None:
    """The default is VSE++ with the margin of its authors, .2."""
    assert float(VSE()(U, V)) == pytest.approx(0.308248290464, abs=1e-11)
    assert float(VSE(0.5)(U, V)) == pytest.approx(1.479976948391, abs=1e-11)
    assert float(VSE(0.5, hardest=False)(U, V)) == pytest.approx(1.663480367463, abs=1e-11)


@pytest.mark.parametrize("hardest", [True, False])
@pytest.mark.parametrize("margin", [0.2, 1.0])
@pytest.mark.parametrize("pairs", MATCHES)
def test_equals_the_formula_pair_by_pair(
    hardest: bool, margin: float, pairs: tuple[tuple[int, int], ...]
) -> None:
    (image, text), mask = random_embeddings(5), mask_of(5, *pairs)
    expected = {"first_to_second": 0.0, "second_to_first": 0.0}
    for name, cosines, matches in (
        ("first_to_second", cosine_matrix(image, text).tolist(), mask),
        ("second_to_first", cosine_matrix(text, image).tolist(), mask.T),
    ):
        for i, row in enumerate(cosines):
            costs = [max(0.0, margin + row[j] - row[i]) for j in range(5) if not matches[i, j]]
            expected[name] += max(costs) if hardest else sum(costs)
    output = VSE(margin, hardest=hardest).compute(features(image, text, mask))
    for name, cost in expected.items():
        assert cost > 0
        assert float(output.terms[name]) == pytest.approx(cost, abs=1e-12)
    assert float(output.total) == pytest.approx(sum(expected.values()), abs=1e-12)
