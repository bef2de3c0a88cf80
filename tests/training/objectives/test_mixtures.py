import pytest
import torch

from tests.training.objectives.local_reference import plain_cosines, random_entries
from training.objectives.mixtures import Mixtures

MASK = torch.tensor([[True, True, False, True], [True, False, False, False]])
OTHERS = random_entries((3, 3), seed=5).values


def mixtures() -> Mixtures:
    """Four mixtures of two parts in each of two samples."""
    weights = torch.rand(2, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return Mixtures(weights / weights.sum(dim=2, keepdim=True), random_entries((2, 2), seed=4).values)


def test_cosines_are_those_of_the_vectors_that_they_stand_for() -> None:
    found = mixtures().cosines(OTHERS)
    expected = plain_cosines(OTHERS, mixtures().vectors())
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
    torch.testing.assert_close(found.cosines(OTHERS), plain_cosines(OTHERS, OTHERS), rtol=0, atol=1e-14)


@pytest.mark.parametrize("what", ["cosines", "moments"])
def test_gradients_are_right(what: str) -> None:
    def compute(logits: torch.Tensor, parts: torch.Tensor) -> tuple[torch.Tensor, ...]:
        held = Mixtures(logits.softmax(dim=2), parts)
        return (held.cosines(OTHERS),) if what == "cosines" else held.moments(MASK)[1:]

    inputs = (mixtures().weights.log(), mixtures().parts)
    assert torch.autograd.gradcheck(compute, tuple(tensor.requires_grad_() for tensor in inputs))


def test_float32_is_exact_enough_at_the_size_of_a_batch() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(4, 49, 8, generator=generator).softmax(dim=2)
    parts = torch.randn(4, 8, 512, generator=generator)
    others = torch.randn(4, 49, 512, generator=generator)
    exact = plain_cosines(others.double(), weights.double() @ parts.double())
    assert (Mixtures(weights, parts).cosines(others) - exact).abs().max() < 1e-6


def test_mixtures_that_cancel_out_keep_cosine_and_gradient_in_bounds() -> None:
    pair = torch.randn(8, 2, 512, generator=torch.Generator().manual_seed(0)) * 100
    parts = torch.cat([pair, -pair.sum(dim=1, keepdim=True)], dim=1).requires_grad_()
    found = Mixtures(torch.full((8, 4, 3), 1 / 3), parts).cosines(pair)
    assert found.detach().abs().max() <= 1.001
    torch.autograd.backward(found.sum())
    assert parts.grad is not None
    assert torch.isfinite(parts.grad).all()
