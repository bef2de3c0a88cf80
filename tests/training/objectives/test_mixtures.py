import pytest
import torch

from tests.training.objectives.local_reference import random_entries
from training.objectives.local_cosines import local_cosines
from training.objectives.mixtures import Mixtures

MASK = torch.tensor([[True, True, False, True], [True, False, False, False]])
OTHERS = random_entries((3, 3), seed=5).values


def mixtures() -> Mixtures:
    """Four mixtures of two parts in each of two samples."""
    weights = torch.rand(2, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return Mixtures(weights / weights.sum(dim=2, keepdim=True), random_entries((2, 2), seed=4).values)


def test_cosines_are_those_of_the_vectors_that_they_stand_for() -> None:
    found = mixtures().cosines(OTHERS)
    expected = local_cosines(OTHERS, mixtures().vectors())
    assert found.shape == (2, 3, 4)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)


def test_moments_are_those_of_the_real_vectors() -> None:
    count, mean, deviations = mixtures().moments(MASK)
    real = mixtures().vectors()[MASK]
    assert count.tolist() == [4]
    torch.testing.assert_close(mean, real.mean(dim=0), rtol=0, atol=1e-14)
    expected = (real - real.mean(dim=0)).square().sum(dim=0)
    torch.testing.assert_close(deviations, expected, rtol=0, atol=1e-13)


def test_vectors_are_mixtures_of_themselves() -> None:
    found = Mixtures.of_vectors(OTHERS)
    assert torch.equal(found.vectors(), OTHERS)
    torch.testing.assert_close(found.cosines(OTHERS), local_cosines(OTHERS, OTHERS), rtol=0, atol=1e-14)


@pytest.mark.parametrize("what", ["cosines", "moments"])
def test_gradients_are_right(what: str) -> None:
    def compute(logits: torch.Tensor, parts: torch.Tensor) -> tuple[torch.Tensor, ...]:
        held = Mixtures(logits.softmax(dim=2), parts)
        return (held.cosines(OTHERS),) if what == "cosines" else held.moments(MASK)[1:]

    inputs = (mixtures().weights.log(), mixtures().parts)
    assert torch.autograd.gradcheck(compute, tuple(tensor.requires_grad_() for tensor in inputs))


def test_mixtures_that_cancel_out_have_a_finite_gradient() -> None:
    weights = torch.full((1, 1, 2), 0.5)
    parts = torch.tensor([[[1.0, -2.0], [-1.0, 2.0]]], requires_grad=True)
    found = Mixtures(weights, parts).cosines(torch.ones(1, 1, 2))
    torch.autograd.backward(found.sum())
    assert float(found.detach()) == 0
    assert parts.grad is not None
    assert torch.isfinite(parts.grad).all()
