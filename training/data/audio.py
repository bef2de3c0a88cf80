"""Sounds from bytes that nobody vouches for: the header is judged before any sample is decoded."""

import stat
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.data.flac import decode_flac, is_flac, read_flac_header
from training.data.resampling import resample
from training.data.wav import decode_wav, is_wav, read_wav_header
from training.errors import AudioError, AudioTooLargeError

_LOWEST_RATE, _HIGHEST_RATE = 1_000, 384_000


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


@dataclass(frozen=True, slots=True)
class AudioHeader:
    """What the header of a sound file says.

    Attributes:
        format: WAV or FLAC.
        sample_rate: In hertz.
        channels: 1 for mono.
        samples: Of each channel; None where the file does not say, as FLAC from a stream.
    """

    format: str
    sample_rate: int
    channels: int
    samples: int | None


def read_audio_header(source: bytes | Path, limits: AudioLimits | None = None) -> AudioHeader:
    """Read format, rate and duration without decoding a sample.

    Raises:
        AudioTooLargeError: The file, its duration or its channels are over the limits.
        AudioError: It is not a sound of a format that can be read.
    """
    limits = limits or AudioLimits()
    return _header(_read(source, limits), limits)


def decode_audio(
    source: bytes | Path, sample_rate: int, limits: AudioLimits | None = None, seconds: float | None = None
) -> Tensor:
    """Decode a sound to one channel (N,) of float32, N > 0, resampled to a rate; full scale is -1 to 1.

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
    content = _read(source, limits)
    header = _header(content, limits)
    longest = limits.max_seconds if seconds is None else min(seconds, limits.max_seconds)
    most = ceil(longest * header.sample_rate)
    if header.format == "WAV":
        mono = decode_wav(content, read_wav_header(content), most).mean(axis=0)
    else:
        flac = read_flac_header(content)
        mono = decode_flac(content, flac, most).mean(axis=0) / 2 ** (flac.bits - 1)
    if not len(mono):
        raise AudioError(f"The {header.format} file has no samples.")
    return resample(torch.from_numpy(mono.astype(np.float32)), header.sample_rate, sample_rate)


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
        return path.read_bytes()
    except FileNotFoundError:
        raise AudioError(f"There is no audio file {path}.") from None
    except OSError as error:
        raise AudioError(f"{path} cannot be read: {error.strerror or error}.") from error


def _check_bytes(size: int, limits: AudioLimits) -> None:
    if size > limits.max_bytes:
        raise AudioTooLargeError(
            f"The audio file has {size / 1e6:,.1f} MB; the limit is {limits.max_bytes / 1e6:,.1f} MB."
        )


def _header(content: bytes, limits: AudioLimits) -> AudioHeader:
    if is_wav(content):
        wav = read_wav_header(content)
        header = AudioHeader("WAV", wav.sample_rate, wav.channels, wav.samples)
    elif is_flac(content):
        flac = read_flac_header(content)
        header = AudioHeader("FLAC", flac.sample_rate, flac.channels, flac.samples or None)
    else:
        raise AudioError("The file is not a sound that can be read: give WAV or FLAC.")
    if not _LOWEST_RATE <= header.sample_rate <= _HIGHEST_RATE:
        raise AudioError(
            f"The {header.format} file has {header.sample_rate} samples a second: "
            f"save it with {_LOWEST_RATE} to {_HIGHEST_RATE}."
        )
    if header.channels > limits.max_channels:
        raise AudioTooLargeError(
            f"The sound has {header.channels} channels; the limit is {limits.max_channels}."
        )
    if header.samples is not None and header.samples > limits.max_seconds * header.sample_rate:
        raise AudioTooLargeError(
            f"The sound lasts {header.samples / header.sample_rate:,.1f} seconds; "
            f"the limit is {limits.max_seconds:,.10g}."
        )
    return header
