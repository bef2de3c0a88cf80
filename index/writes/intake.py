"""One record of a manifest on its way into a collection: read, compared with what is stored, prepared."""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image
from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from index.catalogue.collections import Generation
from index.catalogue.tables import EmbeddingRow, ImageRow
from index.files.image_store import ImageStore
from index.search.results import revision_of
from index.writes.images import ImageWrite, PictureWrite
from training.common.errors import ImageError, ImageTooLargeError
from training.common.manifest import Record
from training.imaging.dicom_signature import is_dicom
from training.imaging.images import ImageLimits, check_kind
from training.imaging.metadata import strip_metadata
from training.imaging.processes.file_decoder import FileDecoder
from training.models.inputs.images import Pixels


@dataclass(frozen=True, slots=True)
class KnownImage:
    """State of an image in the catalogue when it was looked up."""

    sha256: str
    record_digest: str
    embedded: bool

    @property
    def revision(self) -> str:
        """Names this state of the image."""
        return revision_of(self.record_digest, self.sha256)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A record that can be written.

    Attributes:
        sha256: Digest of the file that is stored.
        picture: None when its embedding is there already.
        replaces: Digest of the image's present file, which has the same picture and other metadata.
        pixels: Those of the picture, as the encoder takes them (3, S, S).
    """

    record: Record
    record_digest: str
    sha256: str
    picture: PictureWrite | None
    replaces: str | None = None
    pixels: Pixels | None = None

    def write(self, vectors: Iterator[bytes], texts: Mapping[str, bytes]) -> ImageWrite:
        """Return what is written with the vectors of its texts; one with a picture takes the next vector."""
        picture = None if self.picture is None else replace(self.picture, vector=next(vectors))
        own = {text: texts[text] for text in self.record.texts if text in texts}
        return ImageWrite(self.record, self.record_digest, picture, self.sha256, own, self.replaces)


@dataclass(frozen=True, slots=True)
class Compared:
    """A record beside what the catalogue has of its image.

    Attributes:
        prepared: The write, without the picture of a new image; None: nothing to write.
        is_new: Whether the image has to be decoded and embedded.
        content: The bytes to be stored.
        sha256: Their digest.
    """

    prepared: Prepared | None
    is_new: bool
    content: bytes
    sha256: str

    def with_picture(
        self, media_type: str, width: int, height: int, pixels: Pixels, flags: tuple[str, ...]
    ) -> Prepared:
        """Return what has to be written of a new image; see `PictureWrite`."""
        assert self.prepared is not None
        picture = PictureWrite(self.prepared.sha256, media_type, width, height, b"", flags)
        return replace(self.prepared, picture=picture, pixels=pixels)


@dataclass(frozen=True, slots=True)
class CheckedImage:
    """An image that passed all checks.

    Attributes:
        sha256: Digest of its file.
        kept: Whether the store has the file.
        prepared: The write to the catalogue; None: nothing to write.
    """

    sha256: str
    kept: bool
    prepared: Prepared | None


@dataclass(frozen=True, slots=True)
class Intake:
    """Prepares records; threads may share it.

    Attributes:
        store: Store of image files.
        known: Images of the catalogue, by id.
        files: Decodes files.
        prepare_image: Turns a decoded image into pixels for the encoder.
        limits: Limits of bytes, pixels and frames of an image.
        min_side: Pixels that both sides of a decoded image must keep; None: full resolution.
        keep_metadata: Whether files are stored as they are; else without position, names and comments.
    """

    store: ImageStore
    known: Mapping[str, KnownImage]
    files: FileDecoder
    prepare_image: Callable[[Image.Image], Pixels]
    limits: ImageLimits
    min_side: int | None = None
    keep_metadata: bool = False

    def prepare(self, record: Record, path: Path) -> CheckedImage | ImageError:
        """Return what is to be done for a record; the error when its image cannot be used."""
        try:
            compared = self._check(record, read_limited(path, self.limits))
        except ImageError as error:
            return error
        kept = self.store.holds(compared.sha256, compared.content)
        return CheckedImage(compared.sha256, kept, compared.prepared)

    def keep(self, checked: CheckedImage, path: Path) -> ImageError | None:
        """Put the file of an image into the store if it is not there; the error when it cannot be read again.

        Only what can be decoded is kept; what was kept before comes back if the disk has lost it. Its digest
        must have been noted as an orphan.

        Raises:
            DiskFullError: The disk has no space left.
            StoreError: The disk does not take the file.
        """
        if checked.kept:
            return None
        try:
            self.store.put(self.read_again(checked.sha256, path))
        except ImageError as error:
            return error
        return None

    def read_again(self, sha256: str, path: Path) -> bytes:
        """Read the file of a checked image as it is stored.

        Raises:
            ImageError: The file cannot be read, or was replaced meanwhile.
        """
        content = stored_form(read_limited(path, self.limits), keep_metadata=self.keep_metadata)
        if _digest(content) != sha256:
            raise ImageError("The file was changed while it was being indexed.")
        return content

    def _check(self, record: Record, content: bytes) -> Compared:
        """Compare a record and its image with the catalogue, and decode an image that is new.

        Raises:
            ImageError: The image cannot be used.
        """
        try:
            compared = compare(self.known, record, content, keep_metadata=self.keep_metadata)
        except ImageError:
            # The decoder has better words for most damage.
            self.files.decode(content, self.limits, self.min_side)
            raise
        if not compared.is_new:
            return compared
        # The vector is of the file that is stored.
        decoded = self.files.decode(compared.content, self.limits, self.min_side)
        pixels = self.prepare_image(decoded.pixels)
        prepared = compared.with_picture(
            decoded.header.media_type, decoded.width, decoded.height, pixels, decoded.flags
        )
        return replace(compared, prepared=prepared)


def compare(
    known: Mapping[str, KnownImage], record: Record, content: bytes, *, keep_metadata: bool = False
) -> Compared:
    """Compare a record and the bytes of its image with what the catalogue has, by id; nothing is decoded.

    A file whose metadata alone differs from the stored one takes its place, and is not embedded again.

    Raises:
        ImageError: The metadata of the file cannot be removed.
    """
    stored = stored_form(content, keep_metadata=keep_metadata)
    sha256 = _digest(stored)
    digest = record_digest(record)
    prepared = Prepared(record, digest, sha256, None)
    found = known.get(record.id)
    if found is None:
        return Compared(prepared, is_new=True, content=stored, sha256=sha256)
    if found.sha256 != sha256:
        is_other = found.sha256 not in _other_forms(content, keep_metadata=keep_metadata)
        prepared = replace(prepared, replaces=None if is_other else found.sha256)
        return Compared(prepared, is_other or not found.embedded, stored, sha256)
    is_same = found.embedded and found.record_digest == digest
    return Compared(None if is_same else prepared, not found.embedded, stored, sha256)


def stored_form(content: bytes, *, keep_metadata: bool) -> bytes:
    """Return an image file as it is stored; of a DICOM file, the names of patients are kept by no setting.

    Raises:
        ImageError: The metadata of the file cannot be removed.
    """
    if is_dicom(content):
        # Importing pydicom takes longer than most commands.
        from training.clinical.dicom.strip import strip_dicom

        return strip_dicom(content)
    return content if keep_metadata else strip_metadata(content)


def digests_of(path: Path, limits: ImageLimits, *, keep_metadata: bool) -> tuple[str, ...]:
    """Return the digests that a file may be stored under; none where it cannot be read."""
    try:
        content = read_limited(path, limits)
        own = _digest(stored_form(content, keep_metadata=keep_metadata))
    except ImageError:
        return ()
    return (own, *_other_forms(content, keep_metadata=keep_metadata))


def _other_forms(content: bytes, *, keep_metadata: bool) -> set[str]:
    """Return the digest of the file as the other choice stores it."""
    try:
        return {_digest(stored_form(content, keep_metadata=not keep_metadata))}
    except ImageError:
        return set()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


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
    return {
        external_id: KnownImage(sha256, digest, embedded is not None)
        for external_id, sha256, digest, embedded in session.execute(query)
    }


def record_digest(record: Record) -> str:
    """Return the SHA-256 over what a record says of its image, apart from where the file lies."""
    content = {
        "texts": record.texts,
        "split": record.split,
        "group": record.group,
        "labels": record.labels,
        "report": record.report,
        "metadata": dict(record.metadata),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


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
        elif content is not None:
            check_kind(content, limits)
        if content is None or len(content) > most:
            raise ImageTooLargeError(f"The file has over {most / 1e6:,.1f} MB (RECOQUEST_MAX_IMAGE_BYTES).")
        return content
    except OSError as error:
        raise ImageError(f"The file cannot be read: {error.strerror or error}.") from error
