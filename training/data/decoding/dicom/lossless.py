"""Lossless JPEG, checked and written anew: GDCM ends the whole process at some damaged streams.

Each part is judged by ITU-T T.81 (sections B.2 and H.1). The stream ends with its marker, so that the decoder
never waits for more bytes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from training.data.decoding.dicom.codestreams import Codestream
from training.errors import ImageError

_START: Final = b"\xff\xd8"
_END: Final = b"\xff\xd9"
_HUFFMAN: Final = 0xC4
_FRAME: Final = 0xC3
_RESTART: Final = 0xDD
_SCAN: Final = 0xDA
# Segments of applications, quantization tables and comments, which a lossless frame does not need.
_LEFT_OUT: Final = frozenset({0xDB, *range(0xE0, 0xF0), 0xFE})
_MOST_SEGMENTS: Final = 2_000
_CATEGORIES: Final = 16
_LENGTHS: Final = 16
_TABLES: Final = 4
_PRECISIONS: Final = range(2, 17)
_PREDICTORS: Final = range(1, 8)
# All markers but stuffed bytes and restarts.
_MARKER: Final = re.compile(rb"\xff[^\x00\xd0-\xd7]")


def rewrite_lossless(frame: bytes, header: Codestream) -> bytes:
    """Return a frame without the segments that do not decide its pixels.

    Args:
        frame: The stream.
        header: Header of the stream.

    Raises:
        ImageError: A part of it is damaged or missing, or it is of a form that no program writes.
    """
    stream = _Stream(header)
    parts = [_START, *stream.parts(frame), _END]
    if sorted(stream.scanned) != sorted(stream.components):
        raise _damaged("not every colour has a scan")
    return b"".join(parts)


@dataclass(slots=True)
class _Stream:
    """State of the stream up to a segment.

    Attributes:
        header: Header of the stream.
        components: Numbers of the components, by the frame header.
        tables: Numbers of the Huffman tables.
        scanned: Components that have a scan.
    """

    header: Codestream
    components: list[int] = field(default_factory=list)
    tables: set[int] = field(default_factory=set)
    scanned: list[int] = field(default_factory=list)

    def parts(self, frame: bytes) -> Iterator[bytes]:
        """Yield the segments that are kept, each with its marker, and the coded samples behind a scan's."""
        place = len(_START)
        for _ in range(_MOST_SEGMENTS):
            marker, length = frame[place : place + 2], int.from_bytes(frame[place + 2 : place + 4])
            if marker == _END:
                return
            if marker == b"\xff\xff":
                place += 1
                continue
            segment = frame[place + 4 : place + 2 + length]
            if len(marker) < 2 or marker[0] != 0xFF or len(segment) != length - 2:
                raise _damaged("a segment is cut, or its end is missing")
            if self._keeps(marker[1], segment):
                yield frame[place : place + 2 + length]
            place += 2 + length
            if marker[1] == _SCAN:
                found = _MARKER.search(frame, place)
                if found is None:
                    raise _damaged("its end is missing")
                yield frame[place : found.start()]
                place = found.start()
        raise _damaged(f"it has over {_MOST_SEGMENTS:,} segments")

    def _keeps(self, marker: int, segment: bytes) -> bool:
        """Judge a segment, and tell whether it decides pixels."""
        if marker in _LEFT_OUT:
            return False
        if marker == _HUFFMAN:
            self._read_tables(segment)
        elif marker == _FRAME and not self.components:
            self._read_frame(segment)
        elif marker == _SCAN and self.components:
            self._read_scan(segment)
        elif marker == _RESTART and len(segment) == 2:
            if int.from_bytes(segment) % self.header.width:
                raise _damaged("it restarts within a row")
        else:
            raise _damaged(f"it has a segment FF{marker:02X} where none belongs")
        return True

    def _read_tables(self, segment: bytes) -> None:
        place = 0
        while place < len(segment):
            number, counts = segment[place], segment[place + 1 : place + 1 + _LENGTHS]
            symbols = segment[place + 1 + _LENGTHS : place + 1 + _LENGTHS + sum(counts)]
            codes = sum(count << _LENGTHS - length for length, count in enumerate(counts, 1))
            full = codes > 1 << _LENGTHS
            if number >= _TABLES or len(counts) < _LENGTHS or len(symbols) != sum(counts) or full:
                raise _damaged("a Huffman table is none")
            if not symbols or max(symbols) > _CATEGORIES or len(set(symbols)) != len(symbols):
                raise _damaged("a Huffman table is none")
            self.tables.add(number)
            place += 1 + _LENGTHS + len(symbols)

    def _read_frame(self, segment: bytes) -> None:
        # Height, width and the number of components were read already.
        if self.header.precision not in _PRECISIONS:
            raise _damaged(f"has {self.header.precision} bits a sample")
        components = segment[6:]
        self.components = list(components[::3])
        sampled = all(components[place + 1 : place + 2] == b"\x11" for place in range(0, len(components), 3))
        count = self.header.components
        if len(components) != 3 * count or len(set(self.components)) != count or not sampled:
            raise _damaged("its colours are of several sizes")

    def _read_scan(self, segment: bytes) -> None:
        count = segment[0] if segment else 0
        if len(segment) != 4 + 2 * count or not count:
            raise _damaged("a scan has no header")
        numbers, tables = segment[1 : 1 + 2 * count : 2], segment[2 : 2 + 2 * count : 2]
        predictor, end, point = segment[-3:]
        if not set(numbers) <= set(self.components) - set(self.scanned) or len(set(numbers)) != count:
            raise _damaged("a scan has colours that the frame has not")
        if not {table >> 4 for table in tables} <= self.tables:
            raise _damaged("a scan has no Huffman table")
        if predictor not in _PREDICTORS or end or point >= self.header.precision:
            raise _damaged("a scan has no predictor")
        self.scanned += numbers


def _damaged(reason: str) -> ImageError:
    return ImageError(f"The DICOM image is damaged: its frame is lossless JPEG, and {reason}.")
