"""The sounds of a training run as log-mel spectrograms, decoded in threads when they are needed."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.common.errors import AudioError, DataError
from training.common.manifest import Manifest, Rejections
from training.common.memory import check_cache
from training.data.audio import decode_audio
from training.models.sounds.spectrogram import (
    AudioPreprocessing,
    SpectrogramBatch,
    frame_count,
    pad_spectrograms,
)

_BYTES_A_NUMBER = 4


def audible(manifest: Manifest) -> Manifest:
    """The records of a split that have a sound.

    Raises:
        DataError: There is none.
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
    """Reads the sound of one record of a manifest as a spectrogram (M, T)."""

    manifest: Manifest
    preprocessing: AudioPreprocessing

    def decode(self, row: int) -> Tensor | AudioError:
        """The spectrogram of a record, or why there is none."""
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
    """Sounds by the row of their record in the manifest.

    A batch of a loader asks for the rows that its images came from, then keeps what both could read:

        images, kept = image_source.load(places)
        spectrograms, heard = audio_source.load(manifest_rows[kept])

    `places` count the readable images only, so `manifest_rows = numpy.array(image_source.readable)[places]`.

    Attributes:
        cache_bytes: Bytes that the cache may grow to.

    Args:
        decoder: Reads one.
        rejections: Where broken sounds are counted, each once.
        cache: Keep every spectrogram in memory once it was made.
        threads: That decode; 0: as many as there are cores.

    Raises:
        DataError: The cache may grow larger than the memory.
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

        Fewer than the rows when one is broken; all are padded behind to the longest of the batch.

        Raises:
            DataError: None of the sounds can be read, or too many of the data's.
        """
        wanted = rows.tolist()
        spectrograms, kept = [], []
        for place, found in enumerate(self._pool.map(self._spectrogram, wanted)):
            if isinstance(found, Tensor):
                spectrograms.append(found)
                kept.append(place)
                if self._cached is not None:
                    self._cached[wanted[place]] = found
            elif wanted[place] not in self._broken:
                self._broken.add(wanted[place])
                self._reject(wanted[place], found)
        if not spectrograms:
            raise self._rejections.error("No sound of a whole batch can be read: mend the data.")
        return pad_spectrograms(spectrograms), kept

    def longest(self, count: int) -> SpectrogramBatch:
        """Made spectrograms (count, M, T) of silence, as long as a sound can be."""
        config = self._decoder.preprocessing.config
        frames = frame_count(config)
        return SpectrogramBatch(
            torch.zeros(1).expand(count, config.mels, frames), torch.ones(count, frames, dtype=torch.bool)
        )

    def close(self) -> None:
        """End the threads that decode; nothing can be loaded afterwards."""
        self._pool.shutdown(cancel_futures=True)

    def _spectrogram(self, row: int) -> Tensor | AudioError:
        known = None if self._cached is None else self._cached.get(row)
        return self._decoder.decode(row) if known is None else known

    def _reject(self, row: int, error: AudioError) -> None:
        record = self._decoder.manifest.records[row]
        self._rejections.add(record.line, f"{record.audio or record.image}: {error}".rstrip("."))
