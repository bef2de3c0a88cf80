"""float16 rows in the memory of one of FAISS's indexes."""

import os
from typing import IO, Any

import faiss
import numpy as np
from numpy.typing import NDArray

from index.vectors.id_map import Rows
from index.vectors.protocol import Vectors

Float16Array = NDArray[np.float16]
# Inner products (N,) and the rows (N,) that have them.
Found = tuple[Vectors, Rows]


def zero_index(dim: int, count: int = 0) -> Any:
    """Return FAISS's index of float16 rows, all of them zero."""
    index = faiss.IndexScalarQuantizer(dim, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
    resize(index, count)
    return index


def memory_of(index: Any) -> Float16Array:
    """Return FAISS's own memory of the rows (N, D), not a copy; it is another after each change."""
    if not index.ntotal:
        return np.empty((0, index.d), dtype="<f2")
    stored: Float16Array = (
        faiss.rev_swig_ptr(index.codes.data(), index.codes.size()).view("<f2").reshape(index.ntotal, index.d)
    )
    return stored


def resize(index: Any, count: int) -> None:
    """Set the number of rows of FAISS's index; new rows are zero."""
    index.codes.resize(count * index.d * 2)
    index.ntotal = count


def best_of_parts(found: list[Found], count: int) -> Found:
    """Return the `count` best of what parts have found, in no order."""
    if not found:
        return np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int64)
    scores, rows = (np.concatenate(part) for part in zip(*found, strict=True))
    if len(rows) <= count:
        return scores, rows
    chosen = np.argpartition(-scores, count - 1)[:count]
    return scores[chosen], rows[chosen]


def write_header(file: IO[bytes], count: int, dim: int) -> None:
    """Begin a file of `count` rows."""
    header = {"descr": "<f2", "fortran_order": False, "shape": (count, dim)}
    np.lib.format.write_array_header_1_0(file, header)


def read_count(file: IO[bytes], dim: int) -> int:
    """Return how many rows follow in a file.

    Raises:
        ValueError: The file does not hold float16 rows of this dimension.
    """
    np.lib.format.read_magic(file)
    shape, by_column, dtype = np.lib.format.read_array_header_1_0(file)
    held = os.fstat(file.fileno()).st_size - file.tell()
    if by_column or dtype != "<f2" or shape[1:] != (dim,) or held != shape[0] * dim * dtype.itemsize:
        raise ValueError("the file holds no float16 rows of this dimension")
    return int(shape[0])
