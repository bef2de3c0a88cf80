"""Data sets that hold images inside of larger files: shards of WebDataset, and tables of Hugging Face."""

import hashlib
import json
import math
import os
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from training.clinical.text.report_text import Report, make_report, read_report_or_text
from training.common.errors import DataError, ImageError
from training.common.record import LARGEST_INTEGER, MetadataValue, Record, Scalar, Split
from training.common.rejections import LeftOut, Rejection
from training.common.roles import NAMES, normal_name
from training.common.values import is_not_known, parse_list
from training.imaging.formats import is_readable_suffix, sniff_format
from training.importing.files import is_image, walk_files
from training.importing.layouts import Layout, Source
from training.importing.listing import Listing
from training.importing.splits import SPLITS

if TYPE_CHECKING:
    import pyarrow as pa

_FOLDER: Final = "images"
_SUFFIXES: Final = {
    "JPEG": ".jpg",
    "PNG": ".png",
    "WebP": ".webp",
    "AVIF": ".avif",
    "HEIC": ".heic",
    "GIF": ".gif",
    "BMP": ".bmp",
    "TIFF": ".tif",
    "DICOM": ".dcm",
}
_LONGEST_NAME: Final = 200
# Names that samples have in addition to those of columns.
_TEXTS: Final = frozenset((*NAMES["text"], "txt", "raw"))
_LABELS: Final = frozenset((*NAMES["labels"], "cls"))
_REPORT: Final = frozenset((*NAMES["report"], "befund"))
_GROUP: Final = frozenset(NAMES["group"])
_SECTIONS: Final = ("findings", "impression")
# Names that a record has for itself.
_RESERVED: Final = frozenset(("id", "split", "group", "image"))

_SHARDS: Final = (".tar", ".tar.gz", ".tgz")
_MEMBERS: Final = frozenset(("txt", "text", "caption", "cls", "label"))
_LARGEST_IMAGE: Final = 256 << 20
_LARGEST_TEXT: Final = 16 << 20
# Notes of img2dataset on its own work.
_BOOKKEEPING: Final = frozenset(
    (
        *("key", "__key__", "__url__", "status", "error_message", "exif", "sha256", "md5"),
        *("width", "height", "original_width", "original_height"),
    )
)

_PARQUET: Final = ".parquet"
_TABLES: Final = (_PARQUET, ".arrow")
# Left next to the data by the library.
_CACHE: Final = "cache-"
# train-00000-of-00002-0123abcd, data-00000-of-00001, 0000
_NUMBER: Final = re.compile(r"(?:^|-)\d+(?:-of-\d+.*)?$")
_SHOWN: Final = 10
_INDICES: Final = ("_indices_files", "_indices_data_files")
# Rows have whole images: few at a time.
_ROWS_AT_ONCE: Final = 32
_IMAGE_NAMES: Final = frozenset(("image", "images", "img", "jpg", "jpeg", "png", "picture", "photo"))
_TEXTS_INSIDE: Final = ("raw", "text", "caption")


class Extraction:
    """Writes images into a folder, each whole or not at all; one that is there already stays as it is.

    Equal images are written once.

    Raises:
        DataError: The folder is a link: what it leads to belongs to another data set.
    """

    def __init__(self, folder: Path) -> None:
        if folder.is_symlink():
            raise DataError(f"{folder} leads to images elsewhere; give another folder, or remove the link.")
        self.folder = folder
        self._paths: dict[bytes, str] = {}
        self._written: set[str] = set()

    def write(self, folder: str, name: str, content: bytes) -> str:
        """Write an image and return its path with '/' inside the folder; the ending is that of its format.

        Raises:
            ImageError: It is none of the formats that can be read, has no name that a file may have, or has
                the name of another image.
            DataError: It cannot be written.
        """
        suffix = _SUFFIXES[sniff_format(content)]
        parts = [*filter(None, folder.split("/")), name]
        if not all(map(_is_name, parts)):
            raise ImageError(f"the name {'/'.join(parts)[:80]!r} is not one of a file inside the folder")
        digest = hashlib.sha256(content).digest()
        if digest in self._paths:
            return self._paths[digest]
        inside = f"{'/'.join(parts)}{suffix}"
        if inside in self._written:
            raise ImageError(f"another image has the name {inside!r} already; rename one of them")
        path = self.folder / inside
        try:
            if not (path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content):
                path.parent.mkdir(parents=True, exist_ok=True)
                # The next run writes over what a killed one has left.
                part = path.with_name(f".{path.name}.part")
                part.write_bytes(content)
                part.replace(path)
        except OSError as error:
            raise DataError(f"{path} cannot be written: {error.strerror or error}.") from error
        self._written.add(inside)
        self._paths[digest] = inside
        return inside


def _is_name(name: str) -> bool:
    return (
        0 < len(name.encode(errors="replace")) <= _LONGEST_NAME
        and not name.startswith(".")
        and name.isprintable()
        and not any(mark in name for mark in "/\\:")
    )


@dataclass
class Noted:
    """Counts fields of samples by name: those that are not read, and those with lists in quotes."""

    unread: Counter[str] = field(default_factory=Counter)
    listed: Counter[str] = field(default_factory=Counter)

    def notes(self) -> Iterator[str]:
        """Sentences for the report."""
        if self.unread:
            yield f"Values of samples that are not read: {_counted(self.unread)}."
        if self.listed:
            yield f"Values that are lists in quotes, of which each item was taken: {_counted(self.listed)}."


def _counted(names: Counter[str]) -> str:
    return ", ".join(f"{name} ({count:,})" for name, count in sorted(names.items()))


def make_record(
    fields: Mapping[str, object], noted: Noted, *, group: str | None = None, **own: Any
) -> Record:
    """Make a record of the fields of a sample, sorted by their names; those of other names are metadata.

    Texts stay whole; a report is split into its sentences. Objects, and lists of them, are noted as unread. A
    field named id, split, image, or a second group, becomes metadata with `source_` before its name, and so
    does one whose name is taken; a second report becomes metadata as well.

    `group` is used where no field gives one; `own` has what no field gives.
    """
    texts: list[str] = []
    labels: list[str] = []
    named_group: str | None = None
    metadata: dict[str, MetadataValue] = {}
    sections = dict.fromkeys(_SECTIONS, "")
    whole = ""
    for name, given in fields.items():
        key = normal_name(name.rsplit("/", 1)[-1])
        value = given
        if isinstance(given, str) and key in _TEXTS | _LABELS and (items := parse_list(given)) is not None:
            value = items
            noted.listed[name] += 1
        if key in _TEXTS:
            texts += (" ".join(text.split()) for text in _strings(value))
        elif key in _LABELS:
            labels += _strings(value)
        elif key in _REPORT and not whole.strip():
            whole = "\n".join(_strings(value))
        elif key in sections and not sections[key]:
            sections[key] = "\n".join(_strings(value))
        elif key in _GROUP and named_group is None and isinstance(value, str | int) and str(value).strip():
            named_group = str(value).strip()
        elif (known := _metadata(value)) is not None:
            free = f"source_{name}" if key in _RESERVED else name
            while free in metadata:
                free = f"source_{free}"
            metadata[free] = known
        elif not isinstance(value, Scalar | None) and value:
            noted.unread[name] += 1
    report = make_report({name.upper(): text for name, text in sections.items()})
    if whole.strip():
        report = Report(whole.strip(), report.sentences or read_report_or_text(whole).sentences)
    return Record(
        texts=tuple(dict.fromkeys((*filter(None, texts), *report.sentences))),
        labels=tuple(dict.fromkeys(labels)),
        report=report.text,
        group=named_group or group,
        metadata=metadata,
        **own,
    )


def _strings(value: object) -> Iterator[str]:
    """The texts of a field: it, or the items of a list."""
    for item in value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else (value,):
        if isinstance(item, str | int | float) and not is_not_known(str(item)):
            yield str(item).strip()


def _metadata(value: object) -> MetadataValue | None:
    """A value that metadata can hold; None for any other, and for one that is not known."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        if not all(item is None or isinstance(item, Scalar) for item in value):
            return None
        return tuple(item for item in map(_scalar, value) if item is not None) or None
    return _scalar(value)


def _scalar(value: object) -> Scalar | None:
    """A text or a number; a whole number too large for one is a name, and so a text."""
    if isinstance(value, str):
        return None if is_not_known(value) else value
    if isinstance(value, int):
        return value if abs(value) <= LARGEST_INTEGER else str(value)
    return value if isinstance(value, float) and math.isfinite(value) else None


@dataclass
class _Sample:
    """Members of a shard of one key.

    Attributes:
        key: Their path up to the first dot of the file's name.
        images: Content of each image by its ending, such as "jpg" or "left.jpg".
        members: Values of the texts and objects by their endings.
        unread: Endings of members that are neither image nor text.
        fault: Why a member cannot be used, if one cannot.
    """

    key: str
    images: dict[str, bytes] = field(default_factory=dict)
    members: dict[str, object] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    fault: str = ""

    @property
    def prefixes(self) -> set[str]:
        """What the endings of images have ahead of their last part."""
        return {_split_ending(ending)[0] for ending in self.images}

    @property
    def group(self) -> str | None:
        """The key where several images belong together: none of them has members of its own."""
        alone = self.members and all(_split_ending(ending)[0] for ending in self.members)
        return self.key if len(self.images) > 1 and not alone else None

    def add(self, ending: str, content: bytes) -> None:
        kind = _split_ending(ending)[1]
        if ending in self.images or ending in self.members:
            self.fault = f"it has two members {ending!r}"
        elif is_readable_suffix(f".{kind}"):
            self.images[ending] = content
        elif kind in _MEMBERS or kind == "json":
            try:
                text = content.decode("utf-8-sig")
                is_object = kind == "json" and text
                self.members[ending] = json.loads(text, object_pairs_hook=_unique) if is_object else text
            except (ValueError, RecursionError) as error:
                self.fault = f"its {ending} cannot be read: {error}"
        else:
            self.unread.append(kind)

    def fields(self, prefix: str | None) -> dict[str, object]:
        """What the members say: those with a prefix, else those without any; all of them for None.

        Members without a prefix belong to all images, unless one image has none either.

        Raises:
            ImageError: Two members say the same.
        """
        shared = "" if "" not in self.prefixes else prefix
        endings: dict[str, str] = {}
        # Those with the prefix come last.
        for ending in sorted(self.members, key=lambda ending: _split_ending(ending)[0] == prefix):
            own, kind = _split_ending(ending)
            if prefix is None and kind in endings:
                raise ImageError(f"it has two members for {kind}: {endings[kind]} and {ending}")
            if prefix is None or own in (prefix, shared):
                # Objects are joined.
                endings[ending if kind == "json" else kind] = ending
        fields: dict[str, object] = {}
        for ending in endings.values():
            value, kind = self.members[ending], _split_ending(ending)[1]
            named = value if isinstance(value, dict) else {"caption" if kind == "json" else kind: value}
            for name, item in named.items():
                if fields.setdefault(name, item) != item:
                    raise ImageError(f"two of its members have {name!r}")
        return fields


def _split_ending(ending: str) -> tuple[str, str]:
    """The prefix and the kind of an ending: "left" and "jpg" of left.jpg."""
    prefix, _, kind = ending.rpartition(".")
    return prefix, kind


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    known = dict(pairs)
    if len(known) != len(pairs):
        raise ValueError("a key is given twice")
    return known


def list_webdataset(source: Source) -> Listing:
    """Find the tar files in a folder and below, or take the one that is given; images are written out.

    Members of one name, up to its first dot, are a sample, and each image of it is a record. Its texts are
    those of `.txt` and of `caption` and its like in `.json`, its labels those of `.cls`; other values in
    `.json` are metadata. Where names have further dots, as in 22.05.jpg, an image takes the members with its
    own prefix (05.txt), else those without one.
    """
    shards = _files_of(source.path, _SHARDS)
    if not shards:
        raise DataError(f"There is no shard such as 00000.tar in {source.path}.")
    total = 0
    dotted = False
    unread = Counter[str]()
    for path in shards.values():
        for item in _samples(path, read=False):
            if isinstance(item, LeftOut):
                total += item.count
            else:
                total += max(1, len(item.images))
                unread.update(item.unread)
                dotted = dotted or item.prefixes - {""} != set()
    notes = [f"{count:,} .{kind} files of samples are not read." for kind, count in sorted(unread.items())]
    folder = source.folder / _FOLDER
    items = _read_shards(shards, Extraction(folder), notes, dotted=dotted)
    return Listing(source.path, folder, total, items, "image", notes=notes, extracted=True)


WEBDATASET: Final = Layout(
    "webdataset",
    "shards of WebDataset and img2dataset: tar files",
    list_webdataset,
    frozenset(),
    is_folder=False,
    writes_images=True,
)


def _files_of(source: Path, endings: tuple[str, ...]) -> dict[str, Path]:
    """The files of some endings in a folder, or the file that is given, by their paths with '/'."""
    if source.is_file():
        return {source.name: source}
    return {path: source / path for path in walk_files(source) if path.endswith(endings)}


def _read_shards(
    shards: Mapping[str, Path], extraction: Extraction, notes: list[str], *, dotted: bool
) -> Iterator[Record | Rejection | LeftOut]:
    """The images of all samples; `dotted`: endings have prefixes, by which members belong to them."""
    number = 0
    noted = Noted()
    for shard, path in shards.items():
        for item in _samples(path, read=True):
            if isinstance(item, LeftOut):
                yield item
                continue
            for ending in item.images or ([] if dotted and item.members else [""]):
                number += 1
                try:
                    if item.fault:
                        raise ImageError(item.fault)
                    fields = item.fields(_split_ending(ending)[0] if dotted else None)
                    if ending:
                        yield _record_of(item, ending, fields, number, shard, extraction, noted)
                        continue
                    names = ", ".join(name for name in fields if name not in _BOOKKEEPING)
                    reason = f"{item.key!r} has no image, only {names or 'nothing that is read'}"
                    yield Rejection(number, reason, shard)
                except ImageError as error:
                    yield Rejection(number, f"{item.key!r}: {error}", shard)
            alone = {_split_ending(ending)[0] for ending in item.members} - item.prefixes
            for prefix in sorted(alone - ({""} if item.images else set())) if dotted else ():
                number += 1
                name = f"{item.key}.{prefix}" if prefix else item.key
                kinds = ", ".join(kind for own, kind in map(_split_ending, item.members) if own == prefix)
                yield Rejection(number, f"{name!r} has no image, only {kinds}", shard)
    notes += noted.notes()
    # Before a manifest names the images; flushing one by one takes hours.
    os.sync()


def _record_of(
    sample: _Sample,
    ending: str,
    fields: Mapping[str, object],
    number: int,
    shard: str,
    extraction: Extraction,
    noted: Noted,
) -> Record:
    noted.unread.update(_BOOKKEEPING & fields.keys())
    prefix = _split_ending(ending)[0]
    folder = next(shard.removesuffix(end) for end in reversed(_SHARDS) if shard.endswith(end))
    inside, _, name = sample.key.rpartition("/")
    # "left" of left.jpg, where a sample has several images.
    alike = sum(_split_ending(other)[0] == prefix for other in sample.images)
    part = ending if alike > 1 else prefix or (ending if len(sample.images) > 1 else "")
    name = f"{name}-{part.replace('.', '-')}" if part else name
    return make_record(
        {name: value for name, value in fields.items() if name not in _BOOKKEEPING},
        noted,
        id="-".join(f"{folder}/{inside}/{name}".replace("//", "/").split("/")),
        image=extraction.write(f"{folder}/{inside}", name, sample.images[ending]),
        group=sample.group and f"{folder}/{sample.group}",
        line=number,
        table=shard,
    )


def _samples(path: Path, *, read: bool) -> Iterator[_Sample | LeftOut]:
    """Give the samples of a shard in order, with or without the contents of their members."""
    sample: _Sample | None = None
    try:
        with tarfile.open(path) as shard:
            for member in shard:
                folder, _, file = member.name.removeprefix("./").rpartition("/")
                stem, _, ending = file.partition(".")
                if member.isdir():
                    continue
                if not member.isfile() or (not stem and folder != ".."):
                    yield LeftOut("members of shards that are links, devices or hidden files")
                    continue
                key = f"{folder}/{stem}" if folder else stem
                if sample is None or sample.key != key:
                    if sample is not None:
                        yield sample
                    sample = _Sample(key)
                _add_member(sample, ending.lower(), shard, member, read=read)
            # A damaged header, which `tarfile` takes for the end of the archive.
            assert shard.fileobj is not None
            shard.fileobj.seek(shard.offset)
            block = shard.fileobj.read(tarfile.BLOCKSIZE)
            if block and block != bytes(tarfile.BLOCKSIZE):
                raise tarfile.ReadError("a header is damaged")
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"The shard {path} cannot be read: {error}. Is its download whole?") from error
    if sample is not None:
        yield sample


def _add_member(
    sample: _Sample, ending: str, shard: tarfile.TarFile, member: tarfile.TarInfo, *, read: bool
) -> None:
    limit = _LARGEST_IMAGE if is_readable_suffix(f".{_split_ending(ending)[1]}") else _LARGEST_TEXT
    content = b""
    if member.size > limit:
        sample.fault = f"its {ending} has over {limit >> 20} MiB"
    elif read and (file := shard.extractfile(member)) is not None:
        content = file.read()
    sample.add(ending, content)


def list_huggingface(source: Source) -> Listing:
    """Find Parquet files, or the Arrow files of `save_to_disk`, in a folder and below, and write images out.

    Each image of a row is a record. Columns named as texts, captions, labels and reports usually are become
    these, numbers of classes the classes' names; other columns of texts and numbers are metadata. The split
    is the one that a column `split`, or the path of the file, names; else it is drawn.
    """
    folder = source.path
    paths = _files_of(folder, _TABLES)
    if not folder.is_file():
        _refuse_indices(folder)
        paths = {name: path for name, path in paths.items() if not path.name.startswith(_CACHE)}
    if not paths:
        has_images = any(map(is_image, walk_files(folder)))
        raise DataError(
            f"There is no .parquet file in {folder}, and no .arrow file of save_to_disk"
            + (f"; `recoquest import folder {folder}` reads its images." if has_images else ".")
        )
    every = {name: _ArrowTable(path) for name, path in paths.items()}
    tables = {name: table for name, table in every.items() if table.images}
    if not tables:
        columns = sorted({name for table in every.values() for name in table.fields})
        raise DataError(
            f"No file in {folder} has a column of images, only {', '.join(columns) or 'none that is read'}."
        )
    notes = [f"{name} is not read: it has no column of images." for name in every if name not in tables]
    if unread := sorted({name for table in tables.values() for name in table.unread}):
        notes.append(f"Columns that are neither texts nor numbers are not read: {', '.join(unread)}.")
    out = source.folder / _FOLDER
    items = _read_tables(tables, Extraction(out), notes)
    total = sum(table.rows for table in tables.values())
    return Listing(folder, out, total, items, "row", notes=notes, extracted=True)


HUGGINGFACE: Final = Layout(
    "huggingface",
    "tables of Hugging Face: .parquet files, or a folder of save_to_disk",
    list_huggingface,
    frozenset(),
    is_folder=False,
    writes_images=True,
)


def _refuse_indices(source: Path) -> None:
    """Refuse the folder of a selection of rows, whose Arrow files hold others too."""
    for path in (source / name for name in walk_files(source)):
        if path.name == "state.json":
            try:
                state = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise DataError(f"{path} cannot be read: {error}.") from error
            if isinstance(state, dict) and any(state.get(key) for key in _INDICES):
                raise DataError(
                    f"{path.parent} holds a selection of its rows: save the data set again, after "
                    "flatten_indices()."
                )


def _read_tables(
    tables: "Mapping[str, _ArrowTable]", extraction: Extraction, notes: list[str]
) -> Iterator[Record | Rejection]:
    rows, unknown, noted = Counter[str](), Counter[str](), Noted()
    for name, table in tables.items():
        part = _part_of(name)
        for line, row in enumerate(table.read(), 1):
            number = f"{rows[part]:08}"
            rows[part] += 1
            given = row.get("split")
            split: Split | None = SPLITS.get(given.strip().lower()) if isinstance(given, str) else None
            if split is None and isinstance(given, str):
                unknown[given] += 1
            values = [row[column] for column in table.images]
            images = [
                image
                for value in values
                if value is not None
                for image in (value if isinstance(value, list) else [value])
            ]
            if not images:
                yield Rejection(line, "it has no image", name)
            fields = {key: row[key] for key in table.fields}
            for position, image in enumerate(images):
                file = f"{number}-{position}" if position else number
                content = image.get("bytes") if isinstance(image, dict) else image
                if not isinstance(content, bytes):
                    path = image.get("path") if isinstance(image, dict) else None
                    where = f" but in {path!r}" if path else ""
                    yield Rejection(line, f"its image is not in the file{where}", name)
                    continue
                try:
                    written = extraction.write(part, file, content)
                except ImageError as error:
                    yield Rejection(line, str(error), name)
                    continue
                own = f"{part.replace('/', '-')}-{file}"
                yield make_record(fields, noted, id=own, image=written, split=split, line=line, table=name)
    notes += noted.notes()
    if unknown:
        listed = ", ".join(f"{value!r} ({count:,})" for value, count in unknown.most_common(_SHOWN))
        notes.append(f"Rows whose column split is none of train, val and test keep it as metadata: {listed}.")
    os.sync()


def _part_of(name: str) -> str:
    """The part of the data set that a file belongs to, such as train, as a path."""
    path = PurePosixPath(name).with_suffix("")
    parts = (*path.parts[:-1], _NUMBER.sub("", path.name))
    return "/".join(part for part in parts if part and part != "data") or "rows"


class _ArrowTable:
    """A file of rows.

    Attributes:
        images: Columns of images, single ones or lists.
        fields: Columns of texts, numbers, lists of these, and dates.
        unread: All others, such as objects and sounds.

    Raises:
        DataError: pyarrow is not installed, or the file is neither Parquet nor Arrow.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_parquet = path.suffix == _PARQUET
        self.images: list[str] = []
        self.fields: list[str] = []
        self.unread: list[str] = []
        self._dates: list[str] = []
        # What to make of the values of a column, or of their items.
        self._changes: dict[str, Callable[[Any], Any]] = {}
        with self._opened() as (schema, file):
            features = _features(schema)
            for column in schema:
                self._sort(column, _inner(features.get(column.name, {})))
            self.rows: int = (
                file.metadata.num_rows if self._is_parquet else sum(batch.num_rows for batch in file)
            )

    def _sort(self, column: "pa.Field", feature: Mapping[str, Any]) -> None:
        from pyarrow import types

        is_list = types.is_list(column.type) or types.is_large_list(column.type)
        inner = column.type.value_type if is_list or types.is_fixed_size_list(column.type) else column.type
        if _is_image(column.name, inner, feature):
            self.images.append(column.name)
            return
        if _is_plain(inner.value_type if types.is_dictionary(inner) else inner):
            names = feature.get("names")
            if feature.get("_type") == "ClassLabel" and isinstance(names, list) and names:
                self._changes[column.name] = partial(_class_named, tuple(map(str, names)))
        elif types.is_date(column.type) or types.is_timestamp(column.type):
            self._dates.append(column.name)
        elif (key := _text_inside(inner)) is not None:
            self._changes[column.name] = partial(_inside, key)
        else:
            self.unread.append(column.name)
            return
        self.fields.append(column.name)

    def read(self) -> Iterator[dict[str, Any]]:
        """Give the rows in order, with the names of classes for their numbers, and dates as in ISO 8601.

        Raises:
            DataError: The file is damaged.
        """
        columns = [*self.images, *self.fields]
        with self._opened() as (_, file):
            batches = file.iter_batches(_ROWS_AT_ONCE, columns=columns) if self._is_parquet else file
            for batch in batches:
                for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                    part = batch.select(columns).slice(start, _ROWS_AT_ONCE)
                    for name in self._dates:
                        texts = part.column(name).cast("string")
                        part = part.set_column(columns.index(name), name, texts)
                    for row in part.to_pylist():
                        yield row | {name: _each(change, row[name]) for name, change in self._changes.items()}

    @contextmanager
    def _opened(self) -> "Iterator[tuple[pa.Schema, Any]]":
        """The schema of the file, and what reads it."""
        try:
            import pyarrow as arrow
            from pyarrow import ipc, parquet
        except ModuleNotFoundError as error:
            raise DataError(
                "Data sets of Hugging Face are read by pyarrow, which is not installed: "
                "pip install 'recoquest[huggingface]'."
            ) from error
        try:
            if self._is_parquet:
                with parquet.ParquetFile(self._path) as file:
                    yield file.schema_arrow, file
            else:
                # The stream that `save_to_disk` and the cache write.
                with arrow.memory_map(str(self._path)) as source, ipc.open_stream(source) as reader:
                    yield reader.schema, reader
        except (OSError, arrow.ArrowException) as error:
            raise DataError(f"{self._path} cannot be read: {error}. Is its download whole?") from error


def _features(schema: "pa.Schema") -> Mapping[str, Any]:
    """The features that the library `datasets` notes in a schema; none where it noted none."""
    noted = (schema.metadata or {}).get(b"huggingface")
    try:
        features = json.loads(noted)["info"]["features"] if noted else {}
    except (ValueError, KeyError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}


def _inner(feature: Any) -> Mapping[str, Any]:
    """The feature of the items, for that of a list."""
    if isinstance(feature, list) and len(feature) == 1:
        feature = feature[0]
    if isinstance(feature, dict) and isinstance(feature.get("feature"), dict):
        feature = feature["feature"]
    return feature if isinstance(feature, dict) else {}


def _is_image(name: str, kind: "pa.DataType", feature: Mapping[str, Any]) -> bool:
    from pyarrow import types

    if (stated := feature.get("_type", "Value")) != "Value":
        return bool(stated == "Image")
    if types.is_struct(kind):
        names = {field.name for field in kind}
        return names == {"bytes", "path"} and not {"audio", "sound"} & set(name.lower().split("_"))
    return bool(types.is_binary(kind) or types.is_large_binary(kind)) and name.lower() in _IMAGE_NAMES


def _is_plain(kind: "pa.DataType") -> bool:
    from pyarrow import types

    checks = (types.is_integer, types.is_floating, types.is_boolean, types.is_string, types.is_large_string)
    return any(bool(check(kind)) for check in checks)


def _text_inside(kind: "pa.DataType") -> str | None:
    """The name of the text in objects; None for any other type."""
    from pyarrow import types

    if not types.is_struct(kind):
        return None
    texts = {one.name for one in kind if types.is_string(one.type) or types.is_large_string(one.type)}
    return next((name for name in _TEXTS_INSIDE if name in texts), None)


def _each(change: Callable[[Any], Any], value: Any) -> Any:
    """A changed value; of a list, all changed items that are not None."""
    if isinstance(value, list):
        return [changed for item in value if (changed := change(item)) is not None]
    return change(value)


def _inside(key: str, value: Any) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _class_named(classes: tuple[str, ...], value: Any) -> Any:
    """The name of a class for its number; -1 stands for a class that is not known."""
    return classes[value] if isinstance(value, int) and 0 <= value < len(classes) else None
