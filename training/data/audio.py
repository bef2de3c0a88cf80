"""Sounds from bytes that nobody vouches for: the header is judged before any sample is decoded."""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from math import ceil
from pathlib import Path
from typing import Final

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.common.errors import AudioError, AudioTooLargeError
from training.data.resampling import resample

_LOWEST_RATE, _HIGHEST_RATE = 1_000, 384_000
_BLOCK: Final = 1 << 16
# Floats may exceed full scale, but their energy must stay a number.
_LOUDEST: Final = 2.0**16
_UNKNOWN_LENGTH: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class AudioLimits:
    """What a sound may cost.

    Attributes:
        max_bytes: Size of the file.
        max_seconds: Duration, as the header states it.
        max_channels: All are averaged into one.
    """

    max_bytes: int = 100 * 1024 * 1024
    max_seconds: float = 600.0
    max_channels: int = 8


def decode_audio(
    source: bytes | Path, sample_rate: int, limits: AudioLimits | None = None, seconds: float | None = None
) -> Tensor:
    """Decode a sound to one channel (N,) of float32, N > 0, resampled to a rate; full scale is -1 to 1.

    A file that was cut, or whose header promises more than there is, is read as far as it goes; pieces of
    OGG and MP3 that cannot be decoded are passed over. What the checksums of FLAC show to be damaged is
    refused. An MP3 file of variable bit rate that does not give its length may lose its end, and a damaged
    one makes libmpg123 print to standard error.

    Args:
        source: The bytes of a file, or its path.
        sample_rate: Of the result.
        limits: What the sound may cost.
        seconds: No more than this is decoded, from the beginning; None: all.

    Raises:
        AudioTooLargeError: The file, its duration or its channels are over the limits.
        AudioError: It is not a sound of a format that can be read, or it is damaged or empty.
    """
    limits = limits or AudioLimits()
    longest = limits.max_seconds if seconds is None else min(seconds, limits.max_seconds)
    with _opened(source, limits) as (form, stream):
        mono = _decode(stream, form, ceil(longest * stream.samplerate))
    if not len(mono):
        raise AudioError(f"The {form} file has no samples.")
    return resample(torch.from_numpy(mono), stream.samplerate, sample_rate)


class _Stream(soundfile.SoundFile):
    """Is read from the beginning on.

    SoundFile seeks to where it should be after each block: a FLAC file of unknown length then fails at its
    end, and an OGG file with a gap gives samples twice.
    """

    def seekable(self) -> bool:
        return False


@contextmanager
def _opened(source: bytes | Path, limits: AudioLimits) -> Iterator[tuple[str, _Stream]]:
    content = _read(source, limits)
    start = _tag_length(content)
    # libsndfile would look for some twenty other formats, whose parsers are far less tried.
    form = _format(content[start : start + 12])
    if form is None:
        raise AudioError(
            "The file is not a sound that can be read: give WAV, FLAC, OGG (Vorbis or Opus) or MP3."
        )
    try:
        stream = _Stream(BytesIO(content[start:]))
    except soundfile.LibsndfileError as error:
        raise AudioError(
            f"The {form} file is damaged or coded in a way that cannot be read: save it anew, as WAV or FLAC."
        ) from error
    with stream:
        _check(form, stream, limits)
        yield form, stream


def _decode(stream: _Stream, form: str, most: int) -> NDArray[np.float32]:
    """The first samples (N,), at most `most`; blocks, since the header may claim any number."""
    blocks = []
    left = most
    while left > 0:
        try:
            read = stream.read(min(_BLOCK, left), dtype="float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            raise AudioError(f"The {form} file is damaged: not all of its samples can be decoded.") from error
        block = np.asarray(read, dtype=np.float32)
        if not len(block):
            break
        if not (np.abs(block) <= _LOUDEST).all():
            raise AudioError(f"The {form} file has samples that are not numbers, or far beyond full scale.")
        blocks.append(block.mean(axis=1))
        left -= len(block)
    return np.concatenate(blocks) if blocks else np.zeros(0, dtype=np.float32)


def _tag_length(content: bytes) -> int:
    """Bytes of the ID3 tag that MP3 files begin with; libsndfile misreads some that stand before others."""
    if content[:3] != b"ID3" or len(content) < 10:
        return 0
    size = 0
    for byte in content[6:10]:
        size = size << 7 | byte & 127
    has_footer = content[5] & 16
    return 10 + size + (10 if has_footer else 0)


def _format(start: bytes) -> str | None:
    """The format of a file by its first 12 bytes."""
    if start[:4] == b"RIFF" and start[8:] == b"WAVE":
        return "WAV"
    if start[:4] == b"fLaC":
        return "FLAC"
    if start[:4] == b"OggS":
        return "OGG"
    # Eleven bits of synchronisation, two of the version and 01 for layer III.
    if start[:1] == b"\xff" and len(start) > 1 and start[1] & 0b1110_0110 == 0b1110_0010:
        return "MP3"
    return None


def _read(source: bytes | Path, limits: AudioLimits) -> bytes:
    if isinstance(source, Path):
        source = _read_file(source, limits)
    _check_bytes(len(source), limits)
    if not source:
        raise AudioError("The audio file is empty.")
    return source


def _read_file(path: Path, limits: AudioLimits) -> bytes:
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise AudioError(f"{path} is not a file.")
        _check_bytes(about.st_size, limits)
        # No more, since the length of what is no ordinary file says nothing.
        with path.open("rb") as file:
            return file.read(about.st_size)
    except FileNotFoundError:
        raise AudioError(f"There is no audio file {path}.") from None
    except OSError as error:
        raise AudioError(f"{path} cannot be read: {error.strerror or error}.") from error


def _check_bytes(size: int, limits: AudioLimits) -> None:
    if size > limits.max_bytes:
        raise AudioTooLargeError(
            f"The audio file has {size / 1e6:,.1f} MB; the limit is {limits.max_bytes / 1e6:,.1f} MB."
        )


def _check(form: str, stream: _Stream, limits: AudioLimits) -> None:
    if not _LOWEST_RATE <= stream.samplerate <= _HIGHEST_RATE:
        raise AudioError(
            f"The {form} file has {stream.samplerate} samples a second: "
            f"save it with {_LOWEST_RATE} to {_HIGHEST_RATE}."
        )
    if stream.channels > limits.max_channels:
        raise AudioTooLargeError(
            f"The sound has {stream.channels} channels; the limit is {limits.max_channels}."
        )
    # For some MP3 the length is an estimate.
    if stream.frames != _UNKNOWN_LENGTH and stream.frames > limits.max_seconds * stream.samplerate:
        raise AudioTooLargeError(
            f"The sound lasts {stream.frames / stream.samplerate:,.1f} seconds; "
            f"the limit is {limits.max_seconds:,.10g}."
        )
