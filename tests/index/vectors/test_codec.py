import numpy as np
import pytest

from index.vectors.codec import decode_vectors, encode_vectors, widened
from tests.index.samples import unit_vectors


def test_vectors_come_back_of_length_one_and_close() -> None:
    vectors = unit_vectors(40, 512)
    values = encode_vectors(vectors)
    assert [len(value) for value in values] == [1024] * 40
    again = decode_vectors(values, 512)
    assert again.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(again, axis=1), 1, atol=1e-6)
    assert (again * vectors).sum(axis=1).min() > 1 - 1e-6


def test_golden_bytes() -> None:
    assert encode_vectors(np.array([[1.0, -2.0, 0.5]], dtype=np.float32)) == [b"\x00\x3c\x00\xc0\x00\x38"]


def test_zero_stays_zero() -> None:
    assert decode_vectors(encode_vectors(np.zeros((1, 3), np.float32)), 3).tolist() == [[0, 0, 0]]


def test_a_value_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="does not have 3 numbers"):
        decode_vectors([b"\0" * 6, b"\0" * 4], 3)


def test_nothing_gives_nothing() -> None:
    assert decode_vectors([], 3).shape == (0, 3)


def test_every_finite_number_is_widened_to_itself() -> None:
    numbers = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = numbers[np.isfinite(numbers)].reshape(-1, 2)
    # With their signs, zero's too.
    np.testing.assert_array_equal(widened(finite).view(np.uint32), finite.astype(np.float32).view(np.uint32))
    assert widened(finite[:0]).shape == (0, 2)
