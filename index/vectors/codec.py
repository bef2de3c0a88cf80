"""Vectors as the catalogue keeps them: float16, little-endian."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from index.vectors.protocol import Vectors

# Sign, exponent and fraction of a float16 whose bits were moved to where a float32 has them.
_FLOAT16_BITS: Final = np.int32(-0x70002000)
# Between the zero points of their exponents.
_FLOAT16_SCALE: Final = np.float32(2.0**112)
# Rows that are widened together stay in the processor's cache.
_ROWS_AT_ONCE: Final = 512


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
    if set(map(len, values)) - {2 * dim}:
        raise ValueError(f"a stored vector does not have {dim} numbers")
    stored = np.frombuffer(b"".join(values), dtype="<f2").reshape(len(values), dim)
    return stored.astype(np.float32)


def widened(halves: NDArray[np.float16]) -> Vectors:
    """Turn finite float16 numbers (N, D) into the same numbers in float32.

    NumPy's own conversion goes number by number and takes two to four times as long.
    """
    numbers = np.empty(halves.shape, dtype=np.float32)
    for start in range(0, len(halves), _ROWS_AT_ONCE):
        block = slice(start, start + _ROWS_AT_ONCE)
        bits = halves[block].view(np.int16).astype(np.int32)
        bits <<= 13
        bits &= _FLOAT16_BITS
        np.multiply(bits.view(np.float32), _FLOAT16_SCALE, out=numbers[block])
    return numbers


def unit(vectors: Vectors) -> Vectors:
    """Make vectors (N, D) of length one, in place; zero stays zero."""
    lengths = np.sqrt(np.vecdot(vectors, vectors))
    if not lengths.all():
        lengths[lengths == 0] = 1
    vectors /= lengths[:, None]
    return vectors
