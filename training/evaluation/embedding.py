"""Embed the images and texts of a manifest: decode beside the encoder, name what is broken."""

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from training.common.errors import DataError, ImageError
from training.common.host import decoding_threads
from training.common.manifest import Manifest, Record, Rejections
from training.common.progress import ProgressBar, progress_bar
from training.data.audio_source import AudioDecoder
from training.evaluation.similarity import Vectors, as_blades
from training.imaging.processes.file_decoder import FileDecoder
from training.models.config import Modality, PairAttentionConfig
from training.models.inputs.images import Pixels
from training.models.preprocessing import Preprocessing

Item = TypeVar("Item")
_PREFETCH_BATCHES = 2


@runtime_checkable
class PairEncoder(Protocol):
    """Encoder with cross attention over pairs; `training.models.encoder.Encoder` is one."""

    @property
    def pair_attention(self) -> PairAttentionConfig | None:
        """Settings of the attention over a pair; None: the encoder compares vectors."""

    def image_entries(self, images: Pixels) -> list[Tensor]:
        """The regions (K, D) of each of some uint8 images (B, 3, S, S)."""

    def text_entries(self, texts: Sequence[str]) -> list[Tensor]:
        """The words (T_i, D) of each text."""

    def compare(self, images: Sequence[Tensor], texts: Sequence[Tensor]) -> Vectors:
        """Scores (N, M) of the entries of N images and of M texts."""


class PairScorer:
    """Collects the regions and words of a manifest while it is embedded, and compares all pairs."""

    def __init__(self, encoder: PairEncoder, texts: int) -> None:
        self._encoder = encoder
        self._images: list[Tensor] = []
        self._texts: dict[int, Tensor] = {}
        self._count = texts

    @classmethod
    def of(cls, encoder: object, texts: int) -> "PairScorer | None":
        """One for so many texts; None for an encoder that compares vectors, or without a text."""
        if texts and isinstance(encoder, PairEncoder) and encoder.pair_attention is not None:
            return cls(encoder, texts)
        return None

    def add_images(self, images: Pixels) -> None:
        """Keep the regions of the next uint8 images (B, 3, S, S)."""
        self._images += self._encoder.image_entries(images)

    def add_texts(self, rows: Sequence[int], texts: Sequence[str]) -> None:
        """Keep the words of these rows' texts."""
        self._texts.update(zip(rows, self._encoder.text_entries(texts), strict=True))

    def scores(self, batch_size: int, *, show_progress: bool) -> Vectors:
        """(N, M) of all pairs, computed for so many images and texts at once."""
        texts = [self._texts[row] for row in range(self._count)]
        found = np.empty((len(self._images), self._count), dtype=np.float32)
        with progress_bar("comparing", len(self._images), shown=show_progress) as bar:
            for row in range(0, len(self._images), batch_size):
                images = self._images[row : row + batch_size]
                for column in range(0, self._count, batch_size):
                    found[row : row + batch_size, column : column + batch_size] = self._encoder.compare(
                        images, texts[column : column + batch_size]
                    )
                bar.advance(len(images))
        return found


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


class EmbeddedTexts(Protocol):
    """Vectors (B, D) of a list of texts, and for each what was cut of it, if anything."""

    @property
    def vectors(self) -> Vectors:
        """(B, D), L2-normalised."""

    @property
    def truncations(self) -> Sequence[object | None]:
        """One entry a text; None when it fits whole."""


class ImageTextEncoder(Protocol):
    """Encoder of images and texts; `training.models.encoder.Encoder` is one."""

    @property
    def dim(self) -> int:
        """Width D of a vector."""

    @property
    def blades(self) -> int:
        """Number of basis vectors (D / k numbers each) of an embedding: k of a k-blade model, else 1."""

    @property
    def unsigned(self) -> bool:
        """Whether a vector and its opposite are the same, so that |cosine| compares them."""

    @property
    def modalities(self) -> frozenset[Modality]:
        """Modalities of the encoder; one with audio is also a `SoundEncoder`."""

    @property
    def min_image_side(self) -> int | None:
        """Pixels that both sides of a decoded image must keep; None: full resolution."""

    def prepare_image(self, image: Image.Image) -> Pixels:
        """A decoded image as (3, S, S)."""

    def embed_images(self, images: Pixels) -> Vectors:
        """(B, D) L2-normalised vectors of prepared images (B, 3, S, S)."""

    def embed_texts(self, texts: Sequence[str]) -> EmbeddedTexts:
        """L2-normalised vectors of texts."""


class Marks(Protocol):
    """Synthetic marks added to images and texts of a manifest before embedding; rows count from 0."""

    def mark_images(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """Changed images uint8 (B, 3, S, S) of these rows."""

    def mark_texts(self, texts: Sequence[str], row: int) -> Sequence[str]:
        """The changed texts of a row, as many."""


@dataclass(frozen=True)
class EmbeddedManifest:
    """The vectors of a manifest.

    Attributes:
        records: The records whose image could be read, in the manifest's order.
        image_vectors: (N, D), row i is records[i]; (N, k, D / k) of a k-blade model, (N, 1, D) of one
            without signs, and the texts' alike.
        texts: Every text of every record, in order and unmarked; the same sentence may occur several times.
        text_vectors: (M, D), row j is texts[j].
        text_owner: (M,) row of the record that has text j.
        skipped: Images that could not be read.
        truncated: Number of distinct texts longer than the encoder reads.
        sounds: Vectors of the records' sounds; None when there are none or the encoder cannot hear.
        pair_scores: (N, M), how alike image i and text j are to an encoder that compares pairs, and whose
            vectors do not tell; None: their vectors tell.
        pictures: (N,) digests of the pixels, since no encoder tells equal images apart; empty if all differ.
    """

    records: tuple[Record, ...]
    image_vectors: Vectors
    texts: tuple[str, ...]
    text_vectors: Vectors
    text_owner: NDArray[np.int64]
    skipped: Rejections
    truncated: int
    sounds: EmbeddedSounds | None = None
    pair_scores: Vectors | None = None
    pictures: tuple[bytes, ...] = ()

    def text_matches(self) -> list[list[int]]:
        """For each text, the rows of records that have this very sentence, and of images equal to theirs."""
        alike: dict[bytes | int, set[int]] = {}
        pictures: Sequence[bytes | int] = self.pictures or range(len(self.records))
        for row, picture in enumerate(pictures):
            alike.setdefault(picture, set()).add(row)
        owners: dict[str, set[int]] = {}
        for text, owner in zip(self.texts, self.text_owner.tolist(), strict=True):
            owners.setdefault(text, set()).update(alike[pictures[owner]])
        return [sorted(owners[text]) for text in self.texts]


def embed_manifest(
    encoder: ImageTextEncoder,
    manifest: Manifest,
    *,
    batch_size: int = 64,
    texts: bool = True,
    marks: Marks | None = None,
    show_progress: bool = True,
) -> EmbeddedManifest:
    """Embed every image of a manifest, every distinct text once, and the sounds, where the encoder can.

    Args:
        encoder: Turns images and texts into vectors.
        manifest: Records to embed, usually one split. Its rejections say how much may be left out: lines and
            images together, and lines and sounds.
        batch_size: Images, or texts, a forward pass.
        texts: Embed the texts as well.
        marks: Added to what is embedded, such as synthetic shortcuts.
        show_progress: Show a bar on standard error.

    Raises:
        DataError: When the manifest is empty or too many images or sounds cannot be read.
    """
    if not manifest.records:
        raise DataError(
            f"{manifest.folder} has no images in this split; choose another split or data folder."
        )
    texts = texts and "text" in encoder.modalities
    written = [_written(record, row, marks) if texts else () for row, record in enumerate(manifest.records)]
    distinct = list(dict.fromkeys(text for texts_of in written for text in texts_of))
    total = len(manifest.records) + len(distinct)
    with progress_bar("embedding", total, shown=show_progress) as bar:
        skipped = manifest.rejections.continued(len(manifest.records))
        pairs = PairScorer.of(encoder, len(distinct))
        pictures: list[bytes] = []
        rows, image_vectors = _embed_images(
            encoder, manifest, batch_size, bar, skipped, marks, pairs, pictures
        )
        vectors, truncated = _embed_distinct(encoder, distinct, batch_size, bar, pairs)
    row_of = {text: row for row, text in enumerate(distinct)}
    columns = [row_of[text] for row in rows for text in written[row]]
    records = tuple(manifest.records[row] for row in rows)
    sounds = None
    if "audio" in encoder.modalities and isinstance(encoder, SoundEncoder):
        sounds = embed_sounds(encoder, manifest, records, batch_size=batch_size)
    return EmbeddedManifest(
        records=records,
        image_vectors=as_blades(image_vectors, encoder.blades, unsigned=encoder.unsigned),
        texts=tuple(text for record in records for text in record.texts if texts),
        text_vectors=as_blades(vectors, encoder.blades, unsigned=encoder.unsigned)[columns],
        text_owner=np.repeat(np.arange(len(rows)), [len(written[row]) for row in rows]),
        skipped=skipped,
        truncated=truncated,
        sounds=sounds,
        pair_scores=None
        if pairs is None
        else pairs.scores(batch_size, show_progress=show_progress)[:, columns],
        pictures=tuple(pictures),
    )


def _written(record: Record, row: int, marks: Marks | None) -> Sequence[str]:
    return record.texts if marks is None else marks.mark_texts(record.texts, row)


def _embed_images(
    encoder: ImageTextEncoder,
    manifest: Manifest,
    batch_size: int,
    bar: ProgressBar,
    skipped: Rejections,
    marks: Marks | None,
    pairs: PairScorer | None,
    pictures: list[bytes],
) -> tuple[list[int], Vectors]:
    """Rows of the manifest whose image could be read, and their vectors; `pictures` gets their digests."""
    rows: list[int] = []
    vectors: list[Vectors] = []
    for prepared in _batches(_prepared_images(encoder, manifest, batch_size), batch_size):
        readable = [(row, image) for row, image in prepared if isinstance(image, np.ndarray)]
        for row, image in prepared:
            if isinstance(image, ImageError):
                record = manifest.records[row]
                skipped.add(record.line, f"{record.image}: {image}")
        if readable:
            read = [row for row, _ in readable]
            images = np.stack([image for _, image in readable])
            pictures += [hashlib.sha256(image.tobytes()).digest() for _, image in readable]
            if marks is not None:
                images = marks.mark_images(torch.from_numpy(images), read).numpy()
            vectors.append(encoder.embed_images(images))
            if pairs is not None:
                pairs.add_images(images)
            rows += read
        bar.advance(len(prepared))
    if not vectors:
        raise skipped.error(f"None of the images of {manifest.folder} can be read: mend the data.")
    return rows, np.concatenate(vectors)


def _prepared_images(
    encoder: ImageTextEncoder, manifest: Manifest, batch_size: int
) -> Iterator[tuple[int, Pixels | ImageError]]:
    """Images in order, decoded at most two batches ahead of the encoder."""
    waiting: deque[tuple[int, Future[Pixels | ImageError]]] = deque()
    pool = ThreadPoolExecutor(decoding_threads(), thread_name_prefix="decode")
    files = FileDecoder()
    try:
        for row, record in enumerate(manifest.records):
            waiting.append((row, pool.submit(_prepare, encoder, files, manifest.image_path(record))))
            if len(waiting) > _PREFETCH_BATCHES * batch_size:
                first, image = waiting.popleft()
                yield first, image.result()
        for row, image in waiting:
            yield row, image.result()
    finally:
        # Threads wait for what the processes decode.
        files.close()
        pool.shutdown(cancel_futures=True)


def _batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def _prepare(encoder: ImageTextEncoder, files: FileDecoder, path: Path) -> Pixels | ImageError:
    try:
        return encoder.prepare_image(files.decode(path, min_side=encoder.min_image_side).pixels)
    except ImageError as error:
        return error


def _embed_distinct(
    encoder: ImageTextEncoder,
    texts: Sequence[str],
    batch_size: int,
    bar: ProgressBar,
    pairs: PairScorer | None,
) -> tuple[Vectors, int]:
    """Vectors in the order of `texts`, computed by length so that little is padding."""
    vectors = np.empty((len(texts), encoder.dim), dtype=np.float32)
    truncated = 0
    for rows in _batches(sorted(range(len(texts)), key=lambda row: len(texts[row])), batch_size):
        some = [texts[row] for row in rows]
        embedded = encoder.embed_texts(some)
        if pairs is not None:
            pairs.add_texts(rows, some)
        vectors[rows] = embedded.vectors
        truncated += sum(cut is not None for cut in embedded.truncations)
        bar.advance(len(rows))
    return vectors, truncated
