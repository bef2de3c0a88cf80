from typing import Literal

import pytest
import torch

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
from training.objectives.reco import ReCoSettings, relaxed_contrastive
from training.objectives.similarity import cosine_matrix


def test_golden_values() -> None:
    loss = relaxed_contrastive(of_square(cosine_matrix(U, V)))
    assert float(loss.terms["positive"]) == pytest.approx(0.322077646861, abs=1e-11)
    assert float(loss.terms["negative"]) == pytest.approx(0.787878787879, abs=1e-11)
    assert float(loss.total) == pytest.approx(0.794804919588, abs=1e-11)


def test_module_has_the_paper_s_settings() -> None:
    output = ReCoSettings().build(CONTEXT)(features(U, V))
    assert float(output.total) == pytest.approx(0.794804919588, abs=1e-11)
    assert float(output.terms["positive"]) == pytest.approx(0.322077646861, abs=1e-11)
    assert float(output.terms["negative"]) == pytest.approx(0.787878787879, abs=1e-11)


@pytest.mark.parametrize("reduction", ["paper", "balanced"])
def test_gradient_is_right(reduction: Literal["paper", "balanced"]) -> None:
    image, text = random_embeddings(4)
    mask = mask_of(4, (0, 2), (3, 1))

    def loss(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        cosines = cosine_matrix(a, b)
        return relaxed_contrastive(of_square(cosines, mask), reduction=reduction).total

    assert torch.autograd.gradcheck(loss, (image.requires_grad_(), text.requires_grad_()))


@pytest.mark.parametrize("pairs", [(), ((0, 2),), ((0, 2), (2, 0), (1, 3))])
def test_equals_the_slow_reference(pairs: tuple[tuple[int, int], ...]) -> None:
    cosines, mask = cosine_matrix(*random_embeddings(5)), mask_of(5, *pairs)
    loss = relaxed_contrastive(of_square(cosines, mask), negative_weight=0.4).total
    expected = slow_reco(cosines, 0.4, mask, one_sided=True)
    assert float(loss) == pytest.approx(expected, abs=1e-12)


def test_images_and_texts_may_change_places() -> None:
    image, text = random_embeddings(5)
    mask = mask_of(5, (0, 3))
    objective = ReCoSettings().build(CONTEXT)
    there, back = objective(features(image, text, mask)), objective(features(text, image, mask.T))
    torch.testing.assert_close(back.total, there.total, rtol=0, atol=1e-12)


def test_pairs_at_right_angles_or_beyond_are_free() -> None:
    cosines = torch.tensor([[1.0, -0.7], [0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    total = relaxed_contrastive(of_square(cosines)).total
    torch.autograd.backward(total)
    assert float(total.detach()) == 0
    assert cosines.grad is not None
    assert not cosines.grad.any()


def test_other_matches_are_neither_drawn_nor_pushed() -> None:
    cosines = torch.full((3, 3), 0.9, dtype=torch.float64, requires_grad=True)
    total = relaxed_contrastive(of_square(cosines, mask_of(3, (0, 1)))).total
    torch.autograd.backward(total)
    assert cosines.grad is not None
    assert cosines.grad[0, 1] == 0
    assert cosines.grad[1, 0] > 0
    assert cosines.grad[1, 1] < 0


def test_both_reductions_are_equal_at_a_batch_of_64() -> None:
    cosines, mask = cosine_matrix(*random_embeddings(64)), mask_of(64, (0, 5))
    paper = relaxed_contrastive(of_square(cosines, mask)).total
    balanced = relaxed_contrastive(of_square(cosines, mask), reduction="balanced").total
    torch.testing.assert_close(balanced, paper)


def test_balanced_reduction_does_not_depend_on_the_batch() -> None:
    uniform = {size: torch.full((size, size), 0.3, dtype=torch.float64) for size in (2, 64, 200)}
    losses = {
        size: relaxed_contrastive(of_square(value), reduction="balanced") for size, value in uniform.items()
    }
    for size in (2, 200):
        assert float(losses[size].total) == pytest.approx(float(losses[64].total), rel=1e-12)
        for part in ("positive", "negative"):
            assert float(losses[size].terms[part]) == pytest.approx(float(losses[64].terms[part]), rel=1e-12)
