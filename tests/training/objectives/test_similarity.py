"""Cosines of two batches in full precision, and their means over pairs."""

import torch

from tests.training.objectives.reference import C, U, V, mask_of, random_embeddings
from training.objectives.similarity import Similarities, cosine_matrix, similarity_matrix


def test_golden_matrix_whatever_the_length_of_the_rows() -> None:
    torch.testing.assert_close(cosine_matrix(U, V), C, rtol=0, atol=1e-11)
    scale = torch.tensor([[1e-3], [1e3], [7]], dtype=torch.float64)
    torch.testing.assert_close(cosine_matrix(U * scale, V / scale), C, rtol=0, atol=1e-11)


def test_blades_are_compared_by_their_determinants() -> None:
    """`tests/training/models/heads/test_blades.py` has more of these."""
    first, second = torch.stack([U, V.roll(1, 0)], dim=1), torch.stack([V, U.roll(1, 0)], dim=1)
    expected = torch.tensor([0.516397779494, 0.946729262406, -0.489897948557], dtype=torch.float64)
    torch.testing.assert_close(similarity_matrix(first, second)[0], expected, rtol=0, atol=1e-11)
    torch.testing.assert_close(similarity_matrix(U, V), C, rtol=0, atol=1e-11)


def test_zero_row_has_cosine_zero_and_a_finite_gradient() -> None:
    image, text = random_embeddings(3)
    image[1] = 0
    cosines = cosine_matrix(image.requires_grad_(), text)
    assert not cosines[1].any()
    torch.autograd.backward(cosines.sum())
    assert image.grad is not None
    assert image.grad.isfinite().all()


def test_means_are_of_partners_and_of_pairs_that_do_not_match() -> None:
    terms = Similarities.of_square(C, mask_of(3, (0, 1), (2, 0))).mean_terms()
    torch.testing.assert_close(terms["positive_similarity"], (C[0, 0] + C[1, 1] + C[2, 2]) / 3)
    expected = (C[0, 2] + C[1, 0] + C[1, 2] + C[2, 1]) / 4
    torch.testing.assert_close(terms["negative_similarity"], expected)
    assert Similarities.of_square(C[:1, :1]).mean_terms()["negative_similarity"] == 0
