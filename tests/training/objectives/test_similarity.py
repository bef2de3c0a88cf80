import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.training.objectives.reference import C, U, V, random_embeddings
from training.objectives.similarity import cosine_matrix


def test_golden_matrix() -> None:
    torch.testing.assert_close(cosine_matrix(U, V), C, rtol=0, atol=1e-11)


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_length_of_a_row_does_not_matter(first: float, second: float) -> None:
    scale = torch.tensor([first, second, 1.0], dtype=torch.float64)[:, None]
    torch.testing.assert_close(cosine_matrix(U * scale, V), cosine_matrix(U, V), rtol=1e-9, atol=1e-12)


def test_zero_row_has_cosine_zero_and_a_finite_gradient() -> None:
    image, text = random_embeddings(3)
    image[1] = 0
    image.requires_grad_()
    cosines = cosine_matrix(image, text)
    assert torch.equal(cosines[1], torch.zeros(3, dtype=torch.float64))
    torch.autograd.backward(cosines.sum())
    assert image.grad is not None
    assert torch.isfinite(image.grad).all()


def test_is_float32_inside_autocast_and_for_half_inputs() -> None:
    image, text = (batch.float() for batch in random_embeddings(16, 64))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = cosine_matrix(image, text)
    assert inside.dtype == torch.float32
    torch.testing.assert_close(inside, cosine_matrix(image, text), rtol=0, atol=0)
    assert cosine_matrix(image.bfloat16(), text.bfloat16()).dtype == torch.float32


def test_gradient_is_right() -> None:
    image, text = random_embeddings(3)
    assert torch.autograd.gradcheck(cosine_matrix, (image.requires_grad_(), text.requires_grad_()))
