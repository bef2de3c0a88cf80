"""Data sets of the Hugging Face hub on a disk: Parquet files, or folders of the library's `save_to_disk`."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from training.data.readers.common.arrow_tables import ArrowTable
from training.data.readers.common.columns import Noted, describe
from training.data.readers.common.extraction import FOLDER, Extraction
from training.data.readers.common.image_files import is_image, walk_files
from training.data.readers.common.splits import SPLITS
from training.data.readers.listing import Listing
from training.data.record import Record, Split
from training.data.rejections import Rejection
from training.errors import DataError, ImageError

_ENDINGS: Final = (".parquet", ".arrow")
# Left beside the data by the library.
_CACHE: Final = "cache-"
# train-00000-of-00002-0123abcd, data-00000-of-00001, 0000
_NUMBER: Final = re.compile(r"(?:^|-)\d+(?:-of-\d+.*)?$")
_SHOWN: Final = 10
_INDICES: Final = ("_indices_files", "_indices_data_files")


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
    tables = {name: ArrowTable(path) for name, path in paths.items()}
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
    tables: Mapping[str, ArrowTable], extraction: Extraction, notes: list[str]
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
