import numpy as np
import pytest

from training.evaluation.similarity import Vectors, as_blades, inner_products, similarity


def unit_vectors(rows: int, seed: int) -> Vectors:
    vectors = np.random.default_rng(seed).normal(size=(rows, 6)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def test_vectors_without_a_sign_are_compared_by_the_absolute_cosine() -> None:
    images, texts = unit_vectors(5, 0), unit_vectors(7, 1)
    signed = similarity(as_blades(images, 1), as_blades(texts, 1))
    unsigned = similarity(as_blades(images, 1, unsigned=True), as_blades(texts, 1, unsigned=True))
    assert signed.min() < 0
    np.testing.assert_array_equal(unsigned, np.abs(signed))
    np.testing.assert_array_equal(signed, images @ texts.T)


def test_what_a_probe_reads_is_an_inner_product() -> None:
    vectors = unit_vectors(40, 2)
    lines = as_blades(vectors, 1, unsigned=True)
    flat = np.einsum("ni,nj->nij", vectors, vectors).reshape(40, -1)
    np.testing.assert_allclose(inner_products(lines, lines), flat @ flat.T, atol=1e-6)
    # |cosine| itself is none.
    assert np.linalg.eigvalsh(similarity(lines, lines)).min() < -0.1
    np.testing.assert_array_equal(
        inner_products(vectors, vectors), similarity(vectors, vectors).astype(np.float64)
    )


@pytest.mark.parametrize(
    ("blades", "unsigned", "shape"),
    [(1, False, (6,)), (2, False, (2, 3)), (3, False, (3, 2)), (1, True, (1, 6))],
)
@pytest.mark.parametrize("rows", [0, 4])
def test_the_shape_tells_the_kind_even_of_no_vectors(
    blades: int, unsigned: bool, shape: tuple[int, ...], rows: int
) -> None:
    shaped = as_blades(unit_vectors(rows, 0), blades, unsigned=unsigned)
    assert shaped.shape == (rows, *shape)
    assert similarity(shaped, shaped).shape == (rows, rows)
