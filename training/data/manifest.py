"""The manifest: one JSON object a line that names an image, its texts, its split and what is known of it."""

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

from training.atomic import atomic_file
from training.data.rejections import Rejection, Rejections
from training.errors import DataError

__all__ = [
    "MANIFEST_NAME",
    "Manifest",
    "MetadataValue",
    "Record",
    "Rejection",
    "Rejections",
    "Scalar",
    "Split",
    "read_manifest",
    "write_manifest",
]

Scalar = str | int | float | bool
MetadataValue = Scalar | tuple[Scalar, ...]
Split = Literal["train", "val", "test"]

MANIFEST_NAME: Final = "manifest.jsonl"
_SPLITS: Final[frozenset[str]] = frozenset(get_args(Split))
_KEYS: Final = ("id", "image", "split", "texts", "group", "labels", "report", "metadata")
_RESERVED: Final = frozenset({"id", "split", "group", "labels"})
_LARGEST_INTEGER: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Record:
    """One image with what is known of it.

    Attributes:
        id: Name of the image, unique in its manifest.
        image: POSIX path of the file, relative to the manifest's folder and never leaving it.
        split: Which part of the data it belongs to.
        texts: Sentences or captions; may be empty.
        group: Ties images that must stay in one split together, such as those of one patient.
        labels: Classes, in any number.
        report: The whole text that the sentences were taken from.
        metadata: What a search can filter on.
        line: Line of the manifest, from 1; 0 for a record that was not read from one.
    """

    id: str
    image: str
    split: Split
    texts: tuple[str, ...] = ()
    group: str | None = None
    labels: tuple[str, ...] = ()
    report: str | None = None
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Manifest:
    """The usable records of a manifest, in the file's order, and what had to be left out."""

    folder: Path
    records: tuple[Record, ...]
    rejections: Rejections

    def split(self, name: Split) -> "Manifest":
        """The same manifest with the records of one split only."""
        return replace(self, records=tuple(record for record in self.records if record.split == name))

    def image_path(self, record: Record) -> Path:
        """Where a record's image lies."""
        return self.folder / record.image


def read_manifest(folder: Path, *, max_rejected: float = 0.01) -> Manifest:
    """Read `manifest.jsonl` in `folder` and check that every image is there.

    A line is left out, and named in `rejections`, when it is not a JSON object with known keys and values of
    the right kind, repeats an id, puts a group into a second split, or names an image that is missing or
    outside the folder. Empty lines are passed over. Links that lie in the folder are followed.

    Args:
        folder: Where the manifest and its images lie.
        max_rejected: Largest share of lines that may be left out, from 0 to 1.

    Raises:
        DataError: There is no manifest, it is empty, or more lines than `max_rejected` cannot be used.
    """
    path = folder / MANIFEST_NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"There is no {MANIFEST_NAME} in {folder}; give the folder that holds one.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    lines = [(number, line) for number, line in enumerate(content.split(b"\n"), 1) if line.strip()]
    if not lines:
        raise DataError(f"{path} is empty; it needs one JSON object a line.")
    rejections = Rejections(total=len(lines), max_share=max_rejected, source=str(path))
    checks = _ManifestChecks(folder)
    records = []
    for number, line in lines:
        try:
            record = _parse_line(line, number)
            checks.check(record)
        except _LineError as error:
            rejections.add(number, str(error))
        else:
            records.append(record)
    return Manifest(folder, tuple(records), rejections)


def write_manifest(folder: Path, records: Iterable[Record]) -> None:
    """Write `manifest.jsonl` into `folder`, whole or not at all.

    Raises:
        DataError: A record would not be readable again, such as one with a repeated id.
    """
    with atomic_file(folder / MANIFEST_NAME) as file:
        checks = _ManifestChecks(None)
        for number, record in enumerate(records, 1):
            try:
                checks.check(_parse_object(_to_object(record), number))
                line = json.dumps(_to_object(record), ensure_ascii=False, allow_nan=False).encode() + b"\n"
            except (_LineError, ValueError) as error:
                raise DataError(f"Record {number} ({record.id!r}) cannot be written: {error}.") from error
            file.write(line)


class _LineError(Exception):
    """Why one line cannot be used, without its number."""


class _ManifestChecks:
    """What must hold between the lines of one manifest."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lines: dict[str, int] = {}
        self._groups: dict[str, tuple[Split, int]] = {}

    def check(self, record: Record) -> None:
        first = self._lines.setdefault(record.id, record.line)
        if first != record.line:
            raise _LineError(f"the id {record.id!r} is on line {first} already")
        if record.group is not None:
            split, line = self._groups.setdefault(record.group, (record.split, record.line))
            if split != record.split:
                raise _LineError(
                    f"the group {record.group!r} is in {split!r} since line {line} and cannot be in {record.split!r} too"
                )
        if self._folder is not None and not os.path.isfile(f"{self._folder}/{record.image}"):  # noqa: PTH113
            raise _LineError(f"there is no image {record.image!r}")


def _to_object(record: Record) -> dict[str, Any]:
    known: dict[str, Any] = {
        "id": record.id,
        "image": record.image,
        "texts": list(record.texts),
        "split": record.split,
    }
    if record.group is not None:
        known["group"] = record.group
    if record.labels:
        known["labels"] = list(record.labels)
    if record.report is not None:
        known["report"] = record.report
    if record.metadata:
        known["metadata"] = {
            key: list(value) if isinstance(value, tuple) else value for key, value in record.metadata.items()
        }
    return known


def _parse_line(line: bytes, number: int) -> Record:
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise _LineError(f"it is not UTF-8 text (byte {error.start + 1})") from error
    try:
        known = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise _LineError(
            f"it is not JSON: {error.msg[:1].lower()}{error.msg[1:]} (column {error.colno})"
        ) from error
    except (RecursionError, ValueError) as error:
        raise _LineError("it is nested too deeply or has a number that is too long") from error
    return _parse_object(known, number)


def _parse_object(known: object, number: int) -> Record:
    if not isinstance(known, dict):
        raise _LineError("it is not a JSON object")
    for key in known:
        if key not in _KEYS:
            raise _LineError(f"unknown key {key!r}; known are {', '.join(_KEYS)}")
    for key in ("id", "image", "split"):
        if known.get(key) is None:
            raise _LineError(f"{key!r} is missing")
    return Record(
        id=_identifier(known["id"]),
        image=_relative_path(known["image"]),
        split=_split(known["split"]),
        texts=_strings(known.get("texts"), "texts"),
        group=_optional_string(known.get("group"), "group"),
        labels=_strings(known.get("labels"), "labels"),
        report=_optional_string(known.get("report"), "report"),
        metadata=_metadata(known.get("metadata")),
        line=number,
    )


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    known = dict(pairs)
    if len(known) != len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise _LineError(f"the key {repeated!r} is given twice")
    return known


def _no_constant(name: str) -> float:
    raise _LineError(f"{name} is not a JSON number")


def _string(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise _LineError(f"{name!r} must be a string")
    if not value or value.isspace():
        raise _LineError(f"{name!r} is empty")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _LineError(f"{name!r} holds half of a surrogate pair") from error
    if "\0" in value:
        raise _LineError(f"{name!r} holds a null character")
    return value


def _optional_string(value: object, name: str) -> str | None:
    return None if value is None else _string(value, name)


def _strings(value: object, name: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _LineError(f"{name!r} must be a list of strings")
    return tuple([_string(item, f"{name}[{place}]") for place, item in enumerate(value)])


def _identifier(value: object) -> str:
    name = _string(value, "id")
    if "/" in name or not name.isprintable() or name != name.strip() or name in (".", ".."):
        raise _LineError(
            f"the id {name!r} cannot be part of an address: no '/', control characters or outer spaces"
        )
    return name


def _relative_path(value: object) -> str:
    path = _string(value, "image")
    if path.startswith("/") or "\\" in path or ".." in path.split("/"):
        raise _LineError(
            f"the image {path!r} must be a relative path with '/' that stays in the manifest's folder"
        )
    return path


def _split(value: object) -> Split:
    if value == "train":
        return "train"
    if value == "val":
        return "val"
    if value == "test":
        return "test"
    raise _LineError(f"the split {value!r} is not one of train, val, test")


def _metadata(value: object) -> Mapping[str, MetadataValue]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _LineError("'metadata' must be an object")
    if not _RESERVED.isdisjoint(value):
        raise _LineError(
            f"metadata cannot use the name {sorted(_RESERVED & value.keys())[0]!r}, a key of the record"
        )
    return {
        _string(key, "metadata key"): _metadata_value(item, key)
        for key, item in value.items()
        if item is not None
    }


def _metadata_value(value: object, key: str) -> MetadataValue:
    if isinstance(value, list):
        return tuple([_scalar(item, key) for item in value])
    return _scalar(value, key)


def _scalar(value: object, key: str) -> Scalar:
    if isinstance(value, str):
        return _string(value, f"metadata.{key}") if value else value
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) > _LARGEST_INTEGER:
            raise _LineError(f"metadata.{key} does not fit into 64 bits")
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _LineError(f"metadata.{key} is not a finite number")
        return value
    raise _LineError(f"metadata.{key} must be a string, a number, true, false, or a list of these")
