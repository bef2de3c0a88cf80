"""WAV files: PCM of 8, 16, 24 and 32 bits, and float of 32 and 64 bits."""

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from training.errors import AudioError

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_UNKNOWN_SIZE: Final = 0xFFFFFFFF
# Floats may exceed full scale, but their energy must stay a number.
_LOUDEST: Final = 2.0**16
_KINDS: Final = {(_PCM, 8), (_PCM, 16), (_PCM, 24), (_PCM, 32), (_FLOAT, 32), (_FLOAT, 64)}
# The last 14 bytes of a subformat, which begins with one of the plain codes.
_SUBFORMAT: Final = bytes.fromhex("000000001000800000aa00389b71")


@dataclass(frozen=True, slots=True)
class WavHeader:
    """What the chunks say; `samples` are those of each channel, from byte `start` on."""

    sample_rate: int
    channels: int
    bits: int
    is_float: bool
    samples: int
    start: int


def is_wav(content: bytes) -> bool:
    """Whether the bytes begin as a WAV file does."""
    return content[:4] == b"RIFF" and content[8:12] == b"WAVE"


def read_wav_header(content: bytes) -> WavHeader:
    """Find the format and the samples, without decoding any.

    Raises:
        AudioError: The header is damaged, or the samples are coded in another way.
    """
    position = 12
    kind: tuple[int, int, int, int] | None = None
    while position + 8 <= len(content):
        name, size = struct.unpack_from("<4sI", content, position)
        position += 8
        if name == b"fmt ":
            kind = _read_format(content[position : position + min(size, 40)])
        elif name == b"data":
            return _header(kind, position, size, len(content))
        # Chunks begin at even places.
        position += size + size % 2
    raise AudioError("The WAV file has no samples: it ends before its data chunk.")


def decode_wav(content: bytes, header: WavHeader, most: int) -> NDArray[np.float32]:
    """The first samples (C, N) from -1 to 1, at most `most` of each channel.

    Raises:
        AudioError: A sample is not a number, or is absurdly large.
    """
    width = header.bits // 8
    count = min(most, header.samples) * header.channels
    raw = np.frombuffer(content, dtype=np.uint8, count=count * width, offset=header.start)
    if header.is_float:
        exact = raw.view(f"<f{width}")
        if not (np.abs(exact) <= _LOUDEST).all():
            raise AudioError("The WAV file has samples that are not numbers, or far beyond full scale.")
        samples = exact.astype(np.float32)
    else:
        # Bytes fill the upper end of 32 bits, so that the sign is where it belongs. A single one has none.
        full = np.zeros((count, 4), dtype=np.uint8)
        full[:, 4 - width :] = raw.reshape(count, width) if width > 1 else raw[:, None] ^ 0x80
        samples = full.view("<i4")[:, 0].astype(np.float32)
        samples *= np.float32(2.0**-31)
    return np.ascontiguousarray(samples.reshape(-1, header.channels).T)


def encode_wav(samples: NDArray[np.float64], sample_rate: int) -> bytes:
    """One channel (N,) from -1 to 1 as a file of 16-bit PCM; louder samples are clipped."""
    raw = np.round(np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, _PCM, 1, sample_rate, 2 * sample_rate, 2, 16)
    body = b"WAVE" + form + struct.pack("<4sI", b"data", len(raw)) + raw
    return struct.pack("<4sI", b"RIFF", len(body)) + body


def _read_format(chunk: bytes) -> tuple[int, int, int, int]:
    """Code, channels, rate and bits."""
    if len(chunk) < 16:
        raise AudioError("The header of the WAV file is damaged: its format chunk is too short.")
    code, channels, rate, _, block, bits = struct.unpack_from("<HHIIHH", chunk)
    if code == _EXTENSIBLE and len(chunk) >= 40 and chunk[26:40] == _SUBFORMAT:
        code = int.from_bytes(chunk[24:26], "little")
    if (code, bits) not in _KINDS:
        raise AudioError(
            f"The WAV file is coded in a way that cannot be read (format {code}, {bits} bits): "
            "save it as PCM of 16 bits."
        )
    if channels == 0 or rate == 0 or block != channels * bits // 8:
        raise AudioError("The header of the WAV file is damaged: its channels, rate or sizes do not fit.")
    return code, channels, rate, bits


def _header(kind: tuple[int, int, int, int] | None, start: int, size: int, end: int) -> WavHeader:
    if kind is None:
        raise AudioError("The header of the WAV file is damaged: the samples come before their format.")
    code, channels, rate, bits = kind
    if size == _UNKNOWN_SIZE:
        size = end - start
    if start + size > end:
        raise AudioError("The WAV file is damaged: it ends before its last sample.")
    return WavHeader(rate, channels, bits, code == _FLOAT, size // (channels * bits // 8), start)
