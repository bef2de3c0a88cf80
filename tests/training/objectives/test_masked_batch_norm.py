import pytest
import torch
from torch import Tensor, nn

from tests.training.objectives.local_reference import random_entries
from training.objectives.masked_batch_norm import MaskedBatchNorm
from training.objectives.mixtures import Mixtures

ENTRIES = random_entries((3, 1, 2))


def shaken_norm() -> MaskedBatchNorm:
    """One whose weight and bias are not those of the start."""
    norm = MaskedBatchNorm(5).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        norm.weight.copy_(torch.rand(5, generator=generator) + 0.5)
        norm.bias.copy_(torch.randn(5, generator=generator))
    return norm


def normalised(norm: MaskedBatchNorm, values: Tensor, mask: Tensor) -> Tensor:
    """The vectors (B, K, D) after normalisation."""
    found: Mixtures = norm(Mixtures.of_vectors(values), mask)
    return found.vectors()


def test_equals_batch_norm_of_the_real_entries_alone() -> None:
    norm, reference = shaken_norm(), nn.BatchNorm1d(5).double()
    reference.load_state_dict(norm.state_dict(), strict=False)
    ours, theirs = (ENTRIES.values.clone().requires_grad_() for _ in range(2))
    found, expected = normalised(norm, ours, ENTRIES.mask)[ENTRIES.mask], reference(theirs[ENTRIES.mask])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)
    torch.autograd.backward((found**3).sum())
    torch.autograd.backward((expected**3).sum())
    assert ours.grad is not None
    assert theirs.grad is not None
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-11)
    for name, parameter in norm.named_parameters():
        torch.testing.assert_close(parameter.grad, reference.get_parameter(name).grad, rtol=0, atol=1e-12)


def test_padding_has_no_influence() -> None:
    norm, changed = shaken_norm(), ENTRIES.values.clone()
    changed[~ENTRIES.mask] = 7
    found, expected = (normalised(norm, values, ENTRIES.mask) for values in (changed, ENTRIES.values))
    assert torch.equal(found[ENTRIES.mask], expected[ENTRIES.mask])


def test_is_the_same_in_evaluation_and_keeps_no_statistics() -> None:
    norm = shaken_norm()
    training = normalised(norm.train(), ENTRIES.values, ENTRIES.mask)
    assert torch.equal(normalised(norm.eval(), ENTRIES.values, ENTRIES.mask), training)
    assert not list(norm.buffers())


def test_gradient_is_right() -> None:
    norm = shaken_norm()

    def normalise(values: Tensor) -> Tensor:
        return normalised(norm, values, ENTRIES.mask)[ENTRIES.mask]

    assert torch.autograd.gradcheck(normalise, (ENTRIES.values.clone().requires_grad_(),))


def test_large_mean_takes_no_digits_from_the_variance() -> None:
    values = random_entries((6, 6), seed=3).values
    mask = torch.ones((2, 6), dtype=torch.bool)
    shifted = (values + 1000).float()
    found = normalised(MaskedBatchNorm(5), shifted, mask)
    expected = normalised(MaskedBatchNorm(5).double(), shifted.double(), mask)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-3)


def test_mixtures_are_normalised_like_the_vectors_that_they_stand_for() -> None:
    norm = shaken_norm()
    weights = torch.rand(3, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mixtures = Mixtures(weights / weights.sum(dim=2, keepdim=True), random_entries((2, 2, 2), seed=4).values)
    found = norm(mixtures, ENTRIES.mask).vectors()
    expected = normalised(norm, mixtures.vectors(), ENTRIES.mask)
    torch.testing.assert_close(found[ENTRIES.mask], expected[ENTRIES.mask], rtol=0, atol=1e-12)


@pytest.mark.parametrize("real", [0, 1])
def test_one_real_entry_or_none_is_finite(real: int) -> None:
    norm = shaken_norm()
    values = ENTRIES.values.clone().requires_grad_()
    mask = torch.zeros((3, 3), dtype=torch.bool)
    mask[0, :real] = True
    found = normalised(norm, values, mask)
    torch.testing.assert_close(found[mask], norm.bias.expand(real, 5), rtol=0, atol=1e-9)
    torch.autograd.backward(found[mask].sum())
    assert values.grad is not None
    assert torch.isfinite(values.grad).all()
