"""Data sets of the Hugging Face hub on a disk: Parquet files, or folders of the library's `save_to_disk`.

They are read by pyarrow, which is an extra.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from training.common.errors import DataError, ImageError
from training.common.record import Record, Split
from training.common.rejections import Rejection
from training.importing.columns import Noted, describe
from training.importing.extraction import FOLDER, Extraction
from training.importing.image_files import is_image, walk_files
from training.importing.listing import Listing
from training.importing.splits import SPLITS

if TYPE_CHECKING:
    import pyarrow as pa

_ENDINGS: Final = (".parquet", ".arrow")
# Left beside the data by the library.
_CACHE: Final = "cache-"
# train-00000-of-00002-0123abcd, data-00000-of-00001, 0000
_NUMBER: Final = re.compile(r"(?:^|-)\d+(?:-of-\d+.*)?$")
_SHOWN: Final = 10
_INDICES: Final = ("_indices_files", "_indices_data_files")
# Rows have whole images: few at a time.
_ROWS_AT_ONCE: Final = 32
_IMAGE_NAMES: Final = frozenset(("image", "images", "img", "jpg", "jpeg", "png", "picture", "photo"))
_TEXTS_INSIDE: Final = ("raw", "text", "caption")
_PARQUET: Final = ".parquet"


def list_huggingface(source: Path, out: Path) -> Listing:
    """Find Parquet files, or the Arrow files of `save_to_disk`, in `source` and below.

    The images are written to `out`/images. Each image of a row is a record. Columns named as texts, captions,
    labels and reports usually are become these, numbers of classes the classes' names; other columns of texts
    and numbers are metadata. The split is the one that a column `split`, or the path of the file, names; else
    it is drawn.

    Args:
        source: Folder of the data set, or one file.
        out: Folder of the manifest. Images that are there already are not written again.

    Raises:
        DataError: There is no such file, one cannot be read, or none has a column of images.
    """
    if source.is_file():
        paths = {source.name: source}
    else:
        _refuse_indices(source)
        paths = {
            path: source / path
            for path in walk_files(source)
            if path.endswith(_ENDINGS) and not PurePosixPath(path).name.startswith(_CACHE)
        }
    if not paths:
        beside = next((path for path in walk_files(source) if is_image(path)), None)
        raise DataError(
            f"There is no .parquet file in {source}, and no .arrow file of save_to_disk"
            + ("." if beside is None else f"; `recoquest import folder {source}` reads its images.")
        )
    tables = {name: _ArrowTable(path) for name, path in paths.items()}
    shown = {name: table for name, table in tables.items() if table.columns.images}
    if not shown:
        columns = sorted({name for table in tables.values() for name in table.columns.fields})
        raise DataError(
            f"No file in {source} has a column of images, only {', '.join(columns) or 'none that is read'}."
        )
    unread = sorted({name for table in shown.values() for name in table.columns.unread})
    notes = [f"{name} is not read: it has no column of images." for name in tables if name not in shown]
    if unread:
        notes.append(f"Columns that are neither texts nor numbers are not read: {', '.join(unread)}.")
    total = sum(table.rows for table in shown.values())
    return Listing(
        source,
        out / FOLDER,
        total,
        _read(shown, Extraction(out / FOLDER), notes),
        "row",
        notes=notes,
        extracted=True,
    )


def _refuse_indices(source: Path) -> None:
    """Refuse the folder of a selection of rows, whose Arrow files hold others too."""
    for name in walk_files(source):
        if PurePosixPath(name).name == "state.json":
            try:
                state = json.loads((source / name).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise DataError(f"{source / name} cannot be read: {error}.") from error
            if isinstance(state, dict) and any(state.get(key) for key in _INDICES):
                raise DataError(
                    f"{(source / name).parent} holds a selection of its rows: save the data set again, "
                    "after flatten_indices()."
                )


def _read(
    tables: "Mapping[str, _ArrowTable]", extraction: Extraction, notes: list[str]
) -> Iterator[Record | Rejection]:
    rows, unknown, noted = Counter[str](), Counter[str](), Noted()
    for name, table in tables.items():
        part = _part_of(name)
        for line, row in enumerate(table.read(), 1):
            rows[part] += 1
            split = _split(row)
            unknown += Counter([row["split"]] if split is None and isinstance(row.get("split"), str) else [])
            images = list(_images(row, table.columns.images))
            if not images:
                yield Rejection(line, "it has no image", name)
            fields = {key: row[key] for key in table.columns.fields}
            for place, image in enumerate(images):
                number = f"{rows[part] - 1:08}" + (f"-{place}" if place else "")
                try:
                    yield _to_record(image, fields, part, number, split, line, name, extraction, noted)
                except ImageError as error:
                    yield Rejection(line, str(error), name)
    notes += noted.notes()
    if unknown:
        listed = ", ".join(f"{value!r} ({count:,})" for value, count in unknown.most_common(_SHOWN))
        notes.append(f"Rows whose column split is none of train, val and test keep it as metadata: {listed}.")
    extraction.finish()


def _part_of(name: str) -> str:
    """The part of the data set that a file belongs to, such as train, as a path."""
    path = PurePosixPath(name).with_suffix("")
    parts = (*path.parts[:-1], _NUMBER.sub("", path.name))
    return "/".join(part for part in parts if part and part != "data") or "rows"


def _split(row: Mapping[str, Any]) -> Split | None:
    given = row.get("split")
    return SPLITS.get(given.strip().lower()) if isinstance(given, str) else None


def _images(row: Mapping[str, Any], columns: tuple[str, ...]) -> Iterator[Any]:
    for column in columns:
        value = row[column]
        yield from value if isinstance(value, list) else () if value is None else (value,)


def _to_record(
    image: Any,
    fields: Mapping[str, Any],
    part: str,
    number: str,
    split: Split | None,
    line: int,
    table: str,
    extraction: Extraction,
    noted: Noted,
) -> Record | Rejection:
    content = image.get("bytes") if isinstance(image, dict) else image
    if not isinstance(content, bytes):
        place = image.get("path") if isinstance(image, dict) else None
        return Rejection(line, f"its image is not in the file{f' but in {place!r}' if place else ''}", table)
    known = describe(fields)
    noted.add(known)
    name = f"{part.replace('/', '-')}-{number}"
    return Record(
        id=name,
        image=extraction.write(part, number, content),
        split=split,
        texts=known.texts,
        group=known.group,
        labels=known.labels,
        report=known.report,
        metadata=known.metadata,
        line=line,
        table=table,
    )


@dataclass(frozen=True)
class _Columns:
    """The columns of a table by what they hold.

    Attributes:
        images: Columns of images, single ones or lists.
        fields: Columns of texts, numbers, lists of these, and dates.
        unread: All others, such as objects and sounds.
        classes: Names of the classes that a column has as numbers.
        dates: Those of them with days or times.
        inside: For a column of objects with a text of their own, such as MS-COCO's sentences, the name of it.
    """

    images: tuple[str, ...]
    fields: tuple[str, ...]
    unread: tuple[str, ...]
    classes: Mapping[str, tuple[str, ...]]
    dates: tuple[str, ...]
    inside: Mapping[str, str]


class _ArrowTable:
    """A file of rows.

    Raises:
        DataError: pyarrow is not installed, or the file is neither Parquet nor Arrow.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._opened() as (schema, file):
            self.columns = _columns(schema)
            is_parquet = path.suffix == _PARQUET
            self.rows: int = file.metadata.num_rows if is_parquet else sum(batch.num_rows for batch in file)

    def read(self) -> Iterator[dict[str, Any]]:
        """Give the rows in order, with the names of classes for their numbers, and dates as in ISO 8601.

        Raises:
            DataError: The file is damaged.
        """
        wanted = [*self.columns.images, *self.columns.fields]
        with self._opened() as (_, file):
            is_parquet = self._path.suffix == _PARQUET
            batches = file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=wanted) if is_parquet else file
            for batch in batches:
                for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                    yield from self._rows(batch.select(wanted).slice(start, _ROWS_AT_ONCE), wanted)

    def _rows(self, part: "pa.RecordBatch", wanted: list[str]) -> Iterator[dict[str, Any]]:
        for name in self.columns.dates:
            part = part.set_column(wanted.index(name), name, part.column(name).cast("string"))
        for row in part.to_pylist():
            for name, classes in self.columns.classes.items():
                row[name] = _class_named(row[name], classes)
            for name, key in self.columns.inside.items():
                row[name] = _inside(row[name], key)
            yield row

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
            if self._path.suffix == _PARQUET:
                with parquet.ParquetFile(self._path) as file:
                    yield file.schema_arrow, file
            else:
                # The stream that `save_to_disk` and the cache write.
                with arrow.memory_map(str(self._path)) as source, ipc.open_stream(source) as reader:
                    yield reader.schema, reader
        except (OSError, arrow.ArrowException) as error:
            raise DataError(f"{self._path} cannot be read: {error}. Is its download whole?") from error


def _columns(schema: "pa.Schema") -> _Columns:
    from pyarrow import types

    features = _features(schema)
    images, fields, dates, unread = [], [], [], []
    inside: dict[str, str] = {}
    for column in schema:
        inner = _inner_type(column.type)
        if _is_image(column.name, inner, _inner(features.get(column.name, {}))):
            images.append(column.name)
        elif _is_plain(inner.value_type if types.is_dictionary(inner) else inner):
            fields.append(column.name)
        elif types.is_date(column.type) or types.is_timestamp(column.type):
            fields.append(column.name)
            dates.append(column.name)
        elif (key := _text_inside(inner)) is not None:
            fields.append(column.name)
            inside[column.name] = key
        else:
            unread.append(column.name)
    classes = {name: names for name in fields if (names := _classes(features.get(name, {})))}
    return _Columns(tuple(images), tuple(fields), tuple(unread), classes, tuple(dates), inside)


def _features(schema: "pa.Schema") -> Mapping[str, Any]:
    """The features that the library `datasets` notes beside a schema; none where it noted none."""
    noted = (schema.metadata or {}).get(b"huggingface")
    try:
        features = json.loads(noted)["info"]["features"] if noted else {}
    except (ValueError, KeyError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}


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

    return _is_text(kind) or any(
        bool(check(kind)) for check in (types.is_integer, types.is_floating, types.is_boolean)
    )


def _is_text(kind: "pa.DataType") -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def _text_inside(kind: "pa.DataType") -> str | None:
    """The name of the text in objects; None for any other type."""
    from pyarrow import types

    texts = {field.name for field in kind if _is_text(field.type)} if types.is_struct(kind) else ()
    return next((name for name in _TEXTS_INSIDE if name in texts), None)


def _inner_type(kind: "pa.DataType") -> "pa.DataType":
    """The type of the items, for that of a list."""
    from pyarrow import types

    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return kind.value_type if is_list else kind


def _inside(value: Any, key: str) -> Any:
    """The text of an object, or those of a list of objects."""
    if isinstance(value, list):
        return [text for item in value if (text := _inside(item, key)) is not None]
    return value.get(key) if isinstance(value, dict) else None


def _inner(feature: Any) -> Mapping[str, Any]:
    """The feature of the items, for that of a list."""
    if isinstance(feature, list) and len(feature) == 1:
        feature = feature[0]
    if isinstance(feature, dict) and isinstance(feature.get("feature"), dict):
        feature = feature["feature"]
    return feature if isinstance(feature, dict) else {}


def _classes(feature: Any) -> tuple[str, ...]:
    inner = _inner(feature)
    names = inner.get("names") if inner.get("_type") == "ClassLabel" else None
    return tuple(map(str, names)) if isinstance(names, list) else ()


def _class_named(value: Any, classes: tuple[str, ...]) -> Any:
    """The name of a class for its number; -1 stands for a class that is not known."""
    if isinstance(value, list):
        return [name for item in value if (name := _class_named(item, classes)) is not None]
    return classes[value] if isinstance(value, int) and 0 <= value < len(classes) else None
