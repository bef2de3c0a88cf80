import torch

from tests.training.objectives.local_reference import plain_cosines, random_entries, slow_cosine
from training.objectives.local_cosines import over_norms, self_cosines

A = random_entries((4, 4), seed=1).values


def test_equals_the_cosine_of_each_pair() -> None:
    found = self_cosines(A)
    assert found.shape == (2, 4, 4)
    for sample in range(2):
        for k in range(4):
            for m in range(4):
                assert abs(float(found[sample, k, m]) - slow_cosine(A[sample, k], A[sample, m])) < 1e-14


def test_gradient_is_that_of_both_sides() -> None:
    probe = torch.randn(2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    one, two = A.clone().requires_grad_(), A.clone().requires_grad_()
    torch.autograd.backward((self_cosines(one) * probe).sum())
    torch.autograd.backward((plain_cosines(two, two) * probe).sum())
    assert one.grad is not None
    assert two.grad is not None
    torch.testing.assert_close(one.grad, two.grad, rtol=0, atol=1e-13)
    assert torch.autograd.gradcheck(self_cosines, (A.clone().requires_grad_(),))


def test_zero_vectors_have_cosine_zero_and_a_finite_gradient() -> None:
    a = A.clone()
    a[0, 1] = 0
    a.requires_grad_()
    found = self_cosines(a)
    assert not found[0, 1].any()
    torch.autograd.backward(found.sum())
    assert a.grad is not None
    assert torch.isfinite(a.grad).all()


def test_products_over_norms_of_rows_and_columns() -> None:
    products = torch.tensor([[[6.0, 0.0, 1.0], [0.0, 20.0, 0.0]]], dtype=torch.float64)
    squares = torch.tensor([[4.0, 25.0]], dtype=torch.float64), torch.tensor([[9.0, 16.0, 0.0]]).double()
    expected = torch.tensor([[[1.0, 0.0, 5e6], [0.0, 1.0, 0.0]]], dtype=torch.float64)
    torch.testing.assert_close(over_norms(products, *squares), expected)


def test_float32_is_as_exact_as_normalising_first() -> None:
    a = torch.randn(8, 49, 512, generator=torch.Generator().manual_seed(0)) * 100
    exact = plain_cosines(a.double(), a.double())
    assert (self_cosines(a) - exact).abs().max() < 1e-6
