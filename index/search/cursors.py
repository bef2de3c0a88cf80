"""Cursors: where the next page begins, tied to the generation, the query and the rest of the request.

A cursor carries the query's vector: an encoder may give the same text a vector that differs in its last bits
from one batch to the next, and pages of two slightly different queries could repeat or miss an image. Where
an order is made again for each page, it also carries the keys of all hits before: some 2 bytes each.
"""

import base64
import binascii
import hashlib
import math
import struct
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from index.errors import CursorError
from index.vectors.protocol import After, Keys, Vectors

_VERSION: Final = 3
_HEADER: Final = struct.Struct("<B16sIfqqbI")
_CHECK_BYTES: Final = 8
_DAMAGED: Final = "The cursor is damaged: send it exactly as it was given."
# Places of orders that are made again from the top, and so the most keys in a cursor.
MAX_RANKED: Final = 10_000
# No collection has as many hits.
_MAX_RANK: Final = 2**31
# Far above what batching changes in a vector of length one, far below the distance of two queries.
_SAME_QUERY: Final = 1e-2
# The weights of a composed query follow a sample of the collection, which grows.
_SAME_COMPOSED: Final = 0.1


@dataclass(frozen=True)
class Binding:
    """Parts of a search that all of its pages share."""

    generation: str
    request: str
    composed: bool = False

    @cached_property
    def digest(self) -> bytes:
        """Digest of 16 bytes."""
        return hashlib.blake2b(f"{self.generation}\0{self.request}".encode(), digest_size=16).digest()


class PagePosition(NamedTuple):
    """Start of a page, and the state of the pages before it.

    Attributes:
        after: The last hit of the page before.
        sequence: The collection's sequence number when the first page was made.
        confident: Whether the first page was confident; None if unknown.
        seen: Keys of all hits before (S,), different ones; none for the plain order.
    """

    after: After
    sequence: int
    confident: bool | None
    seen: Keys


class PageEnd(NamedTuple):
    """Content of a cursor: the search, its query (D,), and where the next page begins."""

    binding: Binding
    query: Vectors
    position: PagePosition


def encode_cursor(end: PageEnd) -> str:
    """Return the cursor of the page that begins where another ends."""
    binding, query, position = end
    after = position.after
    confident = -1 if position.confident is None else int(position.confident)
    values = (after.rank, after.score, after.key, position.sequence, confident, len(position.seen))
    content = _HEADER.pack(_VERSION, binding.digest, *values) + query.astype("<f4", copy=False).tobytes()
    if len(position.seen):
        # Steps between sorted keys are small, so that they shrink to few bytes.
        steps = np.diff(np.sort(position.seen), prepend=np.int64(0)).astype("<i8")
        content += zlib.compress(steps.tobytes())
    return base64.urlsafe_b64encode(content + _check(content)).decode().rstrip("=")


def decode_cursor(cursor: str, binding: Binding, query: Vectors) -> tuple[Vectors, PagePosition]:
    """Return the query (D,) that the first page was answered for, and where the next page begins.

    Raises:
        CursorError: The cursor is damaged, or belongs to another search or generation.
    """
    try:
        content = base64.b64decode(cursor.encode() + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise CursorError(_DAMAGED) from error
    content, check = content[:-_CHECK_BYTES], content[-_CHECK_BYTES:]
    if len(content) < _HEADER.size or check != _check(content):
        raise CursorError(_DAMAGED)
    version, digest, rank, score, key, sequence, confident, count = _HEADER.unpack_from(content)
    if version != _VERSION or digest != binding.digest:
        raise CursorError(
            "The cursor belongs to another request or to an index that has been replaced: "
            "keep all but limit the same from page to page, or search again without a cursor."
        )
    end = _HEADER.size + 4 * len(query)
    if len(content) < end:
        raise CursorError(_DAMAGED)
    vector: Vectors = np.frombuffer(content[_HEADER.size : end], dtype="<f4").astype(np.float32)
    # Anybody can make a cursor, and no number is greater or less than NaN.
    if not (math.isfinite(score) and sequence >= 0 and rank < _MAX_RANK and np.isfinite(vector).all()):
        raise CursorError(_DAMAGED)
    farthest = _SAME_COMPOSED if binding.composed else _SAME_QUERY
    if float(np.linalg.norm(vector - query)) > farthest:
        raise CursorError("The cursor belongs to another query: search again without a cursor.")
    after = After(score=score, key=key, rank=rank)
    seen = _seen(content[end:], count)
    return vector, PagePosition(after, sequence, None if confident < 0 else bool(confident), seen)


def _seen(packed: bytes, count: int) -> Keys:
    if not count:
        return np.empty(0, dtype=np.int64)
    damaged = CursorError(_DAMAGED)
    # Anybody can make a cursor that would unpack to gigabytes.
    if count > MAX_RANKED:
        raise damaged
    try:
        steps = np.frombuffer(zlib.decompressobj().decompress(packed, 8 * count), dtype="<i8")
    except (zlib.error, ValueError) as error:
        raise damaged from error
    if len(steps) != count:
        raise damaged
    seen: Keys = np.cumsum(steps, dtype=np.int64)
    return seen


def _check(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_CHECK_BYTES).digest()
