"""Data in memory: records as a manifest, and a manifest as a torch Dataset."""

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from training.common.errors import DataError, ImageError
from training.common.manifest import MANIFEST_NAME, Manifest, Record, read_manifest
from training.common.record import LineError, format_line, parse_line
from training.imaging.images import decode_image
from training.models.preprocessing import ImagePreprocessing

# Modes of Pillow that a PNG keeps as they are.
_PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")


class Pair(NamedTuple):
    """An image, prepared as (3, S, S) uint8 or as decoded, with its texts, labels and id."""

    image: Tensor | Image.Image
    texts: tuple[str, ...]
    labels: tuple[str, ...]
    id: str


class PairDataset(Dataset[Pair]):
    """The images of a manifest, decoded on access; works with DataLoader workers.

    With a preprocessing each image is a uint8 tensor (3, S, S); for the input of a tower, apply
    `preprocessing.normalise(preprocessing.to_unit(batch))`. Without one it is the decoded image. The number
    of texts varies, so a DataLoader needs a `collate_fn`, for example `list`.
    """

    def __init__(self, manifest: Manifest, preprocessing: ImagePreprocessing | None = None) -> None:
        self.manifest = manifest
        self.preprocessing = preprocessing

    def __len__(self) -> int:
        """Number of images."""
        return len(self.manifest.records)

    def __getitem__(self, row: int) -> Pair:
        """Decode the image of a record.

        Raises:
            ImageError: It can't be decoded.
        """
        record, preprocessing = self.manifest.records[row], self.preprocessing
        min_side = None if preprocessing is None else preprocessing.config.min_side
        try:
            image = decode_image(self.manifest.image_path(record), min_side=min_side)
        except ImageError as error:
            raise ImageError(f"{record.image}: {error}") from error
        made = image if preprocessing is None else preprocessing.to_uint8(image)
        return Pair(made, record.texts, record.labels, record.id)


class Items(Protocol):
    """A sequence or map-style torch Dataset of records or mappings."""

    def __len__(self) -> int:
        """Number of records."""

    def __getitem__(self, row: int, /) -> Record | Mapping[str, Any]:
        """The record at a position."""


def as_manifest(data: Path | str | Manifest | Items, folder: Path, *, max_rejected: float = 1.0) -> Manifest:
    """The manifest of a data folder, or of records in memory (see `manifest_of`).

    Raises:
        DataError: No record is usable, or more than the share `max_rejected` isn't.
    """
    if isinstance(data, Manifest):
        return data
    if isinstance(data, str | Path):
        return read_manifest(Path(data), max_rejected=max_rejected)
    return manifest_of(data, folder, max_rejected=max_rejected)


def manifest_of(records: Items, folder: Path, *, max_rejected: float = 1.0) -> Manifest:
    """Write records into a folder as a manifest, and read it.

    A record is a `Record`, or a mapping with the keys of a manifest line. Its `image` is a path (linked),
    the bytes of a file, or a Pillow image or array (H, W) or (H, W, 3) uint8 (saved as PNG); `audio` is a
    path or bytes. `id` defaults to the record's number and `split` to "train"; a single text or label may be
    a string.

    Raises:
        DataError: No record is usable, or more than the share `max_rejected` isn't.
    """
    if not hasattr(records, "__len__"):
        raise DataError(
            f"Records are a list or a Dataset with a length, and {type(records).__name__} has none: give a "
            "list of them."
        )
    lines, ids = [], set[str]()
    for row in range(len(records)):
        try:
            line = _line(records[row], row, folder)
            read = parse_line(line.rstrip(), row + 1)
            if read.id in ids:
                raise LineError(f"another record has the id {read.id!r}")
        except (AttributeError, LineError, OSError, TypeError, ValueError) as error:
            raise DataError(f"Record {row} can't be used: {error}.") from error
        ids.add(read.id)
        lines.append(line)
    _put(b"".join(lines), folder / MANIFEST_NAME)
    return read_manifest(folder, max_rejected=max_rejected)


def _line(item: Record | Mapping[str, Any], row: int, folder: Path) -> bytes:
    if not isinstance(item, Record | Mapping):
        raise TypeError(f"it is a {type(item).__name__}, not a mapping with the keys `image` and `texts`")
    content: dict[str, Any] = (
        dict(item) if isinstance(item, Mapping) else {"image": item.image, "audio": item.audio}
    )
    for kind in ("image", "audio"):
        if content.get(kind) is not None:
            _put(content[kind], folder / kind / str(row))
            content[kind] = f"{kind}/{row}"
    if isinstance(item, Record):
        return format_line(replace(item, **content, split=item.split or "train"))
    for kind in ("texts", "not_texts", "labels"):
        if isinstance(content.get(kind), str):
            content[kind] = [content[kind]]
    content = {"id": str(row), "split": "train", **content}
    return json.dumps(content, default=lambda value: value.tolist()).encode() + b"\n"


def _put(content: Any, path: Path) -> None:
    """Link to a file, or write bytes or pixels to one; safe to run in several processes at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{secrets.token_hex(8)}")
    if isinstance(content, str | os.PathLike):
        part.symlink_to(Path(content).expanduser().absolute())
    elif isinstance(content, bytes):
        part.write_bytes(content)
    else:
        picture = content if isinstance(content, Image.Image) else _picture(np.asarray(content))
        exact = picture if picture.mode in _PNG_MODES else picture.convert("RGB")
        exact.save(part, "PNG", compress_level=1)
    part.replace(path)


def _picture(pixels: NDArray[Any]) -> Image.Image:
    try:
        return Image.fromarray(pixels)
    except TypeError:
        shape = "(H, W) or (H, W, 3)"
        raise TypeError(
            f"its image is {pixels.dtype} of shape {pixels.shape}, and has to be uint8 of shape {shape}"
        ) from None
