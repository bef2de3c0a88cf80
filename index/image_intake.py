"""One record of a manifest on its way into a collection: read, compared with what is stored, prepared."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from torch import Tensor

from index.store import ImageStore
from training.data.images import ImageLimits, decode_image, read_header
from training.data.manifest import Record
from training.errors import ImageError, ImageTooLargeError


@dataclass(frozen=True, slots=True)
class KnownImage:
    """What the catalogue had of an image when the run began."""

    sha256: str
    record_digest: str
    embedded: bool


@dataclass(frozen=True, slots=True)
class Picture:
    """An image file that is in the store, and its pixels as the encoder takes them, uint8 (3, S, S)."""

    sha256: str
    media_type: str
    width: int
    height: int
    pixels: Tensor


@dataclass(frozen=True, slots=True)
class Prepared:
    """A record that can be written; `picture` is None when its embedding is there already."""

    record: Record
    record_digest: str
    picture: Picture | None


@dataclass(frozen=True, slots=True)
class Intake:
    """Prepares records; threads may share it.

    Attributes:
        store: Where image files are kept.
        known: What the catalogue has, by id.
        prepare_image: Turns a decoded image into pixels for the encoder.
        limits: What an image may cost.
    """

    store: ImageStore
    known: Mapping[str, KnownImage]
    prepare_image: Callable[[Image.Image], Tensor]
    limits: ImageLimits

    def prepare(self, record: Record, path: Path) -> Prepared | ImageError | None:
        """Return what has to be written; None when nothing has; the error when the image cannot be used.

        Raises:
            StoreError: The disk does not take the file.
        """
        try:
            content = _read(path, self.limits)
            sha256 = hashlib.sha256(content).hexdigest()
            known = self.known.get(record.id)
            digest = record_digest(record)
            if known is not None and known.embedded and known.sha256 == sha256:
                self.store.put(content)
                return None if known.record_digest == digest else Prepared(record, digest, None)
            return Prepared(record, digest, self._picture(content))
        except ImageError as error:
            return error

    def _picture(self, content: bytes) -> Picture:
        header = read_header(content, self.limits)
        image = decode_image(content, self.limits)
        pixels = self.prepare_image(image)
        # Only what can be decoded is kept.
        sha256 = self.store.put(content)
        return Picture(sha256, header.media_type, image.width, image.height, pixels)


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


def _read(path: Path, limits: ImageLimits) -> bytes:
    try:
        if path.stat().st_size > limits.max_bytes:
            raise ImageTooLargeError(f"The file has over {limits.max_bytes / 1e6:,.1f} MB.")
        return path.read_bytes()
    except OSError as error:
        raise ImageError(f"The file cannot be read: {error.strerror or error}.") from error
