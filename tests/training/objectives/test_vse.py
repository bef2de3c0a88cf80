import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.training.objectives.reference import (
    CONTEXT,
    C,
    U,
    V,
    features,
    mask_of,
    of_square,
    random_embeddings,
)
from training.objectives.similarity import cosine_matrix
from training.objectives.vse import VSE, VSESettings, directional_hinge


def vse(margin: float = 0.2, *, hardest: bool = True) -> VSE:
    return VSESettings(margin=margin, hardest=hardest).build(CONTEXT)


def slow_vse(cosines: Tensor, margin: float, mask: Tensor, *, hardest: bool) -> float:
    """The hinge loss with explicit loops over anchors and what does not match them."""
    size, values, matches = len(cosines), cosines.tolist(), mask.tolist()
    total = 0.0
    for i in range(size):
        texts = [max(0.0, margin + values[i][j] - values[i][i]) for j in range(size) if not matches[i][j]]
        images = [max(0.0, margin + values[j][i] - values[i][i]) for j in range(size) if not matches[j][i]]
        for costs in (texts, images):
            total += max(costs, default=0.0) if hardest else sum(costs)
    return total


def test_golden_values() -> None:
    assert float(vse()(features(U, V)).total) == pytest.approx(0.308248290464, abs=1e-11)
    assert float(vse(0.5, hardest=False)(features(U, V)).total) == pytest.approx(1.663480367463, abs=1e-11)
    assert float(vse(0.5)(features(U, V)).total) == pytest.approx(1.479976948391, abs=1e-11)


def test_vse_plus_plus_with_the_margin_of_its_authors_is_the_default() -> None:
    assert float(VSESettings().build(CONTEXT)(features(U, V)).total) == pytest.approx(0.308248290464)


@pytest.mark.parametrize("hardest", [True, False])
@pytest.mark.parametrize("margin", [0.2, 1.0])
@pytest.mark.parametrize("pairs", [(), ((0, 2),), ((0, 2), (2, 0), (1, 3))])
def test_equals_the_slow_reference(hardest: bool, margin: float, pairs: tuple[tuple[int, int], ...]) -> None:
    image, text = random_embeddings(5)
    mask = mask_of(5, *pairs)
    loss = vse(margin, hardest=hardest)(features(image, text, mask)).total
    expected = slow_vse(cosine_matrix(image, text), margin, mask, hardest=hardest)
    assert expected > 0
    assert float(loss) == pytest.approx(expected, abs=1e-12)


def test_terms_are_both_directions() -> None:
    image, text = random_embeddings(5)
    output = vse()(features(image.requires_grad_(), text))
    assert not any(term.requires_grad for term in output.terms.values())
    forth, back = output.terms["first_to_second"], output.terms["second_to_first"]
    torch.testing.assert_close(forth + back, output.total.detach(), rtol=0, atol=1e-14)
    swapped = vse()(features(text, image)).terms
    torch.testing.assert_close(swapped["first_to_second"], back, rtol=0, atol=1e-12)
    torch.testing.assert_close(swapped["second_to_first"], forth, rtol=0, atol=1e-12)


@pytest.mark.parametrize("hardest", [True, False])
def test_gradient_is_right(hardest: bool) -> None:
    image, text = random_embeddings(4)
    mask = mask_of(4, (0, 2), (3, 1))

    def loss(a: Tensor, b: Tensor) -> Tensor:
        total: Tensor = vse(0.5, hardest=hardest)(features(a, b, mask)).total
        return total

    assert torch.autograd.gradcheck(loss, (image.requires_grad_(), text.requires_grad_()))


def test_only_the_hardest_pair_has_a_gradient() -> None:
    cosines = torch.tensor([[0.5, 0.6, 0.7], [0.1, 0.5, 0.2], [0.0, 0.1, 0.5]], requires_grad=True)
    torch.autograd.backward(directional_hinge(of_square(cosines).rows))
    assert cosines.grad is not None
    expected = torch.zeros((3, 3))
    expected[0, 0], expected[0, 2] = -1, 1
    assert torch.equal(cosines.grad, expected)


def test_a_lead_of_the_margin_costs_nothing() -> None:
    cosines = torch.full((3, 3), 0.25).fill_diagonal_(0.5).requires_grad_()
    output = vse(0.25).of_similarities(of_square(cosines))
    assert float(output.total.detach()) == 0
    assert float(vse(0.26).of_similarities(of_square(cosines)).total.detach()) > 0


def test_other_matches_are_no_negatives_in_either_direction() -> None:
    cosines = C.clone()
    cosines[0, 1] = 0.99
    mask = mask_of(3, (0, 1))
    cosines.requires_grad_()
    torch.autograd.backward(vse(0.5, hardest=False).of_similarities(of_square(cosines, mask)).total)
    assert cosines.grad is not None
    assert cosines.grad[0, 1] == 0
    assert cosines.grad[0, 2] != 0


@pytest.mark.parametrize("hardest", [True, False])
@pytest.mark.parametrize("size", [1, 3])
def test_nothing_to_compare_with_costs_nothing(hardest: bool, size: int) -> None:
    image, text = random_embeddings(size)
    everything = torch.ones((size, size), dtype=torch.bool)
    total = vse(hardest=hardest)(features(image.requires_grad_(), text, everything)).total
    torch.autograd.backward(total)
    assert float(total.detach()) == 0
    assert image.grad is not None
    assert not image.grad.any()


@pytest.mark.parametrize("hardest", [True, False])
def test_free_embeddings_learn_to_find_each_other(hardest: bool) -> None:
    image, text = (batch.requires_grad_() for batch in random_embeddings(12, 8))
    optimizer = torch.optim.Adam([image, text], lr=0.05)
    for _ in range(100):
        optimizer.zero_grad()
        torch.autograd.backward(vse(hardest=hardest)(features(image, text)).total)
        optimizer.step()
    cosines = cosine_matrix(image, text).detach()
    own = torch.arange(12)
    assert torch.equal(cosines.argmax(dim=1), own)
    assert torch.equal(cosines.argmax(dim=0), own)


@pytest.mark.parametrize("wrong", [{"margin": 0.0}, {"margin": -1}, {"alpha": 0.2}])
def test_settings_refuse_what_has_no_meaning(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        VSESettings.model_validate(wrong)
