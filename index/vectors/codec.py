"""Vectors as the catalogue keeps them: float16, little-endian."""

from collections.abc import Sequence

import numpy as np

from index.vectors.protocol import Vectors


def encode_vectors(vectors: Vectors) -> list[bytes]:
    """Turn vectors (N, D) into one value for each row."""
    return [vector.tobytes() for vector in vectors.astype("<f2")]


def decode_vectors(values: Sequence[bytes], dim: int) -> Vectors:
    """Turn stored values into vectors (N, D), made exactly of length one again after the rounding.

    Raises:
        ValueError: A value is not `dim` numbers long.
    """
    return unit(rounded_vectors(values, dim))


def rounded_vectors(values: Sequence[bytes], dim: int) -> Vectors:
    """Turn stored values into vectors (N, D) as they were rounded, so of length one but for the rounding.

    Raises:
        ValueError: A value is not `dim` numbers long.
    """
    if any(len(value) != 2 * dim for value in values):
        raise ValueError(f"a stored vector does not have {dim} numbers")
    stored = np.frombuffer(b"".join(values), dtype="<f2").reshape(len(values), dim)
    return stored.astype(np.float32)


def unit(vectors: Vectors) -> Vectors:
    """Make vectors (N, D) of length one, in place; zero stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True).astype(np.float32)
    lengths[lengths == 0] = 1
    vectors /= lengths
    return vectors
