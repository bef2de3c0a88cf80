"""Sound files for tests."""

from io import BytesIO

import numpy as np
import soundfile
from numpy.typing import NDArray


def tone(frequency: float, seconds: float = 0.1, rate: int = 16_000) -> NDArray[np.float64]:
    """A sine (N,) of half the full scale that starts at zero."""
    return 0.5 * np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)


def encode(
    samples: NDArray[np.float64], rate: int = 16_000, form: str = "WAV", coding: str | None = None
) -> bytes:
    """A file of samples (N,) or (N, C) of -1 to 1, in a format and coding of soundfile."""
    file = BytesIO()
    soundfile.write(file, samples, rate, format=form, subtype=coding)
    return file.getvalue()


def wav16(samples: NDArray[np.float64], rate: int = 16_000) -> bytes:
    """A WAV file of 16 bits."""
    return encode(samples, rate, "WAV", "PCM_16")


def claim_flac_samples(content: bytes, samples: int) -> bytes:
    """A FLAC file whose header gives another number of samples, 36 bits at byte 21.5; 0: unknown."""
    number = int.from_bytes(content[18:26], "big") >> 36 << 36 | samples
    return content[:18] + number.to_bytes(8, "big") + content[26:]


def claim_wav_bytes(content: bytes, size: int) -> bytes:
    """A WAV file whose data chunk gives another size."""
    place = content.index(b"data") + 4
    return content[:place] + size.to_bytes(4, "little") + content[place + 4 :]


def tagged(content: bytes, length: int = 300, footer: bool = False) -> bytes:
    """A file behind an ID3 tag of 128 bytes or more."""
    size = bytes([0, 0, length >> 7, length & 127])
    end = b"3DI\4\0\x10" + size if footer else b""
    return b"ID3\4\0" + (b"\x10" if footer else b"\0") + size + b"\0" * length + end + content
