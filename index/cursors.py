"""Cursors: where the next page begins, tied to the generation, the query and the filter.

A cursor carries the query's vector: an encoder may give the same text a vector that differs in its last bits
from one batch to the next, and pages of two slightly different queries could repeat or miss an image.
"""

import base64
import binascii
import hashlib
import struct
from dataclasses import dataclass
from typing import Final

import numpy as np

from index.errors import CursorError
from index.vectors.protocol import After, Vectors

_VERSION: Final = 1
_HEADER: Final = struct.Struct("<B16sIfq")
_CHECK_BYTES: Final = 8
# Far above what batching changes in a vector of length one, far below the distance of two queries.
_SAME_QUERY: Final = 1e-2


@dataclass(frozen=True, slots=True)
class Binding:
    """What must be the same for all pages of one search."""

    generation: str
    filter: str
    excluded: tuple[str, ...]

    def digest(self) -> bytes:
        """Return 16 bytes that stand for it."""
        parts = [self.generation, self.filter, *self.excluded]
        content = b"".join(len(part.encode()).to_bytes(4, "little") + part.encode() for part in parts)
        return hashlib.blake2b(content, digest_size=16).digest()


def encode_cursor(binding: Binding, query: Vectors, after: After) -> str:
    """Return the cursor of the page behind `after`."""
    header = _HEADER.pack(_VERSION, binding.digest(), after.rank, after.score, after.key)
    content = header + query.astype("<f4").tobytes()
    return base64.urlsafe_b64encode(content + _check(content)).rstrip(b"=").decode()


def decode_cursor(cursor: str, binding: Binding, query: Vectors) -> tuple[Vectors, After]:
    """Return the query (D,) that the first page was answered for, and where the next page begins.

    Raises:
        CursorError: The cursor is damaged, or belongs to another search or generation.
    """
    try:
        content = base64.b64decode(cursor.encode() + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise CursorError("The cursor is damaged: send it exactly as it was given.") from error
    content, check = content[:-_CHECK_BYTES], content[-_CHECK_BYTES:]
    if len(content) < _HEADER.size or check != _check(content):
        raise CursorError("The cursor is damaged: send it exactly as it was given.")
    version, digest, rank, score, key = _HEADER.unpack_from(content)
    if version != _VERSION or digest != binding.digest():
        raise CursorError(
            "The cursor belongs to another filter or to an index that has been replaced: "
            "search again without a cursor."
        )
    vector: Vectors = np.frombuffer(content, dtype="<f4", offset=_HEADER.size).astype(np.float32)
    if vector.shape != query.shape or float(np.linalg.norm(vector - query)) > _SAME_QUERY:
        raise CursorError("The cursor belongs to another query: search again without a cursor.")
    return vector, After(score=score, key=key, rank=rank)


def _check(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_CHECK_BYTES).digest()
