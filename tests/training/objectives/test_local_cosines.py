import torch
from torch.nn.functional import normalize

from tests.training.objectives.local_reference import random_entries, slow_cosine
from training.objectives.local_cosines import local_cosines, self_cosines

A = random_entries((4, 4), seed=1).values
B = random_entries((3, 3), seed=2).values


def test_equals_the_cosine_of_each_pair() -> None:
    found = local_cosines(A, B)
    assert found.shape == (2, 4, 3)
    for sample in range(2):
        for k in range(4):
            for m in range(3):
                expected = slow_cosine(A[sample, k], B[sample, m])
                assert abs(float(found[sample, k, m]) - expected) < 1e-14


def test_of_entries_with_themselves_is_the_same_and_so_is_the_gradient() -> None:
    probe = torch.randn(2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    one, two = A.clone().requires_grad_(), A.clone().requires_grad_()
    torch.testing.assert_close(self_cosines(one), local_cosines(two, two), rtol=0, atol=1e-14)
    torch.autograd.backward((self_cosines(one) * probe).sum())
    torch.autograd.backward((local_cosines(two, two) * probe).sum())
    assert one.grad is not None
    assert two.grad is not None
    torch.testing.assert_close(one.grad, two.grad, rtol=0, atol=1e-13)


def test_gradients_are_right() -> None:
    a, b = A.clone().requires_grad_(), B.clone().requires_grad_()
    assert torch.autograd.gradcheck(local_cosines, (a, b))
    assert torch.autograd.gradcheck(self_cosines, (a,))


def test_zero_vectors_have_cosine_zero_and_a_finite_gradient() -> None:
    a = A.clone()
    a[0, 1] = 0
    a.requires_grad_()
    found = local_cosines(a, B)
    assert not found[0, 1].any()
    assert not self_cosines(a)[0, 1].any()
    torch.autograd.backward(found.sum() + self_cosines(a).sum())
    assert a.grad is not None
    assert torch.isfinite(a.grad).all()


def test_float32_is_as_exact_as_normalising_first() -> None:
    a = torch.randn(8, 49, 512, generator=torch.Generator().manual_seed(0)) * 100
    unit = normalize(a.double(), dim=2)
    exact = unit @ unit.mT
    assert (self_cosines(a) - exact).abs().max() < 1e-6
