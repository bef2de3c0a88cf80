"""Embed the sounds of a manifest."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from training.data.audio_source import AudioDecoder
from training.data.manifest import Manifest, Record, Rejections
from training.evaluation.similarity import Vectors, as_blades
from training.host import decoding_threads
from training.models.preprocessing import Preprocessing


@runtime_checkable
class SoundEncoder(Protocol):
    """Encoder of sounds; `training.models.encoder.Encoder` is one."""

    preprocessing: Preprocessing

    @property
    def blades(self) -> int:
        """Number of basis vectors that make up a vector: k of a k-blade model, else 1."""

    @property
    def unsigned(self) -> bool:
        """Whether a vector and its opposite are the same, so that |cosine| compares them."""

    def embed_audio(self, spectrograms: Sequence[Tensor]) -> Vectors:
        """Vectors (B, D) of spectrograms, each (M, T_i)."""


@dataclass(frozen=True)
class EmbeddedSounds:
    """The vectors of the sounds of some records.

    Attributes:
        files: The sound files that could be read, in the records' order; the same may occur several times.
        vectors: (S, D), row i is files[i]; (S, k, D / k) of a k-blade model, (S, 1, D) of one without signs.
        owner: (S,) row of the record that has sound i.
        skipped: Sounds that could not be read.
    """

    files: tuple[str, ...]
    vectors: Vectors
    owner: NDArray[np.int64]
    skipped: Rejections

    def matches(self) -> list[list[int]]:
        """For each sound, the rows of all records that have this very file."""
        owners: dict[str, list[int]] = {}
        for file, owner in zip(self.files, self.owner.tolist(), strict=True):
            owners.setdefault(file, []).append(owner)
        return [owners[file] for file in self.files]


def embed_sounds(
    encoder: SoundEncoder,
    manifest: Manifest,
    records: Sequence[Record],
    *,
    batch_size: int = 64,
) -> EmbeddedSounds | None:
    """Embed every sound of some records of a manifest; None where there is none that can be read.

    Args:
        encoder: Turns sounds into vectors.
        manifest: Manifest whose folder has the sounds.
        records: Records of which the sounds are embedded.
        batch_size: Sounds a forward pass.

    Raises:
        DataError: Too many sounds cannot be read.
    """
    with_sound = [row for row, record in enumerate(records) if record.audio is not None]
    skipped = manifest.rejections.continued(len(with_sound), "sounds")
    decoder = AudioDecoder(replace(manifest, records=tuple(records)), encoder.preprocessing.audio)
    heard: list[int] = []
    vectors: list[Vectors] = []
    with ThreadPoolExecutor(decoding_threads(), thread_name_prefix="decode-audio") as pool:
        for start in range(0, len(with_sound), batch_size):
            rows = with_sound[start : start + batch_size]
            spectrograms = []
            for row, found in zip(rows, pool.map(decoder.decode, rows), strict=True):
                if isinstance(found, Tensor):
                    heard.append(row)
                    spectrograms.append(found)
                else:
                    skipped.add(records[row].line, f"{records[row].audio}: {found}".rstrip("."))
            if spectrograms:
                vectors.append(encoder.embed_audio(spectrograms))
    if not vectors:
        return None
    return EmbeddedSounds(
        files=tuple(str(records[row].audio) for row in heard),
        vectors=as_blades(np.concatenate(vectors), encoder.blades, unsigned=encoder.unsigned),
        owner=np.array(heard, dtype=np.int64),
        skipped=skipped,
    )
