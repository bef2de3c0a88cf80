import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.training.objectives.reference import U, V
from training.models import blades
from training.models.blades import blade_cosines, orthonormal
from training.objectives.similarity import cosine_matrix

SIZES = [1, 2, 3, 4, 5]


def random_blades(k: int, count: int = 6, dim: int = 12, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    u, v = torch.randn((2, count, k, dim), generator=generator, dtype=torch.float64)
    return u, v


def by_determinants(u: Tensor, v: Tensor) -> Tensor:
    """The formula as the supplement has it, pair by pair."""
    u, v = u.detach().double(), v.detach().double()
    size_u, size_v = torch.linalg.det(u @ u.mT), torch.linalg.det(v @ v.mT)
    rows = [
        [
            float(torch.linalg.det(a @ b.T) / (size_a * size_b).sqrt())
            for b, size_b in zip(v, size_v, strict=True)
        ]
        for a, size_a in zip(u, size_u, strict=True)
    ]
    return torch.tensor(rows, dtype=torch.float64)


def test_golden_values() -> None:
    u = torch.stack([U, V.roll(1, 0)], dim=1)
    v = torch.stack([V, U.roll(1, 0)], dim=1)
    cosines = blade_cosines(u, v)
    expected = torch.tensor([0.516397779494, 0.946729262406, -0.489897948557], dtype=torch.float64)
    torch.testing.assert_close(cosines[0], expected, rtol=0, atol=1e-11)
    assert float(cosines[2, 2]) == pytest.approx(0.64, abs=1e-11)


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_quotient_of_determinants(k: int, dtype: torch.dtype) -> None:
    u, v = (part.to(dtype) for part in random_blades(k))
    cosines = blade_cosines(u, v[:4])
    assert cosines.dtype == dtype
    torch.testing.assert_close(cosines.double(), by_determinants(u, v[:4]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_is_exact_for_blades_that_resemble_each_other(k: int) -> None:
    u, noise = random_blades(k, dim=512)
    v = u + 0.1 * noise
    expected = by_determinants(u.float(), v.float())
    assert float(expected.diagonal().min()) > 0.9
    torch.testing.assert_close(blade_cosines(u.float(), v.float()).double(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("angle", [1e-1, 1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_is_exact_for_vectors_that_are_nearly_parallel(angle: float, dtype: torch.dtype) -> None:
    u, v = random_blades(3)
    u[:, 2] = u[:, 0] + angle * u[:, 2]
    u, v = u.to(dtype), v.to(dtype)
    torch.testing.assert_close(blade_cosines(u, v).double(), by_determinants(u, v), rtol=0, atol=1e-6)


def test_a_blade_of_one_vector_is_that_vector() -> None:
    torch.testing.assert_close(
        blade_cosines(U.unsqueeze(1), V.unsqueeze(1)), cosine_matrix(U, V), rtol=0, atol=1e-14
    )
    zero = torch.zeros((1, 1, 4))
    assert not blade_cosines(zero, V.float().unsqueeze(1)).any()


@given(k=st.integers(1, 4), seed=st.integers(0, 2**32 - 1), size=st.floats(1e-3, 1e3))
def test_mixing_with_positive_determinant_changes_nothing(k: int, seed: int, size: float) -> None:
    u, v = random_blades(k)
    generator = torch.Generator().manual_seed(seed)
    rotation, _ = torch.linalg.qr(torch.randn((k, k), generator=generator, dtype=torch.float64))
    shear = torch.eye(k, dtype=torch.float64) + torch.randn((k, k), generator=generator).double().triu(1)
    mixing = size * rotation @ shear
    sign = float(torch.linalg.det(mixing).sign())
    torch.testing.assert_close(blade_cosines(mixing @ u, v), sign * blade_cosines(u, v), rtol=0, atol=1e-8)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_gradient_is_right(k: int) -> None:
    u, v = random_blades(k, count=2, dim=5)
    assert torch.autograd.gradcheck(blade_cosines, (u.requires_grad_(), v.requires_grad_()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("factor", [0.0, 1.0, -0.37, 1e6, 1e-6])
def test_parallel_vectors_have_cosine_0_and_a_finite_gradient(
    k: int, factor: float, dtype: torch.dtype
) -> None:
    u, v = (part.to(dtype) for part in random_blades(k))
    u[0, 1] = factor * u[0, 0]
    u[1, k - 1] = factor * u[1, 0]
    u[2] = factor * u[2, :1]
    v[0] = 0
    v[1, 0] = factor * v[1, k - 1]
    u.requires_grad_()
    v.requires_grad_()
    cosines = blade_cosines(u, v)
    torch.autograd.backward(cosines.square().sum() + cosines.sum())
    assert float(cosines[:3].detach().abs().max()) < 0.1
    assert float(cosines[:, :2].detach().abs().max()) < 0.1
    torch.testing.assert_close(
        cosines[3:, 2:].detach().double(), by_determinants(u[3:], v[2:]), rtol=0, atol=1e-6
    )
    for blade in (u, v):
        assert blade.grad is not None
        assert torch.isfinite(blade.grad).all()
        assert torch.isfinite(blade.grad.norm())


@pytest.mark.parametrize("k", [1, 3])
def test_large_batches_are_taken_in_pieces_with_the_same_result(
    k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def value_and_gradients() -> tuple[Tensor, Tensor, Tensor]:
        u, v = (part.requires_grad_() for part in random_blades(k, count=7))
        cosines = blade_cosines(u, v)
        first, second = torch.autograd.grad(cosines.exp().sum(), (u, v))
        return cosines.detach(), first, second

    whole = value_and_gradients()
    largest = []
    determinants = blades._determinants

    def spy(u: Tensor, v: Tensor) -> Tensor:
        largest.append(len(u))
        return determinants(u, v)

    monkeypatch.setattr(blades, "_determinants", spy)
    monkeypatch.setattr(blades, "CHUNK_ENTRIES", 2 * 7 * k**2)
    for ours, theirs in zip(value_and_gradients(), whole, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    assert largest[:4] == [2, 2, 2, 1]
    assert sum(largest) == 2 * 7
    with torch.no_grad():
        torch.testing.assert_close(blade_cosines(*random_blades(k, count=7)), whole[0], rtol=0, atol=1e-12)


def test_the_basis_is_orthonormal_and_spans_the_blade() -> None:
    u, _ = random_blades(3)
    basis = orthonormal(u)
    eye = torch.eye(3, dtype=torch.float64).expand(len(u), 3, 3)
    torch.testing.assert_close(basis @ basis.mT, eye, rtol=0, atol=1e-12)
    torch.testing.assert_close(u @ basis.mT @ basis, u, rtol=0, atol=1e-12)
    triangle = u @ basis.mT
    assert (triangle.diagonal(dim1=1, dim2=2) > 0).all()
    torch.testing.assert_close(triangle.triu(1), torch.zeros_like(triangle), rtol=0, atol=1e-12)


def test_a_number_that_is_none_is_not_hidden() -> None:
    u, v = random_blades(2)
    u[0, 1, 0] = math.nan
    assert not torch.isfinite(blade_cosines(u, v)[0]).any()
    assert torch.isfinite(blade_cosines(u, v)[1:]).all()


@pytest.mark.parametrize("shapes", [((3, 2, 4), (3, 3, 4)), ((3, 2, 4), (3, 2, 5)), ((3, 4), (3, 4))])
def test_blades_of_other_sizes_are_refused(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match="cannot be compared"):
        blade_cosines(torch.ones(shapes[0]), torch.ones(shapes[1]))
