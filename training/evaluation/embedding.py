"""Embed a manifest's images, texts and sounds; images are decoded while the encoder runs."""

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from training.common.errors import DataError, ImageError
from training.common.host import decoding_threads
from training.common.manifest import Manifest, Record, Rejections
from training.common.progress import ProgressBar, progress_bar
from training.data.audio import AudioDecoder
from training.evaluation.similarity import Vectors, as_blades
from training.imaging.processes.file_decoder import FileDecoder
from training.models.config import Modality
from training.models.encoder import Encoder
from training.models.image_input import Pixels
from training.models.text_input import TextEmbeddings

Item = TypeVar("Item")
_PREFETCH_BATCHES = 2


class _PairScorer:
    """Collect regions and words while a manifest is embedded, and compare all pairs."""

    def __init__(self, encoder: Encoder, texts: int) -> None:
        self._encoder = encoder
        self._images: list[Tensor] = []
        self._texts: dict[int, Tensor] = {}
        self._count = texts

    def add_images(self, images: Pixels) -> None:
        self._images += self._encoder.image_entries(images)

    def add_texts(self, rows: Sequence[int], texts: Sequence[str]) -> None:
        self._texts.update(zip(rows, self._encoder.text_entries(texts), strict=True))

    def scores(self, batch_size: int, *, show_progress: bool) -> Vectors:
        """Scores (N, M) of all pairs, computed in blocks of `batch_size` images and texts."""
        texts = [self._texts[row] for row in range(self._count)]
        scores = np.empty((len(self._images), self._count), dtype=np.float32)
        with progress_bar("comparing", len(self._images), shown=show_progress) as bar:
            for row in range(0, len(self._images), batch_size):
                images = self._images[row : row + batch_size]
                for column in range(0, self._count, batch_size):
                    some = slice(row, row + batch_size), slice(column, column + batch_size)
                    scores[some] = self._encoder.compare(images, texts[some[1]])
                bar.advance(len(images))
        return scores


@dataclass(frozen=True)
class EmbeddedSounds:
    """Vectors of the sounds of some records.

    Attributes:
        files: Readable sound files in the records' order; a file may occur several times.
        vectors: (S, D), row i is files[i]; (S, k, D / k) of a k-blade model, (S, 1, D) of one without signs.
        owner: (S,) row of each sound's record.
        skipped: Unreadable sounds.
    """

    files: tuple[str, ...]
    vectors: Vectors
    owner: NDArray[np.int64]
    skipped: Rejections

    def matches(self) -> list[list[int]]:
        """For each sound, the rows of all records with the same file."""
        owners: dict[str, list[int]] = {}
        for file, owner in zip(self.files, self.owner.tolist(), strict=True):
            owners.setdefault(file, []).append(owner)
        return [owners[file] for file in self.files]


def embed_sounds(
    encoder: Encoder, manifest: Manifest, records: Sequence[Record], *, batch_size: int = 64
) -> EmbeddedSounds | None:
    """Embed the sounds of some records of a manifest; None if none can be read.

    Raises:
        DataError: Too many sounds can't be read.
    """
    with_sound = [row for row, record in enumerate(records) if record.audio is not None]
    skipped = manifest.rejections.continued(len(with_sound), "sounds")
    decoder = AudioDecoder(replace(manifest, records=tuple(records)), encoder.preprocessing.audio)
    heard: list[int] = []
    vectors: list[Vectors] = []
    with ThreadPoolExecutor(decoding_threads(), thread_name_prefix="decode-audio") as pool:
        for rows in _batches(with_sound, batch_size):
            spectrograms = []
            for row, decoded in zip(rows, pool.map(decoder.decode, rows), strict=True):
                if isinstance(decoded, Tensor):
                    heard.append(row)
                    spectrograms.append(decoded)
                else:
                    skipped.add(records[row].line, f"{records[row].audio}: {decoded}".rstrip("."))
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


class ImageTextEncoder(Protocol):
    """Encoder of images and texts; `training.models.encoder.Encoder` explains the attributes."""

    @property
    def blades(self) -> int:
        """How many vectors one is made of."""

    @property
    def unsigned(self) -> bool:
        """Whether the sign of a vector is free."""

    @property
    def modalities(self) -> frozenset[Modality]:
        """What can be embedded."""

    @property
    def dim(self) -> int:
        """Width D of the vectors."""

    @property
    def min_image_side(self) -> int | None:
        """Pixels that both sides of a decoded image must keep; None: full resolution."""

    def prepare_image(self, image: Image.Image) -> Pixels:
        """A decoded image as (3, S, S)."""

    def embed_images(self, images: Pixels) -> Vectors:
        """Unit vectors (B, D) of prepared images (B, 3, S, S)."""

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        """Unit vectors of texts."""


class Marks(Protocol):
    """Synthetic marks added to images and texts before embedding."""

    def mark_images(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """Mark images uint8 (B, 3, S, S) of these manifest rows, from 0."""

    def mark_texts(self, texts: Sequence[str], row: int) -> Sequence[str]:
        """Mark the texts of a row."""


@dataclass(frozen=True)
class EmbeddedManifest:
    """The vectors of a manifest.

    Attributes:
        records: Records with a readable image, in the manifest's order.
        image_vectors: (N, D), row i is records[i]; (N, k, D / k) of a k-blade model, (N, 1, D) of one
            without signs.
        texts: Every text of every record, in order and unmarked; a sentence may occur several times.
        text_vectors: (M, D), row j is texts[j]; shaped like those of images.
        text_owner: (M,) row of each text's record.
        skipped: Unreadable images.
        truncated: Number of distinct texts over the encoder's limit.
        sounds: Vectors of the records' sounds; None without sounds or an audio tower.
        pair_scores: (N, M), similarity of image i and text j if the encoder compares pairs, not vectors.
        pictures: (N,) digests of the pixels, to recognize equal images; empty if all differ.
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
        """For each text, the rows of records with the same sentence or an image equal to one of theirs."""
        alike: dict[bytes | int, set[int]] = {}
        pictures: Sequence[bytes | int] = self.pictures or range(len(self.records))
        for row, picture in enumerate(pictures):
            alike.setdefault(picture, set()).add(row)
        owners: dict[str, set[int]] = {}
        for text, owner in zip(self.texts, self.text_owner.tolist(), strict=True):
            owners.setdefault(text, set()).update(alike[pictures[owner]])
        return [sorted(owners[text]) for text in self.texts]

    def described(self) -> tuple[NDArray[np.int64], NDArray[np.int64], list[list[int]]]:
        """Rows of records with texts; by text, the position among these of its record and of all matches."""
        rows, owner = np.unique(self.text_owner, return_inverse=True)
        position = {row: number for number, row in enumerate(rows.tolist())}
        return rows, owner, [[position[row] for row in m if row in position] for m in self.text_matches()]


def embed_manifest(
    encoder: ImageTextEncoder,
    manifest: Manifest,
    *,
    batch_size: int = 64,
    texts: bool = True,
    marks: Marks | None = None,
    show_progress: bool = True,
) -> EmbeddedManifest:
    """Embed every image of a manifest, every distinct text once, and the sounds if the encoder supports them.

    Args:
        encoder: Embeds images and texts.
        manifest: Records to embed, usually one split. Its rejections limit how many lines and images, and
            how many lines and sounds, may be left out.
        batch_size: Images or texts per forward pass.
        texts: Also embed the texts.
        marks: Synthetic shortcuts to add first.
        show_progress: Show a bar on standard error.

    Raises:
        DataError: The manifest is empty, or too many images or sounds can't be read.
    """
    if not manifest.records:
        raise DataError(
            f"{manifest.folder} has no images in this split; choose another split or data folder."
        )
    texts = texts and "text" in encoder.modalities
    marked: list[Sequence[str]] = [record.texts if texts else () for record in manifest.records]
    if marks is not None:
        marked = [marks.mark_texts(each, row) for row, each in enumerate(marked)]
    distinct = list(dict.fromkeys(text for texts_of in marked for text in texts_of))
    pairs = None
    if distinct and isinstance(encoder, Encoder) and encoder.pair_attention is not None:
        pairs = _PairScorer(encoder, len(distinct))
    with progress_bar("embedding", len(manifest.records) + len(distinct), shown=show_progress) as bar:
        skipped = manifest.rejections.continued(len(manifest.records))
        rows: list[int] = []
        pictures: list[bytes] = []
        images: list[Vectors] = []
        for prepared in _batches(_prepared_images(encoder, manifest, batch_size), batch_size):
            bar.advance(len(prepared))
            readable = [(row, image) for row, image in prepared if isinstance(image, np.ndarray)]
            for row, image in prepared:
                if isinstance(image, ImageError):
                    record = manifest.records[row]
                    skipped.add(record.line, f"{record.image}: {image}")
            if not readable:
                continue
            read, batch = [row for row, _ in readable], np.stack([image for _, image in readable])
            rows += read
            pictures += [hashlib.sha256(image.tobytes()).digest() for image in batch]
            if marks is not None:
                batch = marks.mark_images(torch.from_numpy(batch), read).numpy()
            images.append(encoder.embed_images(batch))
            if pairs is not None:
                pairs.add_images(batch)
        if not images:
            raise skipped.error(f"None of the images of {manifest.folder} can be read: mend the data.")
        vectors, truncated = _embed_distinct(encoder, distinct, batch_size, bar, pairs)
    row_of = {text: row for row, text in enumerate(distinct)}
    columns = [row_of[text] for row in rows for text in marked[row]]
    records = tuple(manifest.records[row] for row in rows)
    scores = None if pairs is None else pairs.scores(batch_size, show_progress=show_progress)
    sounds = None
    if "audio" in encoder.modalities and isinstance(encoder, Encoder):
        sounds = embed_sounds(encoder, manifest, records, batch_size=batch_size)
    return EmbeddedManifest(
        records=records,
        image_vectors=as_blades(np.concatenate(images), encoder.blades, unsigned=encoder.unsigned),
        texts=tuple(text for record in records for text in record.texts if texts),
        text_vectors=as_blades(vectors, encoder.blades, unsigned=encoder.unsigned)[columns],
        text_owner=np.repeat(np.arange(len(rows)), [len(marked[row]) for row in rows]),
        skipped=skipped,
        truncated=truncated,
        sounds=sounds,
        pair_scores=None if scores is None else scores[:, columns],
        pictures=tuple(pictures),
    )


def _prepared_images(
    encoder: ImageTextEncoder, manifest: Manifest, batch_size: int
) -> Iterator[tuple[int, Pixels | ImageError]]:
    """Images in order, decoded at most two batches ahead of the encoder."""
    waiting: deque[tuple[int, Future[Pixels | ImageError]]] = deque()
    pool = ThreadPoolExecutor(decoding_threads(), thread_name_prefix="decode")
    files = FileDecoder()

    def prepare(path: Path) -> Pixels | ImageError:
        try:
            return encoder.prepare_image(files.decode(path, min_side=encoder.min_image_side).pixels)
        except ImageError as error:
            return error

    try:
        for row, record in enumerate(manifest.records):
            waiting.append((row, pool.submit(prepare, manifest.image_path(record))))
            if len(waiting) > _PREFETCH_BATCHES * batch_size:
                first, image = waiting.popleft()
                yield first, image.result()
        for row, image in waiting:
            yield row, image.result()
    finally:
        # Threads wait for the processes, so stop those first.
        files.close()
        pool.shutdown(cancel_futures=True)


def _batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def _embed_distinct(
    encoder: ImageTextEncoder,
    texts: Sequence[str],
    batch_size: int,
    bar: ProgressBar,
    pairs: _PairScorer | None,
) -> tuple[Vectors, int]:
    """Vectors in the order of `texts`, computed by length to save padding; the number of cut texts."""
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
