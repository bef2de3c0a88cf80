import math

import pytest
import torch
from torch import Tensor

from training.models.heads.normal import block_cross, normal_of

SHARED = torch.tensor([[1, 2, 0, 1, 0, -1], [0, 1, 3, -1, 2, 1], [2, -1, 1, 0, 1, 1]], dtype=torch.float64)
UNIQUE = torch.tensor([[0, 1, 1, 2, 1, 0], [1, 0, -1, 1, 1, -2], [1, 1, 0, -1, 0, 2]], dtype=torch.float64)
CROSS = torch.tensor(
    [[2, -1, 1, 1, -2, 1], [-1, 3, -1, -5, -1, -3], [-1, 1, 3, 2, -1, 1]], dtype=torch.float64
)


def random_outputs(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shared, unique = torch.randn((2, *shape), generator=generator, dtype=torch.float64)
    return shared, unique


def test_golden_values() -> None:
    assert torch.equal(block_cross(SHARED, UNIQUE), CROSS)
    expected = CROSS / CROSS.norm(dim=1, keepdim=True)
    torch.testing.assert_close(normal_of(SHARED, UNIQUE), expected, rtol=0, atol=1e-14)


def test_equals_a_slow_cross_product() -> None:
    shared, unique = random_outputs(2, 8)
    for a, b, ours in zip(
        shared.tolist(), unique.tolist(), block_cross(shared, unique).tolist(), strict=True
    ):
        expected = []
        for i in (0, 3):
            expected += [
                a[i + 1] * b[i + 2] - a[i + 2] * b[i + 1],
                a[i + 2] * b[i] - a[i] * b[i + 2],
                a[i] * b[i + 1] - a[i + 1] * b[i],
            ]
        assert ours == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("dim", [3, 8, 512])
def test_is_a_unit_vector_at_right_angles_to_both(dim: int) -> None:
    shared, unique = random_outputs(5, dim)
    normal, used = normal_of(shared, unique), dim - dim % 3
    assert normal.shape == (5, used)
    torch.testing.assert_close(normal.norm(dim=1), torch.ones(5, dtype=torch.float64), rtol=0, atol=1e-12)
    for output in (shared, unique):
        assert float((normal * output[:, :used]).sum(dim=1).abs().max()) < 1e-12


def test_the_last_numbers_that_make_no_triple_are_not_used() -> None:
    shared, unique = random_outputs(4, 8)
    torch.testing.assert_close(
        block_cross(shared, unique), block_cross(shared[:, :6], unique[:, :6]), rtol=0, atol=0
    )


def test_length_does_not_matter_and_order_flips_the_sign() -> None:
    shared, unique = random_outputs(4, 9)
    normal = normal_of(shared, unique)
    torch.testing.assert_close(normal_of(1e-3 * shared, 1e4 * unique), normal, rtol=0, atol=1e-12)
    torch.testing.assert_close(normal_of(unique, shared), -normal, rtol=0, atol=1e-12)


def test_gradient_is_right() -> None:
    shared, unique = random_outputs(3, 7)
    assert torch.autograd.gradcheck(normal_of, (shared.requires_grad_(), unique.requires_grad_()))


@pytest.mark.parametrize("factor", [1.0, -1.0, 3.7, 1e-3, 0.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parallel_outputs_have_almost_no_normal_and_a_finite_gradient(
    factor: float, dtype: torch.dtype
) -> None:
    shared, _ = (output.to(dtype) for output in random_outputs(4, 512))
    unique = (factor * shared).requires_grad_()
    normal = normal_of(shared.requires_grad_(), unique)
    assert float(normal.detach().norm(dim=1).max()) < 0.1
    torch.autograd.backward(normal.sum())
    for output in (shared, unique):
        assert output.grad is not None
        assert torch.isfinite(output.grad).all()


def test_outputs_in_half_precision_are_taken_in_full() -> None:
    shared, unique = (output.bfloat16() for output in random_outputs(4, 9))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        normal = normal_of(shared, unique)
    assert normal.dtype == torch.float32
    torch.testing.assert_close(normal, normal_of(shared.float(), unique.float()), rtol=0, atol=0)


def test_a_number_that_is_none_is_not_hidden() -> None:
    shared, unique = random_outputs(2, 6)
    shared[0, 0] = math.nan
    assert not torch.isfinite(normal_of(shared, unique)[0]).any()
