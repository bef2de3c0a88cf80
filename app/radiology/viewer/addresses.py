"""Addresses of the archive in its JSON, which lead to the service instead."""

import re
from typing import Final

# The beginning of a string, up to the path below the root of DICOMweb.
_ADDRESS: Final = re.compile(rb'"https?://[^"\s]{1,500}?/(?=studies/[0-9.]{1,64})')
# Longer than the beginning of any such string.
_HELD: Final = 1024


class AddressRewriter:
    """Rewrites JSON piece by piece.

    Args:
        root: Address of the service that stands for the archive's root, with a slash at its end.
    """

    def __init__(self, root: str) -> None:
        self._replacement = b'"' + root.encode()
        self._rest = b""

    def feed(self, piece: bytes) -> bytes:
        """Take a piece; return what can be sent. The beginning of a string is kept for the next piece."""
        content = self._rest + piece
        quote = content.rfind(b'"', max(0, len(content) - _HELD))
        end = len(content) if quote < 0 else quote
        self._rest = content[end:]
        return _ADDRESS.sub(lambda _: self._replacement, content[:end])

    def close(self) -> bytes:
        """Return the rest."""
        rest, self._rest = self._rest, b""
        return _ADDRESS.sub(lambda _: self._replacement, rest)
