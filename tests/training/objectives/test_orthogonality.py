from typing import Literal

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.training.objectives.reference import (
    CONTEXT,
    U,
    V,
    features,
    mask_of,
    of_square,
    random_embeddings,
    slow_reco,
)
from training.objectives.orthogonality import OrthogonalitySettings, orthogonality_constraint
from training.objectives.reco import relaxed_contrastive
from training.objectives.similarity import cosine_matrix


def test_golden_values() -> None:
    loss = orthogonality_constraint(of_square(cosine_matrix(U, V)))
    assert float(loss.total) == pytest.approx(0.487734212518, abs=1e-11)
    assert float(loss.terms["positive"]) == pytest.approx(0.322077646861, abs=1e-11)


def test_module_has_the_paper_s_settings() -> None:
    output = OrthogonalitySettings().build(CONTEXT)(features(U, V))
    assert float(output.total) == pytest.approx(0.487734212518, abs=1e-11)


@pytest.mark.parametrize("pairs", [(), ((0, 2),), ((0, 2), (2, 0), (1, 3))])
def test_equals_the_slow_reference(pairs: tuple[tuple[int, int], ...]) -> None:
    cosines, mask = cosine_matrix(*random_embeddings(5)), mask_of(5, *pairs)
    loss = orthogonality_constraint(of_square(cosines, mask), negative_weight=0.4).total
    assert float(loss) == pytest.approx(slow_reco(cosines, 0.4, mask, one_sided=False), abs=1e-12)


@pytest.mark.parametrize("reduction", ["paper", "balanced"])
def test_gradient_is_right(reduction: Literal["paper", "balanced"]) -> None:
    mask = mask_of(4, (0, 2), (3, 1))

    def loss(image: Tensor, text: Tensor) -> Tensor:
        pairs = of_square(cosine_matrix(image, text), mask)
        return orthogonality_constraint(pairs, reduction=reduction).total

    image, text = random_embeddings(4)
    assert torch.autograd.gradcheck(loss, (image.requires_grad_(), text.requires_grad_()))


def test_is_reco_where_no_similarity_is_negative_and_more_elsewhere() -> None:
    cosines = cosine_matrix(*random_embeddings(6))
    for matrix, equal in ((cosines.abs(), True), (cosines, False)):
        ours = orthogonality_constraint(of_square(matrix), negative_weight=0.6).total
        relaxed = relaxed_contrastive(of_square(matrix)).total
        assert torch.equal(ours, relaxed) == equal
        assert ours >= relaxed


def test_pairs_that_do_not_match_are_drawn_to_0_from_both_sides() -> None:
    cosines = torch.tensor([[1.0, -0.7], [0.4, 1.0]], dtype=torch.float64, requires_grad=True)
    torch.autograd.backward(orthogonality_constraint(of_square(cosines)).total)
    assert cosines.grad is not None
    expected = torch.tensor([[0.0, 0.3 * -0.7], [0.3 * 0.4, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(cosines.grad, expected, rtol=0, atol=1e-12)


def test_balanced_reduction_does_not_depend_on_the_batch() -> None:
    small, large = (
        orthogonality_constraint(
            of_square(torch.full((size, size), -0.3, dtype=torch.float64)), reduction="balanced"
        )
        for size in (2, 200)
    )
    assert float(small.total) == pytest.approx(float(large.total), rel=1e-12)


@pytest.mark.parametrize("wrong", [{"negative_weight": -0.1}, {"reduction": "mean"}, {"one_sided": True}])
def test_settings_refuse_what_has_no_meaning(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        OrthogonalitySettings.model_validate(wrong)
