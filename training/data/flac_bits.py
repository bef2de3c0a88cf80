"""Reading the bits of a FLAC file: numbers, runs of numbers and Rice codes."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from training.errors import AudioError

_LONGEST_PARTITION = 1 << 22


class BitReader:
    """Reads bits from the highest of the first byte on; it never reads beyond the end."""

    def __init__(self, content: bytes, start: int) -> None:
        self._content = content
        self._position = 8 * start
        self._end = 8 * len(content)

    @property
    def at_end(self) -> bool:
        """Whether nothing is left."""
        return self._position >= self._end

    @property
    def byte_position(self) -> int:
        """The byte that the next bit is in."""
        return self._position // 8

    def align(self) -> None:
        """Go on to the next whole byte."""
        self._position += -self._position % 8

    def skip(self, bits: int) -> None:
        """Pass over bits."""
        self._require(bits)
        self._position += bits

    def read(self, bits: int) -> int:
        """A number without sign."""
        self._require(bits)
        end = self._position + bits
        whole = int.from_bytes(self._content[self._position // 8 : (end + 7) // 8], "big")
        self._position = end
        return whole >> (-end % 8) & (1 << bits) - 1

    def read_signed(self, bits: int) -> int:
        """A number in two's complement."""
        value = self.read(bits)
        return value - (1 << bits) if bits and value >> (bits - 1) else value

    def read_unary(self, most: int) -> int:
        """The number of zeros before the next one; `most` when there are as many or more."""
        count = 0
        while count < most and not self.read(1):
            count += 1
        return count

    def read_array(self, count: int, bits: int) -> NDArray[np.int64]:
        """Numbers (count,) in two's complement, all of the same width."""
        if bits == 0:
            return np.zeros(count, dtype=np.int64)
        self._require(count * bits)
        values = self._window(count * bits).reshape(count, bits).astype(np.int64) @ _powers(bits)
        self._position += count * bits
        return np.where(values >> (bits - 1) == 1, values - (1 << bits), values)

    def read_rice(self, count: int, parameter: int) -> NDArray[np.int64]:
        """Residuals (count,), a quotient in unary and a remainder of `parameter` bits each (RFC 9639)."""
        most = min(self._end - self._position, _LONGEST_PARTITION)
        length = count * (parameter + 3) + 64
        while True:
            window = self._window(min(length, most))
            ends = _ends(window, count, parameter)
            if ends is not None:
                break
            if length >= most:
                raise AudioError("The FLAC file is damaged: it ends too early.")
            length *= 4
        starts = np.concatenate([[0], ends[:-1] + 1 + parameter]) if count else ends
        places = ends[:, None] + 1 + np.arange(parameter)
        remainders = window[places].astype(np.int64) @ _powers(parameter)
        folded = ((ends - starts) << parameter) + remainders
        self._position += int(ends[-1]) + 1 + parameter if count else 0
        unfolded: NDArray[np.int64] = (folded >> 1) ^ -(folded & 1)
        return unfolded

    def _window(self, bits: int) -> NDArray[np.uint8]:
        """The next bits, one a byte, without passing over them."""
        first = self._position // 8
        content = np.frombuffer(
            self._content, dtype=np.uint8, count=(self._position % 8 + bits + 7) // 8, offset=first
        )
        start = self._position % 8
        return np.unpackbits(content)[start : start + bits]

    def _require(self, bits: int) -> None:
        if self._position + bits > self._end:
            raise AudioError("The FLAC file is damaged: it ends too early.")


def _ends(window: NDArray[np.uint8], count: int, parameter: int) -> NDArray[np.int64] | None:
    """Where the unary part of each code ends; None when the window is too short."""
    size = len(window)
    places = np.where(window, np.arange(size), size)
    following = np.minimum.accumulate(places[::-1])[::-1].tolist()
    ends = []
    position = 0
    for _ in range(count):
        if position >= size or following[position] + parameter >= size:
            return None
        ends.append(following[position])
        position = ends[-1] + 1 + parameter
    return np.array(ends, dtype=np.int64)


@cache
def _powers(bits: int) -> NDArray[np.int64]:
    return np.left_shift(1, np.arange(bits - 1, -1, -1, dtype=np.int64))


def crc16(content: bytes) -> int:
    """The checksum of a frame: polynomial 0x8005, from zero, highest bit first."""
    table = _crc16_table()
    value = 0
    for byte in content:
        value = (value << 8 & 0xFFFF) ^ table[value >> 8 ^ byte]
    return value


@cache
def _crc16_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte << 8
        for _ in range(8):
            value = (value << 1 & 0xFFFF) ^ (0x8005 if value & 0x8000 else 0)
        table.append(value)
    return tuple(table)
