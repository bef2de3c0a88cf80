"""Tables of Hugging Face data sets on a disk, Parquet or Arrow, row by row; pyarrow is an extra."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from training.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

# Rows have whole images: few at a time.
_ROWS_AT_ONCE: Final = 32
_IMAGE_NAMES: Final = frozenset(("image", "images", "img", "jpg", "jpeg", "png", "picture", "photo"))
_TEXTS_INSIDE: Final = ("raw", "text", "caption")
_PARQUET: Final = ".parquet"


@dataclass(frozen=True)
class Columns:
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


class ArrowTable:
    """A file of rows.

    Raises:
        DataError: pyarrow is not installed, or the file is neither Parquet nor Arrow.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        schema, self.rows = self._head()
        self.columns = _columns(schema)

    def read(self) -> Iterator[dict[str, Any]]:
        """Give the rows in order, with the names of classes for their numbers, and dates as in ISO 8601.

        Raises:
            DataError: The file is damaged.
        """
        wanted = [*self.columns.images, *self.columns.fields]
        for batch in self._batches(wanted):
            for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                part = batch.select(wanted).slice(start, _ROWS_AT_ONCE)
                for name in self.columns.dates:
                    part = part.set_column(wanted.index(name), name, part.column(name).cast("string"))
                for row in part.to_pylist():
                    for name, classes in self.columns.classes.items():
                        row[name] = _named(row[name], classes)
                    for name, key in self.columns.inside.items():
                        row[name] = _inside(row[name], key)
                    yield row

    def _head(self) -> tuple["pa.Schema", int]:
        arrow = _pyarrow()
        try:
            if self._path.suffix == _PARQUET:
                from pyarrow import parquet

                with parquet.ParquetFile(self._path) as file:
                    return file.schema_arrow, file.metadata.num_rows
            with arrow.memory_map(str(self._path)) as source, _reader(source) as reader:
                schema = reader.schema
                return schema, sum(batch.num_rows for batch in reader)
        except (OSError, arrow.ArrowException) as error:
            raise self._unreadable(error) from error

    def _batches(self, wanted: list[str]) -> "Iterator[pa.RecordBatch]":
        arrow = _pyarrow()
        try:
            if self._path.suffix == _PARQUET:
                from pyarrow import parquet

                with parquet.ParquetFile(self._path) as file:
                    yield from file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=wanted)
            else:
                with arrow.memory_map(str(self._path)) as source, _reader(source) as reader:
                    yield from reader
        except (OSError, arrow.ArrowException) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> DataError:
        return DataError(f"{self._path} cannot be read: {error}. Is its download whole?")


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise DataError(
            "Data sets of Hugging Face are read by pyarrow, which is not installed: "
            "pip install 'recoquest[huggingface]'."
        ) from error
    return pyarrow


def _reader(source: Any) -> Any:
    """Read the stream that `save_to_disk` and the cache write."""
    return _pyarrow().ipc.open_stream(source)


def _columns(schema: "pa.Schema") -> Columns:
    features = _features(schema)
    images, fields, dates, unread = [], [], [], []
    inside: dict[str, str] = {}
    for column in schema:
        feature = features.get(column.name, {})
        if _is_image(column, feature):
            images.append(column.name)
        elif _is_plain(column.type):
            fields.append(column.name)
        elif _is_date(column.type):
            fields.append(column.name)
            dates.append(column.name)
        elif (key := _text_inside(column.type)) is not None:
            fields.append(column.name)
            inside[column.name] = key
        else:
            unread.append(column.name)
    classes = {name: names for name in fields if (names := _classes(features.get(name, {})))}
    return Columns(tuple(images), tuple(fields), tuple(unread), classes, tuple(dates), inside)


def _features(schema: "pa.Schema") -> Mapping[str, Any]:
    """The features that the library `datasets` notes beside a schema; none where it noted none."""
    noted = (schema.metadata or {}).get(b"huggingface")
    try:
        features = json.loads(noted)["info"]["features"] if noted else {}
    except (ValueError, KeyError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}


def _is_image(column: "pa.Field", feature: Any) -> bool:
    from pyarrow import types

    kind = _inner(feature).get("_type", "Value")
    if kind != "Value":
        return bool(kind == "Image")
    inner = column.type.value_type if _is_list(column.type) else column.type
    if types.is_struct(inner):
        names = {field.name for field in inner}
        return names == {"bytes", "path"} and not {"audio", "sound"} & set(column.name.lower().split("_"))
    binary = bool(types.is_binary(inner) or types.is_large_binary(inner))
    return binary and column.name.lower() in _IMAGE_NAMES


def _is_plain(kind: "pa.DataType") -> bool:
    from pyarrow import types

    inner = kind.value_type if _is_list(kind) or types.is_dictionary(kind) else kind
    checks = (
        *(types.is_string, types.is_large_string, types.is_integer),
        *(types.is_floating, types.is_boolean),
    )
    return any(bool(check(inner)) for check in checks)


def _is_date(kind: "pa.DataType") -> bool:
    from pyarrow import types

    return bool(types.is_date(kind) or types.is_timestamp(kind))


def _text_inside(kind: "pa.DataType") -> str | None:
    """The name of the text in objects, or lists of them; None for any other type."""
    from pyarrow import types

    inner = kind.value_type if _is_list(kind) else kind
    if not types.is_struct(inner):
        return None
    texts = {
        field.name for field in inner if types.is_string(field.type) or types.is_large_string(field.type)
    }
    return next((name for name in _TEXTS_INSIDE if name in texts), None)


def _inside(value: Any, key: str) -> Any:
    """The text of an object, or those of a list of objects."""
    if isinstance(value, list):
        return [text for item in value if (text := _inside(item, key)) is not None]
    return value.get(key) if isinstance(value, dict) else None


def _is_list(kind: "pa.DataType") -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


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


def _named(value: Any, classes: tuple[str, ...]) -> Any:
    """The name of a class for its number; -1 stands for a class that is not known."""
    if isinstance(value, list):
        return [name for item in value if (name := _named(item, classes)) is not None]
    return classes[value] if isinstance(value, int) and 0 <= value < len(classes) else None
