"""Images of one's own: a folder, with or without a table that says what they show."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from training.data.readers.listing import Listing
from training.data.readers.tables import read_table
from training.data.record import Record, Scalar, Split
from training.data.rejections import Rejection
from training.errors import DataError

_SUFFIXES: Final = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
_ABOUT: Final = frozenset({"image", "id", "text", "labels", "split", "group"})
_BETWEEN_LABELS: Final = ";"
# 007 and 1e5 are names, and so is what a double does not tell from the next.
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d{0,14})(\.\d+)?")
_SPLITS: Final[dict[str, Split]] = {"train": "train", "val": "val", "test": "test"}
# Of ten images without a split, one is for validation and one for testing.
_DRAWN: Final[tuple[Split, ...]] = ("val", "test", *("train",) * 8)


@dataclass
class _Row:
    """What a table says of an image, on one or more lines."""

    line: int
    known: dict[str, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)

    def add(self, line: Mapping[str, str]) -> None:
        for name, value in line.items():
            if value.strip():
                self.known.setdefault(name, value.strip())
        if text := " ".join(line.get("text", "").split()):
            self.texts.append(text)


def list_folder(images: Path, table: Path | None = None) -> Listing:
    """Find all images in a folder and below, or those that a table names.

    The table has a column `image` with paths inside the folder. An image may have several lines, each with
    another `text`. `labels` are separated by semicolons; `id`, `split` and `group` are those of a manifest;
    every other column becomes metadata, numbers if all its values are.

    Raises:
        DataError: There are no images, or the table cannot be read.
    """
    rows = _find(images) if table is None else _read(table)
    if not rows:
        raise DataError(f"{table or images} has no images ({', '.join(_SUFFIXES)}).")
    numbers = _numeric({name for row in rows.values() for name in row.known} - _ABOUT, rows)
    items = (_to_record(image, row, numbers) for image, row in rows.items())
    return Listing(table or images, images, len(rows), items, unit="image" if table is None else "line")


def _find(images: Path) -> dict[str, _Row]:
    inside = (path.relative_to(images) for path in images.rglob("*") if path.suffix.lower() in _SUFFIXES)
    # Thumbnails and other files that programs hide are no images of the user's.
    shown = sorted(path.as_posix() for path in inside if not any(part.startswith(".") for part in path.parts))
    return {image: _Row(number) for number, image in enumerate(shown, 1)}


def _read(table: Path) -> dict[str, _Row]:
    rows: dict[str, _Row] = {}
    for number, line in read_table(table, ("image",)):
        rows.setdefault(line["image"].strip(), _Row(number)).add(line)
    return rows


def _numeric(columns: set[str], rows: Mapping[str, _Row]) -> set[str]:
    return {
        name
        for name in columns
        if all(_NUMBER.fullmatch(row.known[name]) for row in rows.values() if name in row.known)
    }


def _to_record(image: str, row: _Row, numbers: set[str]) -> Record | Rejection:
    group, split = row.known.get("group"), row.known.get("split")
    if split is not None and split not in _SPLITS:
        return Rejection(row.line, f"the split {split!r} is not one of {', '.join(_SPLITS)}")
    return Record(
        id=row.known.get("id", image.replace("/", "-")),
        image=image,
        split=_draw(group or image) if split is None else _SPLITS[split],
        texts=tuple(row.texts),
        group=group,
        labels=tuple(filter(None, map(str.strip, row.known.get("labels", "").split(_BETWEEN_LABELS)))),
        metadata=dict(_metadata(image, row, numbers)),
        line=row.line,
    )


def _draw(name: str) -> Split:
    """Takes a split by a digest: the same for all images of a group, and again at the next import."""
    return _DRAWN[hashlib.sha256(name.encode()).digest()[0] % len(_DRAWN)]


def _metadata(image: str, row: _Row, numbers: set[str]) -> Iterator[tuple[str, Scalar]]:
    folder = PurePosixPath(image).parent.as_posix()
    if folder != ".":
        yield "folder", folder
    for name, value in row.known.items():
        if name not in _ABOUT:
            yield name, _number(value) if name in numbers else value


def _number(value: str) -> int | float:
    return float(value) if "." in value else int(value)
