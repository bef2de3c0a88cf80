"""One line of a manifest: what it may hold, and how it is read and written."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

Scalar = str | int | float | bool
MetadataValue = Scalar | tuple[Scalar, ...]
Split = Literal["train", "val", "test"]

_KEYS: Final = (
    *("id", "image", "audio", "split", "texts", "not_texts", "group", "labels", "report", "metadata"),
    "sha256",
)
# Flags that decoding an image gives: one color; the end of the file is missing; the picture follows a page
# that is marked as a thumbnail of it.
BLANK_FIELD: Final = "image.blank"
TRUNCATED_FIELD: Final = "image.truncated"
PREVIEW_FIELD: Final = "image.preview_skipped"


class OwnField(NamedTuple):
    """A field of every image that filters can name, and no metadata of a manifest.

    Attributes:
        set_by: The "record" has it as a key; or decoding the "picture" gives it, a flag.
        column: Column of the catalogue's images that has its one text; None: the values are attributes.
    """

    name: str
    set_by: Literal["record", "picture"]
    column: str | None = None


OWN_FIELDS: Final = (
    OwnField("id", "record", "external_id"),
    OwnField("split", "record", "split"),
    OwnField("group", "record", "group_name"),
    OwnField("labels", "record"),
    *(OwnField(flag, "picture") for flag in (BLANK_FIELD, TRUNCATED_FIELD, PREVIEW_FIELD)),
)
RECORD_FIELDS: Final = tuple(field.name for field in OWN_FIELDS if field.set_by == "record")
# Fields that an image has only where they are true.
FLAG_FIELDS: Final = tuple(field.name for field in OWN_FIELDS if field.set_by != "record")
PICTURE_FIELDS: Final = tuple(field.name for field in OWN_FIELDS if field.set_by == "picture")
_OWN_NAMES: Final = frozenset({*RECORD_FIELDS, *FLAG_FIELDS})
_LONGEST_ID: Final = 255
_DIGEST: Final = re.compile("[0-9a-f]{64}")
# PostgreSQL indexes no more than 2,704 bytes, of a name and a value together.
MOST_VALUE_BYTES: Final = 2000
_MOST_NAME_BYTES: Final = 500
LARGEST_INTEGER: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Record:
    """One image with what is known of it.

    Attributes:
        id: Name of the image, unique in its manifest.
        image: POSIX path of the file, relative to the manifest's folder and never leaving it.
        split: Which part of the data it belongs to; None: a reader leaves it to the import to draw it.
        texts: Sentences or captions; may be empty.
        group: Ties images that must stay in one split together, such as those of one patient.
        labels: Classes, in any number.
        report: The whole text that the sentences were taken from.
        metadata: What a search can filter on.
        audio: POSIX path of a sound that belongs to the image, relative like it; None if there is none.
        not_texts: Texts that the image may seem to fit and does not: a hard negative of theirs in training.
        sha256: Digest of the image's file when it was imported; None if no import has read it.
        line: Line of the manifest, from 1; 0 for a record that was not read from one.
        table: Name of the table that has the line, where a data set has several.
        rows: Number of rows of a table that it was made from.
    """

    id: str
    image: str
    split: Split | None = None
    texts: tuple[str, ...] = ()
    group: str | None = None
    labels: tuple[str, ...] = ()
    report: str | None = None
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    audio: str | None = None
    not_texts: tuple[str, ...] = ()
    sha256: str | None = None
    line: int = field(default=0, compare=False)
    table: str = field(default="", compare=False)
    rows: int = field(default=1, compare=False)

    def digest(self) -> str:
        """Return the SHA-256 over what it says of its image, apart from the path of its file."""
        names = ("texts", "split", "group", "labels", "report")
        content = {**{name: getattr(self, name) for name in names}, "metadata": dict(self.metadata)}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class LineError(Exception):
    """Why one line cannot be used; the sentence goes without the line's number."""


def parse_line(line: bytes, number: int) -> Record:
    """Read one line of a manifest.

    Raises:
        LineError: It is not a JSON object with the keys of a record and values of the right kind.
    """
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise LineError(f"it is not UTF-8 text (byte {error.start + 1})") from error
    try:
        known = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        reason = error.msg[:1].lower() + error.msg[1:]
        raise LineError(f"it is not JSON: {reason} (column {error.colno})") from error
    except (RecursionError, ValueError) as error:
        raise LineError("it is nested too deeply or has a number that is too long") from error
    return _parse_object(known, number)


def format_line(record: Record) -> bytes:
    """Write one record as a line that `parse_line` gives back unchanged.

    Raises:
        LineError: The record holds something that a manifest cannot.
    """
    metadata = {
        key: list(value) if isinstance(value, tuple) else value for key, value in record.metadata.items()
    }
    known: dict[str, Any] = {"id": record.id, "image": record.image, "texts": list(record.texts)}
    known |= {"split": record.split, "audio": record.audio, "group": record.group}
    known |= {"labels": list(record.labels) or None, "report": record.report, "metadata": metadata or None}
    known |= {"not_texts": list(record.not_texts) or None, "sha256": record.sha256}
    # A split is required.
    known = {key: value for key, value in known.items() if value is not None or key == "split"}
    _parse_object(known, record.line)
    return json.dumps(known, ensure_ascii=False).encode() + b"\n"


def _parse_object(known: object, number: int) -> Record:
    if not isinstance(known, dict):
        raise LineError("it is not a JSON object")
    for key in known:
        if key not in _KEYS:
            raise LineError(f"unknown key {_shown(key)}; known are {', '.join(_KEYS)}")
    for key in ("id", "image", "split"):
        if known.get(key) is None:
            raise LineError(f"{key!r} is missing")
    name = _string(known["id"], "id")
    # An id is one part of the address of an image, so nothing that an address would swallow is let in.
    if name in (".", ".."):
        raise LineError(f"the id {_shown(name)} is that of a folder")
    if "/" in name or not name.isprintable() or name != name.strip():
        raise LineError(f"the id {_shown(name)} has '/', control characters or outer spaces")
    if len(name) > _LONGEST_ID:
        raise LineError(f"the id {_shown(name)} has more than {_LONGEST_ID} characters")
    image = _relative_path(known["image"], "image")
    if known["split"] not in ("train", "val", "test"):
        raise LineError(f"the split {_shown(known['split'])} is not one of train, val, test")
    texts = _strings(known.get("texts"), "texts")
    if (group := known.get("group")) is not None:
        _check_bytes(_string(group, "group"), "group", MOST_VALUE_BYTES)
    labels = _strings(known.get("labels"), "labels")
    for index, label in enumerate(labels):
        _check_bytes(label, f"labels[{index}]", MOST_VALUE_BYTES)
    if (report := known.get("report")) is not None:
        _string(report, "report")
    metadata = _metadata(known.get("metadata"))
    if (audio := known.get("audio")) is not None:
        _relative_path(audio, "audio")
    not_texts = _strings(known.get("not_texts"), "not_texts")
    if (sha256 := known.get("sha256")) is not None and not _DIGEST.fullmatch(_string(sha256, "sha256")):
        raise LineError("'sha256' is not 64 hexadecimal digits in lower case")
    split = known["split"]
    return Record(
        name, image, split, texts, group, labels, report, metadata, audio, not_texts, sha256, number
    )


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    known = dict(pairs)
    if len(known) != len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise LineError(f"the key {_shown(repeated)} is given twice")
    return known


def _no_constant(name: str) -> float:
    raise LineError(f"{name} is not a JSON number")


def _string(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise LineError(f"{_shown(name)} must be a string")
    if not value or value.isspace():
        raise LineError(f"{_shown(name)} is empty")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise LineError(f"{_shown(name)} holds half of a surrogate pair") from error
    if "\0" in value:
        raise LineError(f"{_shown(name)} holds a null character")
    return value


def _strings(value: object, name: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise LineError(f"{name!r} must be a list of strings")
    for index, item in enumerate(value):
        _string(item, f"{name}[{index}]")
    return tuple(value)


def _check_bytes(value: str, name: str, most: int) -> None:
    size = len(value.encode())
    if size > most:
        raise LineError(f"{_shown(name)} has {size:,} bytes in UTF-8; the limit is {most:,}")


def _relative_path(value: object, name: str) -> str:
    path = _string(value, name)
    if path.startswith("/") or "\\" in path or ".." in path.split("/"):
        raise LineError(f"the {name} {_shown(path)} is not a path with '/' inside the manifest's folder")
    return path


def _metadata(value: object) -> Mapping[str, MetadataValue]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise LineError("'metadata' must be an object")
    if own := _OWN_NAMES.intersection(value):
        name = min(own)
        what = "a key of the record" if name in RECORD_FIELDS else "a flag that recoquest sets"
        raise LineError(f"metadata cannot use the name {name!r}, {what}")
    known: dict[str, MetadataValue] = {}
    for key, item in value.items():
        if item is not None:
            _check_bytes(_string(key, "metadata key"), "metadata key", _MOST_NAME_BYTES)
            is_list = isinstance(item, list)
            known[key] = tuple([_scalar(one, key) for one in item]) if is_list else _scalar(item, key)
    return known


def _scalar(value: object, key: str) -> Scalar:
    name = f"metadata.{key}"
    if isinstance(value, str):
        return _string(value, name) if value else value
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) > LARGEST_INTEGER:
            raise LineError(f"{_shown(name)} does not fit into 64 bits")
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise LineError(f"{_shown(name)} is not a finite number")
        return value
    raise LineError(f"{_shown(name)} must be a string, a number, true, false, or a list of these")


def _shown(value: object, most: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}..."
