"""Turns a folder of images, and a table about them, into records, and says which command would read more."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import Final

from training.clinical.reports.report_text import Report, make_report
from training.clinical.reports.sentences import report_sentences
from training.common.errors import DataError
from training.common.record import MetadataValue, Record
from training.common.rejections import LeftOut, Rejection
from training.common.tables.encodings import reads_as_utf8
from training.common.tables.roles import Role
from training.common.tables.table import Row, Table, open_table
from training.imaging.formats import READABLE_SUFFIXES
from training.importing.folder.beside import (
    hint_on_lone,
    is_named_report,
    lone_texts,
    read_text_beside,
    second_texts,
    texts_beside,
)
from training.importing.folder.columns import is_known_column, read_columns
from training.importing.folder.files import FoundFiles, find_files
from training.importing.folder.metadata import Values, read_values
from training.importing.folder.paths import PathFinder, is_like_image, make_ids
from training.importing.folder.rows import ImageRows, TableReader, split_of
from training.importing.layouts import Layout
from training.importing.listing import Listing
from training.importing.report import name_reasons

_SHOWN: Final = 3
# Tables that Hugging Face's ImageFolder has in folders of images.
_IMAGE_FOLDER: Final = ("metadata.jsonl", "metadata.csv")
# Rows that tell which column names images, where no header does.
_LOOKED_AT: Final = 50
_SECTIONS: Final[tuple[Role, ...]] = ("findings", "impression")
WITHOUT_TEXT_FILES: Final = (
    "An encoding belongs to a folder's --table or to the reports of mimic-cxr, or to texts beside images: "
    "give the table as well, or convert files of other layouts to UTF-8 with iconv."
)

# Files of which one tells a layout, by their paths in small letters.
_SIGNS: Final[Mapping[Layout, str]] = {
    "mimic-cxr": r"mimic-cxr-2\.[0-9.]+-split\.csv(?:\.gz)?|p\d{3,}/(?:s\d+/)?s\d+\.txt",
    "chexpert-plus": r"df_chexpert_plus_.*\.csv",
    "chexpert": r"chexpert[^/]*/(?:train|valid)\.csv",
    "nih-cxr14": r"data_entry_2017.*\.csv",
    "padchest": r"padchest_.*\.csv(?:\.gz)?",
    "iu-xray": r"indiana_reports\.csv|ecgen-radiology/.*\.xml",
    "karpathy": r"dataset_(?:flickr8k|flickr30k|coco)\.json",
    "coco": r"annotations/captions_(?:train|val)\d+\.json",
    "huggingface": r".*\.(?:parquet|arrow)",
    "webdataset": r".*\.(?:tar|tgz|tar\.gz)",
}
_TABLE: Final = re.compile(r"(?:[^/]+/)?[^/]+\.(?:csv|tsv|jsonl|txt|token|csv\.gz)", re.IGNORECASE)
# What Takeout and programs for photographs write beside images; Takeout cuts long names.
_BESIDE: Final = re.compile(r"\.xmp$|(?<!/metadata)(?<!^metadata)\.json$", re.IGNORECASE)
_SAYING: Final = frozenset({"text", "report", "findings", "impression", "labels"})
# A folder with more files that may be tables has texts, not tables.
_MOST_TABLES: Final = 20


def list_folder(
    images: Path, table: Path | None = None, *, encoding: str | None = None, keep_unknown_texts: bool = False
) -> Listing:
    """Find all images in a folder and below, with texts in files beside them, or those that a table names.

    The table has a column `image` with paths inside the folder. An image may have several lines, each with
    another `text`; the sentences of its `report` are texts as well. `labels` are separated by semicolons or
    bars; `id`, `split` and `group` are those of a manifest; every other column becomes metadata, numbers
    where at least 99 % of its values are. Usual synonyms of these names are known. Other tables of its name
    in the folder are read with it, each with names that may start from its own folder; without a table, those
    called metadata.jsonl or metadata.csv.

    Args:
        images: The folder.
        table: Says what the images show.
        encoding: Of the table or of the texts, where they have no byte order mark and are not UTF-8.
        keep_unknown_texts: Keep texts such as "nan" and "NULL", which stand for "not known".

    Raises:
        DataError: There are no images, or the table cannot be read.
    """
    files = find_files(images)
    tables = _tables_like(images, files, table)
    if not tables:
        return _list_files(images, files, encoding)
    for path in tables:
        if path.resolve().is_relative_to(images.resolve()):
            files.reasons.pop(path.resolve().relative_to(images.resolve()).as_posix(), None)
    return _list_tables(images, files, tables, encoding, keep_unknown_texts=keep_unknown_texts)


def _list_files(images: Path, files: FoundFiles, encoding: str | None) -> Listing:
    texts = texts_beside(files.reasons)
    lone = {
        text: of
        for text, of in lone_texts(files.reasons, set(texts.values())).items()
        if not is_table(images / text)
    }
    studies = {image: text for text, of in lone.items() if is_named_report(text) for image in of}
    studies = {image: text for image, text in studies.items() if image not in texts}
    paths = files.images()
    used = {*texts.values(), *studies.values()}
    others = {path: reason for path, reason in files.reasons.items() if reason and path not in used}
    left_out = Counter(others.values())
    notes = [*files.folders, *hints(images, others.keys() | used, paths, used)]
    notes += hint_on_lone({text: of for text, of in lone.items() if text not in used})
    if not paths:
        shown = "; ".join(name_reasons(left_out))
        error = DataError(
            f"{images} has no images ({', '.join(READABLE_SUFFIXES)}){shown and f'. Left out: {shown}'}."
        )
        for note in notes:
            error.add_note(note)
        raise error
    if encoding is not None and not used:
        raise DataError(WITHOUT_TEXT_FILES)
    ids, changed = make_ids(paths, [None] * len(paths))
    notes += _note_on_ids(changed)
    if texts:
        first = min(texts)
        notes.append(
            f"Took the texts of {len(texts):,} {'image' if len(texts) == 1 else 'images'} from files of the "
            f"same name, such as {texts[first]!r} for {first!r}."
        )
        notes += second_texts(files.reasons, texts)
    if studies:
        first, count = min(studies), len(set(studies.values()))
        notes.append(
            f"Took {count:,} {'text' if count == 1 else 'texts'} such "
            f"as {studies[first]!r} for the report of all images in its folder, which are one group."
        )
    items = _read_files(images, zip(paths, ids, strict=True), texts, studies, encoding)
    return Listing(images, images, len(paths) + len(used), items, unit="file", left_out=left_out, notes=notes)


def _read_files(
    images: Path,
    named: Iterable[tuple[str, str]],
    texts: Mapping[str, str],
    studies: Mapping[str, str],
    encoding: str | None,
) -> Iterator[Record | Rejection | LeftOut]:
    """Images by path and id, each with its text; a text that two images share is counted once."""
    counted: set[str] = set()
    for number, (path, own) in enumerate(named, 1):
        study = studies.get(path)
        name = study or texts.get(path)
        if name is None:
            yield _to_record(path, own, ImageRows(number, rows=1))
            continue
        rows = 1 if name in counted else 2
        try:
            written, report = read_text_beside(images, name, encoding)
        except DataError as error:
            yield Rejection(number, f"{path!r} has a text that cannot be used: {error}", rows=rows)
        else:
            if not written and rows == 2:
                rows = 1
                yield LeftOut("texts beside images that are empty or without words")
            known = ImageRows(number, rows=rows)
            if report is not None and written:
                known.one_each["report"] = (report, number)
            if study is not None:
                known.one_each["group"] = (path.rpartition("/")[0] or images.resolve().name, number)
                if written:
                    known.one_each["report"] = (report or "\n".join(written), number)
            yield _to_record(path, own, known, written)
        counted.add(name)


def _tables_like(images: Path, files: FoundFiles, table: Path | None) -> list[Path]:
    """The tables to read: those named as the given one, in the folder and below, or as ImageFolder has them.

    Raises:
        DataError: Such a table cannot be read.
    """
    if table is None:
        paths = [path for path in files.reasons if PurePosixPath(path).name in _IMAGE_FOLDER]
        return sorted(images / path for path in paths if is_table(images / path))
    folder = images.resolve()
    if not table.resolve().is_relative_to(folder):
        return [table]
    alike = {images / path for path in files.reasons if PurePosixPath(path).name == table.name}
    others = (path for path in alike if path.resolve() != table.resolve() and is_table(path))
    return [table, *sorted(others)]


def _list_tables(
    images: Path, files: FoundFiles, tables: Sequence[Path], encoding: str | None, *, keep_unknown_texts: bool
) -> Listing:
    read = [
        _read_table(images, files, path, encoding, keep_unknown_texts=keep_unknown_texts) for path in tables
    ]
    notes = [
        note if len(read) == 1 else f"{rows.table.path}: {note}"
        for rows in read
        for note in (*rows.columns.notes, *_note_on_encoding(rows.table), *rows.notes())
    ]
    if len(read) > 1:
        notes.insert(0, f"Read {len(read):,} tables such as {tables[0]}, with names that start beside each.")
    values: dict[str, Values] = {}
    for rows in read:
        for place, name in rows.columns.metadata.items():
            values.setdefault(name, Values()).join(rows.values.get(place, Values()))
    columns = {
        name: read_values(name, found, read[0].table.delimiter, notes) for name, found in values.items()
    }
    folder = images.resolve()
    names = [
        rows.table.path.resolve().relative_to(folder).as_posix() if len(read) > 1 else "" for rows in read
    ]
    known: dict[str, tuple[int, ImageRows]] = {}
    found: list[tuple[int, Record | Rejection]] = []
    for number, rows in enumerate(read):
        found += [(number, replace(item, table=names[number])) for item in rows.refused]
        for image, of in rows.images.items():
            first, before = known.setdefault(image, (number, of))
            if before is not of:
                reason = f"{image!r} is also in {names[first]}"
                found.append((number, Rejection(of.line, reason, names[number], of.rows)))
    ids, changed = make_ids(list(known), [of.one("id") for _, of in known.values()])
    for (image, (number, of)), own in zip(known.items(), ids, strict=True):
        metadata = {
            name: columns[name].get(value, value)
            for place, name in read[number].columns.metadata.items()
            if (value := of.known.get(place)) is not None
        }
        record = _to_record(image, own, of, _texts(of), metadata)
        found.append((number, replace(record, table=names[number])))
    notes += [*files.folders, *_note_on_ids(changed)]
    found.sort(key=lambda item: (item[0], item[1].line))
    left_out = sum((rows.left_out for rows in read), Counter[str]())
    total = sum(rows.found for rows in read) - left_out.total()
    return Listing(
        tables[0] if len(read) == 1 else images,
        images,
        total,
        (item for _, item in found),
        left_out=left_out,
        notes=notes,
        files=files.reasons,
    )


def _read_table(
    images: Path, files: FoundFiles, path: Path, encoding: str | None, *, keep_unknown_texts: bool
) -> TableReader:
    table = open_table(path, is_known_column, encoding)
    finder = PathFinder(images, files.reasons, path)
    if is_like_image(table.columns[0]) and finder.find(table.columns[0]) is not None:
        raise DataError(
            f"{path} begins with the image {table.columns[0]!r}; put a line with the names of the columns "
            "ahead, such as image,text."
        )
    columns = read_columns(table, partial(_column_of_images, table, finder))
    rows = TableReader(table, columns, finder, images, keep_unknown_texts)
    rows.read()
    if not rows.found:
        raise DataError(f"{path} has no rows below its header.")
    return rows


def _column_of_images(table: Table, finder: PathFinder) -> int | None:
    """Place of the only column whose first values are names of images, whatever it is called."""
    rows = [row.values for row in islice(table.rows(), _LOOKED_AT) if isinstance(row, Row)]
    names = [
        sum(finder.find(value.strip()) is not None or is_like_image(value) for value in values)
        for values in zip(*rows, strict=True)
    ]
    places = [place for place, count in enumerate(names) if 2 * count > len(rows)]
    return places[0] if len(places) == 1 else None


def _texts(known: ImageRows) -> list[str]:
    """Texts of an image and the sentences of its report, or of the sections of it that have columns."""
    report, sections = known.one("report"), _sections(known)
    sentences = sections.sentences or (report_sentences([report]) if report is not None else ())
    return [*known.texts, *(text for text in sentences if text not in known.texts)]


def _sections(known: ImageRows) -> Report:
    return make_report({role.upper(): known.one(role) or "" for role in _SECTIONS})


def _note_on_encoding(table: Table) -> Iterator[str]:
    if table.encoding is not None and reads_as_utf8(table.path, table.encoding):
        yield (
            f"{table.path} reads as UTF-8 as well: if its letters look wrong, import it without `--encoding`."
        )


def _note_on_ids(changed: Sequence[str]) -> Iterator[str]:
    if changed:
        shown = ", ".join(map(repr, changed[:_SHOWN]))
        more = f" and {len(changed) - _SHOWN:,} more" if len(changed) > _SHOWN else ""
        yield f"Ids with digits, since others would be the same without them: those of {shown}{more}."


def _to_record(
    image: str,
    own: str,
    known: ImageRows,
    texts: Sequence[str] = (),
    metadata: Mapping[str, MetadataValue] | None = None,
) -> Record:
    """Make the record of one image.

    Args:
        image: Its path.
        own: Its id.
        known: What its rows say.
        texts: Its texts, those of a report among them.
        metadata: From columns without another meaning.
    """
    group, named = known.one("group"), known.one("split")
    folder = PurePosixPath(image).parent.as_posix()
    place: dict[str, MetadataValue] = {} if folder == "." else {"folder": folder}
    return Record(
        id=own,
        image=image,
        split=None if named is None else split_of(named),
        texts=tuple(texts),
        group=group,
        labels=tuple(known.labels),
        report=known.one("report") or _sections(known).text,
        metadata=place | dict(metadata or {}),
        line=known.line,
        rows=known.rows,
    )


def hints(
    folder: Path, others: Collection[str], images: Collection[str], used: Collection[str] = ()
) -> Iterator[str]:
    """Commands that read more of a folder than its images, a sentence each.

    Args:
        folder: The folder.
        others: Paths of its files that are no images.
        images: Paths of its images.
        used: Those of them that are taken for texts of images.
    """
    for layout, pattern in _SIGNS.items():
        sign = re.compile(rf"(?:.*/)?(?:{pattern})")
        found = min((path for path in others if sign.fullmatch(path.lower())), default=None)
        if found is not None:
            out = " OUT" if layout in ("huggingface", "webdataset") else ""
            yield (
                f"{found!r} is a file of the layout {layout}: `recoquest import {layout} "
                f"{quote(str(folder))}{out}` reads it."
            )
    folders = {path.rpartition("/")[0] for path in images}
    beside = [path for path in others if _BESIDE.search(path) and path.rpartition("/")[0] in folders]
    if beside:
        yield (
            f"{len(beside):,} {'file' if len(beside) == 1 else 'files'} such as {min(beside)!r} may have "
            "captions and keywords, which are not read: write them into a table with the columns file_name "
            "and text, and give it with --table (`exiftool -csv -r FOLDER > table.csv` writes those of .xmp "
            "files and of images)."
        )
    tables = sorted(path for path in others if path not in used and _TABLE.fullmatch(path))
    for path in tables if len(tables) <= _MOST_TABLES else ():
        if is_table(folder / path):
            yield (
                f"{path!r} is a table of images: `recoquest import folder {quote(str(folder))} "
                f"--table {quote(str(folder / path))}` takes what it says of them."
            )


def is_table(path: Path) -> bool:
    """Whether a file is a table that names images and says something of them."""
    try:
        columns = read_columns(open_table(path, is_known_column))
    except DataError:
        return False
    return not _SAYING.isdisjoint(columns.places)
