import math

import pytest
import torch

from tests.training.objectives.local_reference import (
    plain_cosines,
    random_entries,
    real_vectors,
    real_weights,
    slow_direction,
    slow_positives,
)
from training.objectives.local_alignment import grid_positives, local_contrastive


def test_golden_positives_of_seven_by_seven() -> None:
    positives = grid_positives(7, 7)
    assert positives.dtype == torch.float64
    assert int((positives[24] > 0).sum()) == 49
    assert int((positives[0] > 0).sum()) == 22
    assert float(positives[24, 24]) == pytest.approx(0.026546, abs=5e-7)
    assert float(positives[0, 0]) == pytest.approx(0.060408, abs=5e-7)
    assert float(positives[0, 1]) == pytest.approx(0.054604, abs=5e-7)
    assert float(positives[1, 0]) == pytest.approx(0.044075, abs=5e-7)


@pytest.mark.parametrize("grid", [(1, 1), (1, 4), (2, 3), (7, 7), (8, 8)])
@pytest.mark.parametrize("reach", [0.0, 0.3, 0.5, 2.0])
def test_positives_equal_the_slow_reference(grid: tuple[int, int], reach: float) -> None:
    expected = torch.tensor(slow_positives(*grid, reach), dtype=torch.float64)
    torch.testing.assert_close(grid_positives(*grid, reach=reach), expected, rtol=0, atol=1e-15)


def test_cells_exactly_at_the_reach_count() -> None:
    # Four rows and four columns are exactly half of the diagonal of 8 x 8.
    assert grid_positives(8, 8)[0, 4 * 8 + 4] > 0


def test_reach_zero_leaves_each_cell_alone() -> None:
    assert torch.equal(grid_positives(3, 2, reach=0.0), torch.eye(6, dtype=torch.float64))


def test_golden_value_of_two_entries() -> None:
    cosines = torch.tensor([[[1.0, 0.5], [0.0, 0.75]]], dtype=torch.float64)
    weights = torch.tensor([[0.25, 0.75]], dtype=torch.float64)
    there, back = local_contrastive(cosines, weights, torch.ones((1, 2), dtype=torch.bool), temperature=0.5)
    # The cross entropy of two scores is log(1 + exp(-difference)).
    rows = 0.25 * math.log1p(math.exp(-1.0)) + 0.75 * math.log1p(math.exp(-1.5))
    columns = 0.25 * math.log1p(math.exp(-2.0)) + 0.75 * math.log1p(math.exp(-0.5))
    assert float(there) == pytest.approx(rows, abs=1e-15)
    assert float(back) == pytest.approx(columns, abs=1e-15)


@pytest.mark.parametrize("counts", [(6, 6, 6), (6, 1, 4)])
@pytest.mark.parametrize("with_grid", [True, False])
def test_equals_the_slow_reference(counts: tuple[int, ...], with_grid: bool) -> None:
    own, other = random_entries(counts, seed=1), random_entries(counts, seed=2)
    there, back = local_contrastive(
        plain_cosines(own.values, other.values),
        own.weights,
        own.mask,
        temperature=0.3,
        positives=grid_positives(2, 3) if with_grid else None,
    )
    positives = slow_positives(2, 3, 0.5) if with_grid else None
    ours, theirs, weights = real_vectors(own), real_vectors(other), real_weights(own)
    assert float(there) == pytest.approx(slow_direction(ours, theirs, weights, 0.3, positives), abs=1e-12)
    assert float(back) == pytest.approx(slow_direction(theirs, ours, weights, 0.3, positives), abs=1e-12)


@pytest.mark.parametrize("with_grid", [True, False])
def test_gradient_is_right(with_grid: bool) -> None:
    own = random_entries((4, 2), seed=1)
    cosines = (torch.rand(2, 4, 4, dtype=torch.float64) * 2 - 1).requires_grad_()
    positives = grid_positives(2, 2) if with_grid else None

    def loss(changed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return local_contrastive(changed, own.weights, own.mask, positives=positives)

    assert torch.autograd.gradcheck(loss, (cosines,))


@pytest.mark.parametrize("with_grid", [True, False])
def test_padding_has_no_influence_and_no_gradient(with_grid: bool) -> None:
    own = random_entries((4, 1), seed=1)
    positives = grid_positives(2, 2) if with_grid else None
    cosines = torch.rand(2, 4, 4, dtype=torch.float64)
    changed = cosines.clone()
    changed[1, 1:] = 0.9
    changed[1, :, 1:] = -0.9
    changed.requires_grad_()
    expected = local_contrastive(cosines, own.weights, own.mask, positives=positives)
    found = local_contrastive(changed, own.weights, own.mask, positives=positives)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    torch.autograd.backward(found[0] + found[1])
    assert changed.grad is not None
    assert not changed.grad[1].any()


def test_sample_with_one_real_entry_costs_nothing() -> None:
    own = random_entries((1, 1), seed=1)
    for loss in local_contrastive(torch.rand(2, 1, 1, dtype=torch.float64), own.weights, own.mask):
        assert float(loss) == 0


def test_sample_without_real_entries_costs_nothing_and_stays_finite() -> None:
    own = random_entries((3, 3), seed=1)
    mask, weights = own.mask.clone(), own.weights.clone()
    mask[1], weights[1] = False, 0
    cosines = torch.rand(2, 3, 3, dtype=torch.float64, requires_grad=True)
    there, back = local_contrastive(cosines, weights, mask)
    alone, _ = local_contrastive(cosines[:1], weights[:1], mask[:1])
    assert float(there.detach()) == pytest.approx(float(alone.detach()) / 2, abs=1e-15)
    torch.autograd.backward(there + back)
    assert cosines.grad is not None
    assert torch.isfinite(cosines.grad).all()
    assert not cosines.grad[1].any()
