"""A folder of images of one's own, with texts in files next to them or in tables."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import Final

from training.clinical.text.report_text import Report, described_report, make_report
from training.clinical.text.sentences import report_sentences, split_sentences
from training.common.encodings import read_text, reads_as_utf8
from training.common.errors import DataError
from training.common.record import MetadataValue, Record
from training.common.rejections import LeftOut, Rejection
from training.common.roles import NAMES, Role, normal_name
from training.common.tables import Row, Table, open_table
from training.common.values import is_without_words
from training.imaging.formats import READABLE_SUFFIXES
from training.importing.files import FoundFiles, find_files, unreadable
from training.importing.layouts import Layout, Source
from training.importing.listing import Listing
from training.importing.metadata import Values, read_values
from training.importing.paths import PathFinder, is_like_image, make_ids
from training.importing.report import Examples, name_reasons
from training.importing.splits import SPLITS
from training.importing.tables import ImageRows, TableReader, begins_with_image, is_known_column, read_columns

_SHOWN: Final = 3
# Tables that Hugging Face's ImageFolder has in folders of images.
_IMAGE_FOLDER: Final = ("metadata.jsonl", "metadata.csv")
# Rows that tell which column names images, where no header does.
_LOOKED_AT: Final = 50
_SECTIONS: Final[tuple[Role, ...]] = ("findings", "impression")

# Files of which one tells a layout, by their paths in small letters.
_SIGNS: Final[Mapping[str, str]] = {
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
# What Takeout and programs for photographs write next to images; Takeout cuts long names.
_SIDECAR: Final = re.compile(r"\.xmp$|(?<!/metadata)(?<!^metadata)\.json$", re.IGNORECASE)
_SAYING: Final = frozenset({"text", "report", "findings", "impression", "labels"})
# A folder with more files that may be tables has texts, not tables.
_MOST_TABLES: Final = 20

_ENDINGS: Final = (".txt", ".caption")
_NUMBER: Final = re.compile(r"[\d.eE+-]+")
# A folder with more images is not of one study.
_STUDY: Final = range(1, 51)
_REPORTS: Final = frozenset(
    (*NAMES["report"], *NAMES["findings"], *NAMES["impression"], "text", "study", "studie", "exam")
)
_OF_PROJECTS: Final = re.compile(r"(?:read_?me|licen[cs]e|copying|changelog|classes|requirements|urls?)\b.*")


def list_folder(source: Source) -> Listing:
    """Find all images in a folder and below, with texts in files next to them, or those that a table names.

    The table has a column `image` with paths inside the folder. An image may have several lines, each with
    another `text`; the sentences of its `report` are texts as well. `labels` are separated by semicolons or
    bars; `id`, `split` and `group` are those of a manifest; every other column becomes metadata, numbers
    where at least 99 % of its values are. Usual synonyms of these names are known. Other tables of its name
    in the folder are read with it, each with names that may start from its own folder; without a table, those
    called metadata.jsonl or metadata.csv.
    """
    if source.keep_unknown_texts and source.table is None:
        raise DataError("Texts to keep belong to a table; give it as well with --table.")
    images = source.images or source.path
    files = find_files(images)
    tables = _tables_like(images, files, source.table)
    if not tables:
        return _list_files(images, files, source.encoding)
    for path in tables:
        if path.resolve().is_relative_to(images.resolve()):
            files.reasons.pop(path.resolve().relative_to(images.resolve()).as_posix(), None)
    read = [
        _read_table(images, files, path, source.encoding, keep_unknown_texts=source.keep_unknown_texts)
        for path in tables
    ]
    return _list_tables(images, files, read)


FOLDER: Final = Layout(
    "folder",
    "images of your own, with texts in files or in a table (docs/guides/data.md)",
    list_folder,
    options=frozenset({"images", "table", "encoding", "keep_unknown_texts"}),
)


def _list_files(images: Path, files: FoundFiles, encoding: str | None) -> Listing:
    paths, (texts, second_texts) = files.images(), _find_texts(files.reasons)
    lone = {
        text: of
        for text, of in _find_lone_texts(files.reasons, set(texts.values())).items()
        if not _is_table(images / text)
    }
    # Images whose folder has one report for all of them.
    studies = {
        image: text
        for text, of in lone.items()
        if _is_named_report(text)
        for image in of
        if image not in texts
    }
    used = {*texts.values(), *studies.values()}
    others = {path: reason for path, reason in files.reasons.items() if reason and path not in used}
    left_out = Counter(others.values())
    notes = [*files.folders, *_hints(images, others.keys() | used, paths, used)]
    notes += _hint_on_lone_text({text: of for text, of in lone.items() if text not in used})
    if not paths:
        shown = "; ".join(name_reasons(left_out))
        error = DataError(
            f"{images} has no images ({', '.join(READABLE_SUFFIXES)}){shown and f'. Left out: {shown}'}."
        )
        for note in notes:
            error.add_note(note)
        raise error
    if encoding is not None and not used:
        raise DataError(
            "An encoding belongs to a table or to texts of the images' names, and there are none: give the "
            "table as well with --table."
        )
    ids, changed = make_ids(paths, [None] * len(paths))
    notes += _note_on_ids(changed)
    if texts:
        first = min(texts)
        notes.append(
            f"Took the texts of {len(texts):,} {'image' if len(texts) == 1 else 'images'} from files of the "
            f"same name, such as {texts[first]!r} for {first!r}."
        )
        examples = Examples()
        for path, image in second_texts.items():
            examples.note(f"{path!r} next to {texts[image]!r}")
        if second_texts:
            times = examples.times("text is", "texts are")
            notes.append(f"{times} not read, since the image has another: {examples}.")
    if studies:
        first, count = min(studies), len(set(studies.values()))
        notes.append(
            f"Took {count:,} {'text' if count == 1 else 'texts'} such "
            f"as {studies[first]!r} for the report of all images in its folder, which are one group."
        )

    def items() -> Iterator[Record | Rejection | LeftOut]:
        counted: set[str] = set()
        for number, (path, own) in enumerate(zip(paths, ids, strict=True), 1):
            study = studies.get(path)
            name = study or texts.get(path)
            if name is None:
                yield _to_record(path, own, ImageRows(number, rows=1))
                continue
            # A text that two images share is counted once.
            rows = 1 if name in counted else 2
            counted.add(name)
            try:
                written, report = _read_text(images, name, encoding)
            except DataError as error:
                yield Rejection(number, f"{path!r} has a text that cannot be used: {error}", rows=rows)
                continue
            if not written and rows == 2:
                rows = 1
                yield LeftOut("texts next to images that are empty or without words")
            known = ImageRows(number, rows=rows)
            if written and (report is not None or study is not None):
                known.one_each["report"] = (report or "\n".join(written), number)
            if study is not None:
                known.one_each["group"] = (path.rpartition("/")[0] or images.resolve().name, number)
            yield _to_record(path, own, known, written)

    return Listing(images, images, len(paths) + len(used), items(), "file", left_out, notes)


def _texts_in(reasons: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Files with texts, each with its path without the ending."""
    for path in sorted(path for path, reason in reasons.items() if reason):
        suffix = PurePosixPath(path).suffix.lower()
        # Other reasons are those of files of systems.
        if suffix in _ENDINGS and reasons[path] == unreadable(suffix):
            yield path, path[: -len(suffix)]


def _find_texts(reasons: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The text of each image that has one, such as 1.txt or 1.jpg.txt for 1.jpg; the images of others.

    Of several texts whose names differ by case, an image has the one with its own. Where no image has a text
    of its path, a name that one image and one text have tells it, as of images/1.jpg and reports/1.txt, if
    this is so of most texts.
    """
    texts: dict[str, list[str]] = {}
    for path, name in _texts_in(reasons):
        texts.setdefault(_key(name), []).append(path)
    images = sorted(path for path, reason in reasons.items() if not reason) if texts else []
    chosen: dict[str, str] = {}
    candidates: dict[str, str] = {}
    for image in images:
        stem = image.removesuffix(PurePosixPath(image).suffix)
        named = [paths for name in (image, stem) if (paths := texts.get(_key(name)))]
        first = named[0] if named else []
        exact = [path for path in first if path.startswith(stem)]
        if exact or len(first) == 1:
            chosen[image] = (exact or first)[0]
            candidates |= {path: image for paths in named for path in paths}
    if chosen or not texts:
        used = set(chosen.values())
        return chosen, {path: image for path, image in candidates.items() if path not in used}
    names = Counter(_key(PurePosixPath(image).stem) for image in images)
    counts = Counter(key.rpartition("/")[2] for key in texts)
    by_name = {
        name: paths[0]
        for key, paths in texts.items()
        if len(paths) == counts[name := key.rpartition("/")[2]] == 1
    }
    for image in images:
        name = _key(PurePosixPath(image).stem)
        if names[name] == 1 and name in by_name:
            chosen[image] = by_name[name]
    return (chosen if 2 * len(chosen) > len(texts) else {}), {}


def _key(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def _find_lone_texts(reasons: Mapping[str, str], used: Collection[str]) -> dict[str, list[str]]:
    """The images of each folder that has one text alone, which no image is named like, by the path of it."""
    texts: dict[str, list[str]] = {}
    images: dict[str, list[str]] = {}
    for path, _ in _texts_in(reasons):
        texts.setdefault(path.rpartition("/")[0], []).append(path)
    for path, reason in reasons.items():
        if not reason:
            images.setdefault(path.rpartition("/")[0], []).append(path)
    return {
        several[0]: sorted(images[folder])
        for folder, several in sorted(texts.items())
        if len(several) == 1 and several[0] not in used and len(images.get(folder, ())) in _STUDY
    }


def _is_named_report(path: str) -> bool:
    """Whether the name of a file says that it is a report, or is that of its folder."""
    file = PurePosixPath(path)
    name = normal_name(file.stem)
    return not _REPORTS.isdisjoint({name, *name.split("_")}) or name == normal_name(file.parent.name)


def _hint_on_lone_text(texts: Mapping[str, list[str]]) -> Iterator[str]:
    """Advice on texts that may be reports of their folders, as `_find_lone_texts` gives them."""
    path = next(
        (one for one in texts if not _OF_PROJECTS.fullmatch(normal_name(PurePosixPath(one).stem))), None
    )
    if path is not None:
        count = len(texts[path])
        yield (
            f"{path!r} is the only text in the folder of {count} {'image' if count == 1 else 'images'}: "
            "name it report.txt to have it taken as the report of all images there."
        )


def _read_text(folder: Path, name: str, encoding: str | None) -> tuple[tuple[str, ...], str | None]:
    """The texts in a file, and the whole of it where it is a report of several sentences.

    Lines that are not of running text are a caption each.

    Raises:
        DataError: The file cannot be read, or is not in its encoding.
    """
    text = read_text(folder / name, f"the text {name!r}", encoding).strip("\ufeff \n\t")
    # Lines of numbers alone are the boxes of objects.
    lines = [
        " ".join(line.split()) for line in text.splitlines() if not is_without_words(_NUMBER.sub("", line))
    ]
    if (report := described_report(text)) is not None:
        return report.sentences, report.text
    # Running text has lines of several sentences, wrapped lines, or paragraphs.
    wrapped = bool(lines) and lines[0][:1].isupper() and any(line[:1].islower() for line in lines[1:])
    if any(len(split_sentences(line)) > 1 for line in lines) or (
        len(lines) > 1 and (wrapped or "\n\n" in text)
    ):
        return report_sentences([text]), text
    return tuple(dict.fromkeys(lines)), None


def _tables_like(images: Path, files: FoundFiles, table: Path | None) -> list[Path]:
    """The tables to read: those named as the given one, in the folder and below, or as ImageFolder has them.

    Raises:
        DataError: Such a table cannot be read.
    """
    names = _IMAGE_FOLDER if table is None else (table.name,)
    alike = {images / path for path in files.reasons if PurePosixPath(path).name in names}
    if table is None:
        return sorted(filter(_is_table, alike))
    if not table.resolve().is_relative_to(images.resolve()):
        return [table]
    return [table, *sorted(path for path in alike if path.resolve() != table.resolve() and _is_table(path))]


def _is_table(path: Path) -> bool:
    """Whether a file is a table that names images and says something of them."""
    try:
        columns = read_columns(open_table(path, is_known_column))
    except DataError:
        return False
    return not _SAYING.isdisjoint(columns.indices)


def _read_table(
    images: Path, files: FoundFiles, path: Path, encoding: str | None, *, keep_unknown_texts: bool
) -> TableReader:
    table = open_table(path, is_known_column, encoding)
    finder = PathFinder(images, files.reasons, path)
    if is_like_image(table.columns[0]) and finder.find(table.columns[0]) is not None:
        raise DataError(begins_with_image(table, table.columns[0]))
    columns = read_columns(table, partial(_column_of_images, table, finder))
    rows = TableReader(table, columns, finder, images, keep_unknown_texts)
    rows.read()
    if not rows.found:
        raise DataError(f"{path} has no rows below its header.")
    return rows


def _column_of_images(table: Table, finder: PathFinder) -> int | None:
    """Index of the only column whose first values are names of images, whatever it is called."""
    rows = [row.values for row in islice(table.rows(), _LOOKED_AT) if isinstance(row, Row)]
    counts = [
        sum(finder.find(value.strip()) is not None or is_like_image(value) for value in values)
        for values in zip(*rows, strict=True)
    ]
    indices = [index for index, count in enumerate(counts) if 2 * count > len(rows)]
    return indices[0] if len(indices) == 1 else None


def _list_tables(images: Path, files: FoundFiles, read: Sequence[TableReader]) -> Listing:
    notes = [
        note if len(read) == 1 else f"{rows.table.path}: {note}"
        for rows in read
        for note in (*rows.columns.notes, *_note_on_encoding(rows.table), *rows.notes())
    ]
    if len(read) > 1:
        first = read[0].table.path
        notes.insert(0, f"Read {len(read):,} tables such as {first}; their paths start at their own folders.")
    values: dict[str, Values] = {}
    for rows in read:
        for index, name in rows.columns.metadata.items():
            values.setdefault(name, Values()).join(rows.values[index])
    columns = {name: read_values(name, of, read[0].table.delimiter, notes) for name, of in values.items()}
    folder = images.resolve()
    names = [
        rows.table.path.resolve().relative_to(folder).as_posix() if len(read) > 1 else "" for rows in read
    ]
    known: dict[str, tuple[int, ImageRows]] = {}
    items: list[tuple[int, Record | Rejection]] = []
    for number, rows in enumerate(read):
        items += [(number, replace(item, table=names[number])) for item in rows.refused]
        for image, of in rows.images.items():
            before, _ = known.setdefault(image, (number, of))
            if before != number:
                reason = f"{image!r} is also in {names[before]}"
                items.append((number, Rejection(of.line, reason, names[number], of.rows)))
    ids, changed = make_ids(list(known), [of.one("id") for _, of in known.values()])
    for (image, (number, of)), own in zip(known.items(), ids, strict=True):
        metadata = {
            name: columns[name].get(value, value)
            for index, name in read[number].columns.metadata.items()
            if (value := of.known.get(index)) is not None
        }
        report, sections = of.one("report"), _sections(of)
        sentences = sections.sentences or (report_sentences([report]) if report is not None else ())
        texts = [*of.texts, *(text for text in sentences if text not in of.texts)]
        record = _to_record(image, own, of, texts, metadata)
        items.append((number, replace(record, table=names[number])))
    notes += [*files.folders, *_note_on_ids(changed)]
    items.sort(key=lambda item: (item[0], item[1].line))
    left_out = sum((rows.left_out for rows in read), Counter[str]())
    return Listing(
        read[0].table.path if len(read) == 1 else images,
        images,
        sum(rows.found for rows in read) - left_out.total(),
        (item for _, item in items),
        left_out=left_out,
        notes=notes,
        files=files.reasons,
    )


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
    """Make the record of an image with its id, all its texts, and metadata of columns without a meaning."""
    split = known.one("split")
    folder = PurePosixPath(image).parent.as_posix()
    own_folder: dict[str, MetadataValue] = {} if folder == "." else {"folder": folder}
    return Record(
        id=own,
        image=image,
        split=None if split is None else SPLITS[split.casefold()],
        texts=tuple(texts),
        group=known.one("group"),
        labels=tuple(known.labels),
        report=known.one("report") or _sections(known).text,
        metadata=own_folder | dict(metadata or {}),
        line=known.line,
        rows=known.rows,
    )


def _hints(
    folder: Path, others: Collection[str], images: Collection[str], used: Collection[str]
) -> Iterator[str]:
    """Commands that read more of a folder than its images, a sentence each.

    `others` are the paths of files that are no images; those `used` are taken for texts of `images`.
    """
    for layout, pattern in _SIGNS.items():
        sign = re.compile(rf"(?:.*/)?(?:{pattern})")
        first = min((path for path in others if sign.fullmatch(path.lower())), default=None)
        if first is not None:
            out = " OUT" if layout in ("huggingface", "webdataset") else ""
            yield (
                f"{first!r} is a file of the layout {layout}: `recoquest import {layout} "
                f"{quote(str(folder))}{out}` reads it."
            )
    folders = {path.rpartition("/")[0] for path in images}
    sidecars = [path for path in others if _SIDECAR.search(path) and path.rpartition("/")[0] in folders]
    if sidecars:
        yield (
            f"{len(sidecars):,} {'file' if len(sidecars) == 1 else 'files'} such as {min(sidecars)!r} may "
            "have captions and keywords, which are not read: write them into a table with the columns "
            "file_name and text, and give it with --table (`exiftool -csv -r FOLDER > table.csv` writes "
            "those of .xmp files and of images)."
        )
    tables = sorted(path for path in others if path not in used and _TABLE.fullmatch(path))
    for path in tables if len(tables) <= _MOST_TABLES else ():
        if _is_table(folder / path):
            yield (
                f"{path!r} is a table of images: `recoquest import folder {quote(str(folder))} "
                f"--table {quote(str(folder / path))}` takes what it says of them."
            )
