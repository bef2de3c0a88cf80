"""Gathers the rows of a user's table by image."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import itemgetter
from pathlib import Path, PurePosixPath
from posixpath import commonprefix
from typing import Final, get_args

from training.common.errors import ImageError
from training.common.record import Split
from training.common.rejections import LeftOut, Rejection
from training.common.tables.roles import Role
from training.common.tables.table import Row, Table
from training.common.values import is_not_known, is_without_words, parse_list
from training.imaging.formats import is_readable_suffix
from training.imaging.images import ImageLimits, read_file
from training.importing.examples import Examples, shortened
from training.importing.folder.columns import Columns
from training.importing.folder.files import unreadable
from training.importing.folder.metadata import Values
from training.importing.folder.paths import PathFinder, as_path, is_like_image
from training.importing.splits import SPLITS

_SPLITS: Final[tuple[Split, ...]] = get_args(Split)
_BETWEEN_LABELS: Final = re.compile("[;|]")
_BETWEEN_KEYWORDS: Final = re.compile("[;|]|, ")
# An image has one of each; rows that disagree cannot both be right.
_REPORTS: Final[tuple[Role, ...]] = ("report", "findings", "impression")
_ONE_EACH: Final[tuple[Role, ...]] = ("id", "split", "group", *_REPORTS)
_SIGNATURE_BYTES: Final = 4096
# An image with more texts than these is compared with its last ones.
_RECENT: Final = 20
_SUGGESTED: Final = 3
# Rows whose names tell where images lie that were named on another computer.
_LOOKED_AT: Final = 10_000
# Beginnings of lists, objects and bytes that a program wrote as texts.
_ODD: Final = ("[", "{", "('", '("', "b'", 'b"')
_LOST: Final = "\ufffd"


@dataclass(slots=True)
class ImageRows:
    """The rows of one image, taken together; `known` has the metadata by the places of their columns.

    Where the table numbers the texts of an image, `order` has the number of each.
    """

    line: int
    rows: int = 0
    texts: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    labels: dict[str, None] = field(default_factory=dict)
    one_each: dict[Role, tuple[str, int]] = field(default_factory=dict)
    known: dict[int, str] = field(default_factory=dict)
    later: dict[int, int] = field(default_factory=dict)

    def one(self, role: Role) -> str | None:
        """The image's id, split, group, report or a section of it; None if there is none."""
        value = self.one_each.get(role)
        return None if value is None else value[0]

    def sort_texts(self) -> None:
        """Put the texts into the order of their numbers, if all have one."""
        if len(self.order) == len(self.texts) and all(number.isdecimal() for number in self.order):
            numbered = zip(map(int, self.order), self.texts, strict=True)
            self.texts = [text for _, text in sorted(numbered, key=itemgetter(0))]


@dataclass
class TableReader:
    """Reads all rows of a table; then `images`, `refused` and the other fields say what was in it.

    Attributes:
        table: To be read.
        columns: What its columns hold.
        finder: Finds the images.
        keep_unknown_texts: Keep texts such as "nan".
        found: Number of rows.
        images: What is known of each image, by its path, in the order of the table.
        refused: Rows that cannot be used, in the order of their lines.
        left_out: Rows without any value.
        values: Metadata by the places of their columns.
        inner: The folder below that has all images, where the first one is not found without it.
    """

    table: Table
    columns: Columns
    finder: PathFinder
    folder: Path
    keep_unknown_texts: bool = False
    found: int = 0
    images: dict[str, ImageRows] = field(default_factory=dict)
    refused: list[Rejection] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    values: dict[int, Values] = field(default_factory=dict)
    inner: str | None = None
    _asked_inner: bool = False
    _unknown: dict[int, Examples] = field(default_factory=dict)
    _unknown_texts: dict[str, Examples] = field(default_factory=dict)
    _differing: dict[int, Examples] = field(default_factory=dict)
    _unnamed: dict[int, Examples] = field(default_factory=dict)
    _splits: dict[str, Examples] = field(default_factory=dict)
    _several_labels: Examples = field(default_factory=Examples)
    _foreign: list[tuple[str, int]] = field(default_factory=list)
    _lost: Examples = field(default_factory=Examples)
    _wordless: Examples = field(default_factory=Examples)
    _repeated: Examples = field(default_factory=Examples)
    _twice: Examples = field(default_factory=Examples)
    _bare: Examples = field(default_factory=Examples)
    _missing: list[Row] = field(default_factory=list)
    _loose: dict[str, Examples] = field(default_factory=dict)
    _lists: set[int] = field(default_factory=set)
    _listed: dict[int, Examples] = field(default_factory=dict)
    _odd: dict[int, Examples] = field(default_factory=dict)

    def read(self) -> None:
        """Read the table.

        Raises:
            DataError: It cannot be read, or is not in its encoding.
        """
        image = self.columns.places["image"]

        def begins_row(line: str) -> bool:
            return self.finder.begins_with_image(line, self.table.delimiter, image, len(self.table.columns))

        looked = islice(self.table.rows(begins_row), _LOOKED_AT)
        rows = [row for row in looked if isinstance(row, Row)]
        self.finder.learn([row.values[image].strip() for row in rows])
        for place in {*self.columns.texts, *self.columns.labels}:
            values = [row.values[place] for row in rows if not is_not_known(row.values[place])]
            if 2 * sum(parse_list(value) is not None for value in values) >= max(1, len(values)):
                self._lists.add(place)
        for row in self.table.rows(begins_row):
            self.found += 1
            if isinstance(row, LeftOut):
                self.left_out[row.reason] += row.count
            elif isinstance(row, Rejection):
                self.refused.append(row)
            elif (reason := self._read_row(row)) is not None:
                self.refused.append(Rejection(row.line, reason))
        self._take_missing()
        for known in self.images.values():
            known.sort_texts()

    def _read_row(self, row: Row) -> str | None:
        """Add a row to its image, or to those without one; the reason if it cannot be used."""
        name = row.values[self.columns.places["image"]]
        if is_not_known(name):
            return "it names no image"
        if any("\0" in value for value in row.values):
            return "it holds a null character"
        path = self._find(name)
        if path is not None:
            return self._take(row, path)
        self._missing.append(row)
        return None

    def _take_missing(self) -> None:
        """Take rows whose names fit one image but for their spelling, where no other name fits it."""
        names = {row.values[self.columns.places["image"]].strip() for row in self._missing}
        found = {name: self.finder.find_loosely(name) for name in names}
        wanted = Counter(loose[0] for loose in found.values() if loose is not None)
        exact = set(self.images)
        for row in self._missing:
            name = row.values[self.columns.places["image"]].strip()
            path, what = found[name] or ("", "")
            reason = f"{name!r} may be {path!r}, which another row names" if path in exact else ""
            if wanted[path] > 1:
                reason = f"{name!r} may be {path!r}, and so may another name of the table"
            reason = reason or self._take(row, path or None) or ""
            if reason:
                self.refused.append(Rejection(row.line, reason))
            elif path:
                words = f"{name!r} for {path!r} on line {row.line}"
                self._loose.setdefault(what, Examples()).add_words(partial(str, words), row.line)

    def _take(self, row: Row, path: str | None) -> str | None:
        """Add a row to the image of this path; the reason if it cannot be used."""
        name = row.values[self.columns.places["image"]]
        if path is None and self.finder.is_foreign(name.strip()):
            self._foreign.append((as_path(name.strip()), row.line))
            return f"there is no image {name.strip()!r} in {self.folder}"
        if path is None:
            like = " or ".join(map(repr, self.finder.like(name.strip())[:_SUGGESTED]))
            hint = like and f"; is it {like}?"
            return f"there is no image {name.strip()!r} in {self.folder}{hint}"
        suffix = PurePosixPath(path).suffix.lower()
        if not is_readable_suffix(suffix) and not _has_signature(self.folder / path):
            return f"{name.strip()!r} is one of the {unreadable(suffix)}"
        known = self.images.get(path)
        one_each = dict(self._one_each(row))
        if "split" in one_each and one_each["split"].casefold() not in SPLITS:
            return f"the split {one_each['split']!r} is not one of {', '.join(_SPLITS)}"
        for role, value in one_each.items():
            if known is not None and known.one(role) not in (None, value):
                before, line = known.one_each[role]
                return (
                    f"the {role} of the image {path!r} is {shortened(value)} "
                    f"and {shortened(before)} on line {line}"
                )
        if known is None:
            known = self.images[path] = ImageRows(row.line)
        self._add(row, known, one_each)
        if not is_like_image(name) and is_like_image(path):
            self._bare.add_words(lambda: f"{name.strip()!r} for {path!r} on line {row.line}", row.line)
        return None

    def _find(self, name: str) -> str | None:
        path = self.finder.find(name) or self.finder.find(name.strip())
        if path is None and not self.images and not self._asked_inner:
            # A download holds its table beside the folder of its images.
            self._asked_inner = True
            self.inner = self.finder.look_in_folder_of(name.strip())
            path = self.finder.find(name.strip())
        return path

    def _one_each(self, row: Row) -> Iterator[tuple[Role, str]]:
        for role in _ONE_EACH:
            if role in self.columns.places:
                place = self.columns.places[role]
                value = row.values[place].strip()
                if role == "split":
                    value = value.casefold() if value.casefold() in _SPLITS else value
                if role in _REPORTS:
                    if self._is_text(value, row.line):
                        yield role, value
                elif self._is_there(value, place, row.line):
                    yield role, value

    def _add(self, row: Row, known: ImageRows, one_each: dict[Role, str]) -> None:
        known.rows += 1
        for role, value in one_each.items():
            known.one_each.setdefault(role, (value, row.line))
        if "split" in one_each and one_each["split"] not in _SPLITS:
            self._splits.setdefault(one_each["split"], Examples()).add(one_each["split"], row.line)
        texts: dict[str, None] = {}
        for place in self.columns.texts:
            own = [" ".join(text.split()) for text in row.texts.get(place) or self._items(row, place)]
            # Programs write one caption of a photograph into several fields.
            own = [text for text in own if not (self.columns.exiftool and text in texts)]
            texts.update(dict.fromkeys(own))
            for text in own:
                self._add_text(row, known, text)
        for place in self.columns.labels:
            self._add_labels(row, known, place)
        for place in self.columns.metadata:
            value = row.values[place].strip()
            if value and self._is_there(value, place, row.line):
                self._add_metadata(row, known, place, value)
        for place in self.columns.unnamed:
            if value := row.values[place].strip():
                self._unnamed.setdefault(place, Examples()).add(value, row.line)
        if any(_LOST in value for value in row.values):
            self._lost.add(next(value for value in row.values if _LOST in value), row.line)

    def _add_text(self, row: Row, known: ImageRows, text: str) -> None:
        if not self._is_text(text, row.line):
            return
        if text in known.texts[-_RECENT:] and not is_not_known(text):
            self._repeated.add(text, row.line)
        if _is_decoded_twice(text):
            self._twice.add(text, row.line)
        known.texts.append(text)
        if "order" in self.columns.places:
            known.order.append(row.values[self.columns.places["order"]].strip())

    def _items(self, row: Row, place: int) -> tuple[str, ...]:
        """The texts of a value that another program wrote as a list, where those of its column mostly are."""
        value = row.values[place]
        if not value.startswith(_ODD):
            return (value,)
        items = parse_list(value) if place in self._lists else None
        noted = self._odd if items is None else self._listed
        noted.setdefault(place, Examples()).add(value, row.line)
        return (value,) if items is None else items

    def _add_labels(self, row: Row, known: ImageRows, place: int) -> None:
        between = _BETWEEN_KEYWORDS if self.columns.exiftool else _BETWEEN_LABELS
        parts = (part for item in self._items(row, place) for part in between.split(item))
        labels = filter(None, map(str.strip, parts))
        own = dict.fromkeys(label for label in labels if self._is_there(label, place, row.line))
        if known.labels and own.keys() - known.labels.keys():
            self._several_labels.add("; ".join(own), row.line)
        known.labels |= own

    def _add_metadata(self, row: Row, known: ImageRows, place: int, value: str) -> None:
        before = known.known.get(place)
        if before is None:
            known.known[place] = value
            if row.line != known.line:
                known.later[place] = row.line
            self.values.setdefault(place, Values()).add(value, row.line)
        elif before != value:
            examples = self._differing.setdefault(place, Examples())
            line = known.later.get(place, known.line)
            examples.add_words(
                lambda: f"{shortened(value)} on line {row.line} after {shortened(before)} on line {line}",
                row.line,
            )

    def _is_there(self, value: str, place: int, line: int) -> bool:
        if not is_not_known(value):
            return True
        if value:
            self._unknown.setdefault(place, Examples()).add(value, line)
        return False

    def _is_text(self, value: str, line: int) -> bool:
        if value and is_without_words(value):
            self._wordless.add(value, line)
            return False
        if not is_not_known(value):
            return True
        if value:
            self._unknown_texts.setdefault(value, Examples()).add(value, line)
        return bool(value) and self.keep_unknown_texts

    def _note_on_foreign(self) -> str:
        """One sentence for all images whose paths begin with folders that are not here."""
        examples = Examples()
        for path, line in self._foreign:
            examples.add(path, line)
        shared = commonprefix([path for path, _ in self._foreign]).rpartition("/")
        begin = f"with {shared[0] + shared[1]!r}, which is" if shared[0] else "with folders that are"
        rows = examples.times(
            "row names its image by a path that begins", "rows name their images by paths that begin"
        )
        return (
            f"{rows} {begin} not in {self.folder} ({examples.lines()}): "
            "give the folder that has the images with --images."
        )

    def notes(self) -> Iterator[str]:
        """Sentences on values that are not in the manifest as they stand in the table, with their lines."""
        columns = self.table.columns
        if self.inner is not None:
            yield f"Looked for the images in the folder {self.inner!r} as well."
        for beginning, folder in self.finder.moved.items():
            where = f"{self.folder / folder}" if folder else f"{self.folder}"
            yield f"Looked for images whose paths begin with {beginning!r} in {where}, by the rest of them."
        for what, examples in self._loose.items():
            rows = examples.times("row names its image", "rows name their images")
            yield f"{rows} by a name that differs in {what} alone: {examples}."
        if self._bare.count:
            rows = self._bare.times("row names its image", "rows name their images")
            yield f"{rows} without the ending: {self._bare}."
        if self._foreign:
            yield self._note_on_foreign()
        for value, examples in self._unknown_texts.items():
            end = (
                "kept as it is written"
                if self.keep_unknown_texts
                else "left out as not known; `--keep-unknown-texts` keeps such texts"
            )
            yield f"{examples.times('text is', 'texts are')} {value!r} ({examples.lines()}): {end}."
        if self._wordless.count:
            verb = self._wordless.times("text has", "texts have")
            yield f"{verb} neither letters nor digits: left out as empty: {self._wordless}."
        for place, examples in sorted(self._unknown.items()):
            several = examples.times("value stands", "values stand")
            yield f"{columns[place]}: {several} for 'not known', not stored: {examples}."
        for place, examples in sorted(self._differing.items()):
            yield (
                f"{columns[place]}: {examples.times('row differs', 'rows differ')} from an earlier row "
                f"of the same image, whose value is kept: {examples}."
            )
        if self._several_labels.count:
            yield (
                f"{self._several_labels.times('row adds', 'rows add')} labels to those of an earlier row "
                f"of the same image: {self._several_labels}."
            )
        for split, examples in self._splits.items():
            yield f"The split {split!r} is taken for {SPLITS[split.casefold()]} ({examples.lines()})."
        for place, examples in self._unnamed.items():
            yield f"Column {place + 1} has no name and is not stored, {examples.count:,} values: {examples}."
        for place, examples in self._listed.items():
            several = examples.times("value is a list in quotes", "values are lists in quotes")
            yield f"{columns[place]}: {several}, of which each item was taken: {examples}."
        for place, examples in self._odd.items():
            several = examples.times(
                "value looks like a list or an object and stays", "values look like lists or objects and stay"
            )
            yield f"{columns[place]}: {several} text: {examples}."
        if self._repeated.count:
            verb = self._repeated.times("row repeats", "rows repeat")
            yield f"{verb} a text that its image has already; it is kept: {self._repeated}."
        if self._twice.count:
            verb = self._twice.times("text reads", "texts read")
            yield (
                f"{verb} as UTF-8 that another program took for Windows-1252, such as 'Ã¶' for 'ö': "
                f"{self._twice}."
            )
        if self._lost.count:
            yield (
                f"{self._lost.times('row holds', 'rows hold')} U+FFFD, "
                "which another program wrote for characters that it lost "
                f"({self._lost.lines()})."
            )


def _is_decoded_twice(text: str) -> bool:
    """Whether a text was UTF-8 whose bytes were taken for letters of Windows-1252."""
    if text.isascii():
        return False
    try:
        text.encode("cp1252").decode("utf-8")
    except UnicodeError:
        return False
    return True


def _has_signature(path: Path) -> bool:
    """Whether a file begins as an image does that can be decoded, whatever its ending."""
    try:
        with path.open("rb") as file:
            read_file(file.read(_SIGNATURE_BYTES), ImageLimits())
    except (OSError, ImageError):
        return False
    return True


def split_of(value: str) -> Split:
    """The split that a table names, in any of its spellings."""
    return SPLITS[value.casefold()]
