"""One record of a manifest on its way into a collection: read, compared with what is stored, prepared."""

import hashlib
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from index.catalogue.collections import Generation
from index.catalogue.lookup import revision_of
from index.catalogue.tables import EmbeddingRow, ImageRow
from index.writes.images import ImageWrite, PictureWrite
from index.writes.vectors import Embedder, ImageEncoder
from training.common.errors import ImageError, ImageTooLargeError
from training.common.host import decoding_threads
from training.common.manifest import Record
from training.imaging.formats import is_dicom
from training.imaging.images import NO_DICOM, DecodedImage, ImageLimits
from training.imaging.metadata import strip_metadata
from training.models.image_input import Pixels

_PREFETCH_BATCHES: Final = 2
Item = TypeVar("Item")
Result = TypeVar("Result")


def prefetch(
    items: Iterable[Item],
    prepare: Callable[[Item], Result],
    batch_size: int,
    *,
    threads: int | None = None,
    prefetch_batches: int = _PREFETCH_BATCHES,
    give_up: Callable[[], None] | None = None,
) -> Generator[list[tuple[Item, Result]], None, None]:
    """Prepare items in their order, a few batches ahead, and give them in batches with their results.

    Args:
        items: Taken in the caller's thread.
        prepare: Called in the threads; what it raises is raised here.
        batch_size: Items in a batch.
        threads: Number of threads; None: one a core.
        prefetch_batches: Batches prepared, or in preparation, while the caller has one.
        give_up: Called where the caller stops before the end: lets calls of `prepare` end early.
    """
    waiting: deque[list[tuple[Item, Future[Result]]]] = deque()
    source = iter(items)
    pool = ThreadPoolExecutor(threads or decoding_threads(), thread_name_prefix="intake")
    try:
        while batch := [(item, pool.submit(prepare, item)) for item in islice(source, batch_size)]:
            waiting.append(batch)
            if len(waiting) > prefetch_batches:
                yield [(item, future.result()) for item, future in waiting.popleft()]
        for batch in waiting:
            yield [(item, future.result()) for item, future in batch]
    except BaseException:
        if give_up is not None:
            give_up()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True)
class KnownImage:
    """State of an image in the catalogue when it was looked up."""

    sha256: str
    record_digest: str
    embedded: bool

    @property
    def revision(self) -> str:
        """Identifies this state of the image."""
        return revision_of(self.record_digest, self.sha256)


@dataclass(slots=True)
class Prepared:
    """A record and the file of its image, compared with what the catalogue has of them.

    Attributes:
        content: Bytes of the file as it is stored; they may be dropped.
        sha256: Their digest.
        is_new: Whether the image has to be decoded and embedded.
        is_same: Whether there is nothing to write.
        is_kept: Whether the store certainly has the file.
        begun: The note that its file may be written; 0 if none is needed.
        replaces: Digest of the image's present file, which has the same picture and other metadata.
        picture: Picture of a new image.
        pixels: Those of the picture, as the encoder takes them (3, S, S).
    """

    record: Record
    content: bytes
    sha256: str
    is_new: bool = True
    is_same: bool = False
    is_kept: bool = False
    begun: int = 0
    replaces: str | None = None
    picture: PictureWrite | None = None
    pixels: Pixels | None = None

    def take_picture(self, decoded: DecodedImage, encoder: ImageEncoder) -> None:
        """Take the picture of a new image; its vector follows by `embed_pictures`."""
        size = decoded.width, decoded.height
        self.picture = PictureWrite(self.sha256, decoded.header.media_type, *size, b"", decoded.flags)
        self.pixels = encoder.prepare_image(decoded.pixels)

    def write(self, texts: Mapping[str, bytes]) -> ImageWrite:
        """Return what is written with the vectors of its texts, and others."""
        return ImageWrite(self.record, self.picture, self.sha256, texts, self.replaces, self.content)


def embed_pictures(embedder: Embedder, items: Iterable[Prepared]) -> int:
    """Give the pictures of new images their vectors; return how many there are."""
    pixels = [item.pixels for item in items if item.pixels is not None]
    vectors = iter(embedder.images(pixels))
    for item in items:
        if item.picture is not None:
            item.picture = replace(item.picture, vector=next(vectors))
    return len(pixels)


def compare(
    stored_images: Mapping[str, KnownImage], record: Record, content: bytes, *, keep_metadata: bool = False
) -> Prepared:
    """Compare a record and the bytes of its image with what the catalogue has, by id; nothing is decoded.

    A file that differs from the stored one only in metadata replaces it, and is not embedded again.

    Raises:
        ImageError: The metadata of the file cannot be removed.
    """
    stored = stored_form(content, keep_metadata=keep_metadata)
    prepared = Prepared(record, stored, hashlib.sha256(stored).hexdigest())
    current = stored_images.get(record.id)
    if current is None:
        return prepared
    prepared.is_new = not current.embedded
    if current.sha256 == prepared.sha256:
        prepared.is_same = current.embedded and current.record_digest == record.digest()
    elif current.sha256 in _other_forms(content, keep_metadata=keep_metadata):
        prepared.replaces = current.sha256
    else:
        prepared.is_new = True
    return prepared


def stored_form(content: bytes, *, keep_metadata: bool) -> bytes:
    """Return an image file as it is stored; of a DICOM file, the names of patients are kept by no setting.

    Raises:
        ImageError: The metadata of the file cannot be removed.
    """
    if is_dicom(content):
        # Importing pydicom takes longer than most commands.
        from training.clinical.dicom.films import strip_dicom

        return strip_dicom(content)
    return content if keep_metadata else strip_metadata(content)


def digests_of(path: Path, limits: ImageLimits, *, keep_metadata: bool) -> tuple[str, ...]:
    """Return the digests that a file may be stored under; none where it cannot be read."""
    try:
        content = read_limited(path, limits)
        own = hashlib.sha256(stored_form(content, keep_metadata=keep_metadata)).hexdigest()
    except ImageError:
        return ()
    return (own, *_other_forms(content, keep_metadata=keep_metadata))


def _other_forms(content: bytes, *, keep_metadata: bool) -> set[str]:
    """Return the digest of the file as the other choice stores it."""
    try:
        return {hashlib.sha256(stored_form(content, keep_metadata=not keep_metadata)).hexdigest()}
    except ImageError:
        return set()


def known_images(
    session: Session, generation: Generation, ids: Collection[str] | None = None
) -> dict[str, KnownImage]:
    """Return what the catalogue has of images, by id: of these, or of all of the collection."""
    ours = and_(EmbeddingRow.image_id == ImageRow.id, EmbeddingRow.generation_id == generation.id)
    query = (
        select(ImageRow.external_id, ImageRow.sha256, ImageRow.record_digest, EmbeddingRow.image_id)
        .outerjoin(EmbeddingRow, ours)
        .where(ImageRow.collection_id == generation.collection_id)
    )
    if ids is not None:
        query = query.where(ImageRow.external_id.in_(list(ids)))
    images: dict[str, KnownImage] = {}
    for external_id, sha256, digest, embedded in session.execute(query):
        images[external_id] = KnownImage(sha256, digest, embedded is not None)
    return images


def read_limited(path: Path, limits: ImageLimits) -> bytes:
    """Read a file that may be too large.

    Raises:
        ImageTooLargeError: The file is too large.
        ImageError: The file cannot be read, or is DICOM where this is not taken.
    """
    try:
        most = limits.max_dicom_bytes
        content = path.read_bytes() if path.stat().st_size <= most else None
        if content is not None and not is_dicom(content):
            most = limits.max_bytes
        elif content is not None and not limits.dicom:
            raise ImageError(NO_DICOM)
        if content is None or len(content) > most:
            raise ImageTooLargeError(f"The file has over {most / 1e6:,.1f} MB (RECOQUEST_MAX_IMAGE_BYTES).")
        return content
    except OSError as error:
        raise ImageError(f"The file cannot be read: {error.strerror or error}.") from error
