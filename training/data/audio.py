"""Decode untrusted audio files, resample them, and load a manifest's sounds as log-mel spectrograms."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from io import BytesIO
from math import ceil
from pathlib import Path
from typing import Final

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from training.common.errors import AudioError, AudioTooLargeError, DataError
from training.common.manifest import Manifest, Rejections
from training.common.memory import check_cache
from training.models.preprocessing import (
    AudioPreprocessing,
    SpectrogramBatch,
    frame_count,
    pad_spectrograms,
)

_LOWEST_RATE, _HIGHEST_RATE = 1_000, 384_000
_BLOCK: Final = 1 << 16
# Floats may exceed full scale, but their energy must stay a number.
_LOUDEST: Final = 2.0**16
_UNKNOWN_LENGTH: Final = 2**63 - 1
_BYTES_A_NUMBER = 4
# With these the filter passes 90 % of the lower of both bands unchanged and takes 80 dB away from all that
# the new rate cannot hold.
_CROSSINGS = 48
_ROLLOFF = 0.95
_KAISER_BETA = 8.0
# There is a filter for each phase; rates without a common factor are met to a few parts in a million.
_LARGEST_STEP = 20_000


@dataclass(frozen=True, slots=True)
class AudioLimits:
    """Limits of a sound: file size in bytes, duration by its header, and channels (which are averaged)."""

    max_bytes: int = 100 * 1024 * 1024
    max_seconds: float = 600.0
    max_channels: int = 8


def decode_audio(
    source: bytes | Path, sample_rate: int, limits: AudioLimits | None = None, seconds: float | None = None
) -> Tensor:
    """Decode a sound to mono (N,) float32 at a sampling rate, N > 0; full scale is -1 to 1.

    A truncated file is read up to its end, and undecodable parts of OGG and MP3 are skipped; a FLAC file
    that fails its checksums is rejected. A variable-bit-rate MP3 file without a stated length may lose its
    end, and a damaged one makes libmpg123 print to standard error. At most the first `seconds` are decoded.

    Raises:
        AudioTooLargeError: The file exceeds the limits.
        AudioError: The format is unsupported, or the file is damaged or empty.
    """
    limits = limits or AudioLimits()
    content = _read(source, limits)
    start = _tag_length(content)
    # libsndfile would also try about twenty formats whose parsers are less tested.
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
    longest = limits.max_seconds if seconds is None else min(seconds, limits.max_seconds)
    with stream:
        _check(form, stream, limits)
        mono = _decode(stream, form, ceil(longest * stream.samplerate))
    if not len(mono):
        raise AudioError(f"The {form} file has no samples.")
    return resample(torch.from_numpy(mono), stream.samplerate, sample_rate)


class _Stream(soundfile.SoundFile):
    """A sound file that is only read forwards.

    SoundFile seeks after each block, which fails at the end of a FLAC file of unknown length and returns
    samples of an OGG file with a gap twice.
    """

    def seekable(self) -> bool:
        return False


def _decode(stream: _Stream, form: str, most: int) -> NDArray[np.float32]:
    """The first samples (N,), at most `most`; read in blocks, because the header may claim any number."""
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
    """Length of a leading ID3 tag, which libsndfile misreads in formats other than MP3."""
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
        # The stated length of what isn't a regular file can't be trusted.
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
    # The length of some MP3 files is an estimate.
    if stream.frames != _UNKNOWN_LENGTH and stream.frames > limits.max_seconds * stream.samplerate:
        raise AudioTooLargeError(
            f"The sound lasts {stream.frames / stream.samplerate:,.1f} seconds; "
            f"the limit is {limits.max_seconds:,.10g}."
        )


def resample(waveform: Tensor, rate: int, target: int) -> Tensor:
    """A waveform (N,) at `rate` as about N * target / rate samples at `target`, rounded up.

    Each new sample is the low-pass filtered sound at its own time, so nothing is shifted.
    """
    if rate == target or not len(waveform):
        return waveform
    ratio = Fraction(target, rate).limit_denominator(_LARGEST_STEP)
    new, old = ratio.numerator, ratio.denominator
    filters, reach = _filters(old, new)
    count = ceil(len(waveform) * ratio)
    padded = functional.pad(waveform.float(), (reach, 2 * reach + old))
    resampled = torch.empty(count)
    for phase in range(min(new, count)):
        windows = padded[phase * old // new :].unfold(0, 2 * reach + 1, old)
        samples = resampled[phase::new]
        samples.copy_(windows[: len(samples)] @ filters[phase])
    return resampled


@lru_cache(maxsize=8)
def _filters(old: int, new: int) -> tuple[Tensor, int]:
    """Filters (new, 2 * reach + 1), one a phase, around the last old sample before the new one."""
    cutoff = _ROLLOFF * min(1.0, new / old)
    reach = ceil(_CROSSINGS / cutoff) + 1
    taps = torch.arange(-reach, reach + 1, dtype=torch.float64)
    fractions = torch.tensor([phase * old % new / new for phase in range(new)], dtype=torch.float64)
    crossings = cutoff * (taps - fractions[:, None])
    inside = (1 - (crossings / _CROSSINGS).square()).clamp(min=0).sqrt()
    window = torch.special.i0(_KAISER_BETA * inside) * (crossings.abs() < _CROSSINGS)
    filters = torch.sinc(crossings) * window
    # Silence and any constant come through as they are, whatever the phase.
    return (filters / filters.sum(dim=1, keepdim=True)).float(), reach


def audible(manifest: Manifest) -> Manifest:
    """The records of a split that have a sound.

    Raises:
        DataError: There are none.
    """
    records = tuple(record for record in manifest.records if record.audio is not None)
    if not records:
        raise DataError(
            f"No image of this split of {manifest.folder} has a sound: name one under 'audio' in the "
            "manifest, or remove model.audio."
        )
    return replace(manifest, records=records)


@dataclass(frozen=True)
class AudioDecoder:
    """Read the sound of a record as a spectrogram (M, T)."""

    manifest: Manifest
    preprocessing: AudioPreprocessing

    def decode(self, row: int) -> Tensor | AudioError:
        """The spectrogram of a record, or why it can't be read."""
        path = self.manifest.audio_path(self.manifest.records[row])
        if path is None:
            return AudioError("it has no sound")
        config = self.preprocessing.config
        try:
            waveform = decode_audio(path, config.sample_rate, seconds=config.seconds)
        except AudioError as error:
            return error
        return self.preprocessing.to_spectrogram(waveform)


class AudioSource:
    """Sounds by their record's row in the manifest.

    Attributes:
        cache_bytes: Maximum size of the cache in bytes.

    Raises:
        DataError: The cache may exceed the memory.
    """

    def __init__(
        self, decoder: AudioDecoder, rejections: Rejections, *, cache: bool = True, threads: int = 0
    ) -> None:
        config = decoder.preprocessing.config
        spectrogram = config.mels * frame_count(config) * _BYTES_A_NUMBER
        self.cache_bytes = len(decoder.manifest.records) * spectrogram if cache else 0
        check_cache("The spectrograms", self.cache_bytes)
        self._decoder = decoder
        self._rejections = rejections
        self._cached: dict[int, Tensor] | None = {} if cache else None
        self._broken: set[int] = set()
        self._pool = ThreadPoolExecutor(threads or os.cpu_count() or 1, thread_name_prefix="decode-audio")

    def load(self, rows: NDArray[np.int64]) -> tuple[SpectrogramBatch, list[int]]:
        """Spectrograms (K, M, T) with their mask (K, T), and which K of the rows they are.

        Unreadable sounds are left out; the others are padded at the end to the longest.

        Raises:
            DataError: No sound of the batch can be read, or too many in total.
        """
        numbers = rows.tolist()
        spectrograms, kept = [], []
        for index, (row, decoded) in enumerate(
            zip(numbers, self._pool.map(self._spectrogram, numbers), strict=True)
        ):
            if isinstance(decoded, Tensor):
                spectrograms.append(decoded)
                kept.append(index)
                if self._cached is not None:
                    self._cached[row] = decoded
            elif row not in self._broken:
                self._broken.add(row)
                record = self._decoder.manifest.records[row]
                self._rejections.add(record.line, f"{record.audio or record.image}: {decoded}".rstrip("."))
        if not spectrograms:
            raise self._rejections.error("No sound of a whole batch can be read: mend the data.")
        return pad_spectrograms(spectrograms), kept

    def longest(self, count: int) -> SpectrogramBatch:
        """Spectrograms (count, M, T) of silence with the maximum length."""
        config = self._decoder.preprocessing.config
        frames = frame_count(config)
        return SpectrogramBatch(
            torch.zeros(1).expand(count, config.mels, frames), torch.ones(count, frames, dtype=torch.bool)
        )

    def close(self) -> None:
        """Stop the decoding threads; nothing can be loaded afterwards."""
        self._pool.shutdown(cancel_futures=True)

    def _spectrogram(self, row: int) -> Tensor | AudioError:
        cached = None if self._cached is None else self._cached.get(row)
        return self._decoder.decode(row) if cached is None else cached
