"""Sound files for tests, made without the code that reads them."""

import struct
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

def tone(frequency: float, seconds: float = 0.1, rate: int = 16_000) -> NDArray[np.float64]:
    """A sine (N,) of half the full scale that starts at zero."""
    return 0.5 * np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)


def wav(
    raw: bytes,
    *,
    code: int = 1,
    channels: int = 1,
    rate: int = 16_000,
    bits: int = 16,
    extra: bytes = b"",
    before: bytes = b"",
    size: int | None = None,
) -> bytes:
    """A WAV file of samples that are coded already; `size` is what its data chunk claims."""
    width = channels * bits // 8
    format_chunk = struct.pack("<HHIIHH", code, channels, rate, rate * width, width, bits) + extra
    body = b"WAVE" + before + _chunk(b"fmt ", format_chunk)
    body += b"data" + struct.pack("<I", len(raw) if size is None else size) + raw
    return b"RIFF" + struct.pack("<I", len(body)) + body


def wav16(samples: NDArray[np.float64], rate: int = 16_000) -> bytes:
    """A mono WAV file of 16 bits from samples of -1 to 1."""
    return wav(np.round(samples * 32767).astype("<i2").tobytes(), rate=rate)


def _chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)


class Bits:
    """Bits in order, the highest of a number first."""

    def __init__(self) -> None:
        self._text: list[str] = []

    def put(self, value: int, width: int) -> "Bits":
        if width:
            self._text.append(format(value & (1 << width) - 1, f"0{width}b"))
        return self

    def put_all(self, values: Iterable[int], width: int) -> "Bits":
        for value in values:
            self.put(int(value), width)
        return self

    def put_rice(self, values: Iterable[int], parameter: int) -> "Bits":
        for value in map(int, values):
            folded = 2 * value if value >= 0 else -2 * value - 1
            self._text.append("0" * (folded >> parameter) + "1")
            self.put(folded, parameter)
        return self

    def add(self, other: "Bits") -> "Bits":
        self._text += other._text
        return self

    def to_bytes(self) -> bytes:
        text = "".join(self._text)
        text += "0" * (-len(text) % 8)
        return bytes(int(text[place : place + 8], 2) for place in range(0, len(text), 8))


def flac(
    frames: Sequence[tuple[int, int, Sequence[Bits]]],
    *,
    channels: int = 1,
    bits: int = 16,
    rate: int = 16_000,
    samples: int | None = None,
) -> bytes:
    """A FLAC file of frames, each its length, channel assignment and subframes."""
    total = sum(length for length, _, _ in frames) if samples is None else samples
    info = Bits().put(16, 16).put(65_535, 16).put(0, 48).put(rate, 20).put(channels - 1, 3)
    header = info.put(bits - 1, 5).put(total, 36).put(0, 128).to_bytes()
    content = b"fLaC" + b"\0\0\0\x22" + header + b"\x81\0\0\x03abc"
    for number, (length, assignment, subframes) in enumerate(frames):
        content += _frame(number, length, assignment, subframes)
    return content


def _frame(number: int, length: int, assignment: int, subframes: Sequence[Bits]) -> bytes:
    head = Bits().put(0b11111111111110, 14).put(0, 2).put(7, 4).put(0, 4).put(assignment, 4).put(0, 4)
    start = head.put(number, 8).put(length - 1, 16).to_bytes()
    start += bytes([checksum(start, 8, 0x07)])
    body = Bits()
    for subframe in subframes:
        body.add(subframe)
    content = start + body.to_bytes()
    return content + checksum(content, 16, 0x8005).to_bytes(2, "big")


def checksum(content: bytes, width: int, polynomial: int) -> int:
    """A cyclic redundancy check, bit by bit."""
    value = 0
    for byte in content:
        for place in range(7, -1, -1):
            carry = (value >> (width - 1)) ^ (byte >> place & 1)
            value = (value << 1) & ((1 << width) - 1)
            value ^= polynomial if carry & 1 else 0
    return value


def subframe(kind: int, wasted: int = 0) -> Bits:
    """The beginning of a subframe."""
    start = Bits().put(0, 1).put(kind, 6).put(1 if wasted else 0, 1)
    return start.put(1, wasted) if wasted else start


def verbatim(values: Iterable[int], bits: int = 16) -> Bits:
    return subframe(1).put_all(values, bits)
