"""A user's table about a folder of images: what its columns hold, and its rows by image."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from pathlib import Path, PurePosixPath
from posixpath import commonprefix
from typing import Final, get_args

from training.common.errors import DataError, ImageError
from training.common.record import Split
from training.common.rejections import LeftOut, Rejection
from training.common.roles import LAST_TEXTS, NAMES, Role, normal_name
from training.common.tables import Row, Table, is_unnamed
from training.common.values import is_not_known, is_without_words, parse_list
from training.imaging.formats import is_readable_suffix
from training.imaging.images import ImageLimits, read_file
from training.importing.files import unreadable
from training.importing.metadata import Values
from training.importing.paths import PathFinder, as_path, is_like_image
from training.importing.report import Examples, shortened
from training.importing.splits import SPLITS

_ROLES: Final[dict[str, Role]] = {
    name: role for role, names in NAMES.items() for name in names
} | dict.fromkeys(LAST_TEXTS, "text")
_CALLED: Final[dict[Role, str]] = {"order": "the order of texts"}
_SAYING: Final[frozenset[Role]] = frozenset({"text", "report", "findings", "impression"})
_SHOWN: Final = 12
# Tables of exiftool have this column, and others by their tags, with a group ahead or without.
_EXIFTOOL: Final = "sourcefile"
_GROUP: Final = re.compile(r"^(?:exif|ifd\d|iptc|xmp(?:_\w+)?|file|system|composite|photoshop|png):")
_CAPTIONS: Final = frozenset(("imagedescription", "caption_abstract", "description", "headline", "xpcomment"))
_KEYWORDS: Final = frozenset(("keywords", "subject", "xpkeywords"))
# An image with several texts may have them next to one another: caption1, caption_2.
_NUMBERED: Final = re.compile(r"(.*?[^\d_])_?(\d{1,2})")

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
# Rows whose names tell which folders here stand for those of another computer.
_LOOKED_AT: Final = 10_000
# Beginnings of lists, objects and bytes that a program wrote as texts.
_ODD: Final = ("[", "{", "('", '("', "b'", 'b"')
_LOST: Final = "\ufffd"
# Sentences on values that the manifest does not have as the table does, in the order of a report. (a|b) is a
# verb in the singular and the plural; a key is a value or the index of a column.
_NOTES: Final[Mapping[str, str]] = {
    "loose": "(row names its image|rows name their images) by a name that differs in {key} alone: {all}.",
    "bare": "(row names its image|rows name their images) without the ending: {all}.",
    "kept": "(text is|texts are) {key!r} ({lines}): kept as it is written.",
    "unknown text": "(text is|texts are) {key!r} ({lines}): left out as not known; "
    "`--keep-unknown-texts` keeps such texts.",
    "wordless": "(text has|texts have) neither letters nor digits: left out as empty: {all}.",
    "unknown": "{column}: (value stands|values stand) for 'not known', not stored: {all}.",
    "differing": "{column}: (row differs|rows differ) from an earlier row of the same image, whose value is "
    "kept: {all}.",
    "labels": "(row adds|rows add) labels to those of an earlier row of the same image: {all}.",
    "split": "The split {key!r} is taken for {split} ({lines}).",
    "unnamed": "Column {number} has no name and is not stored, (values|values): {all}.",
    "listed": "{column}: (value is a list|values are lists) in quotes, of which each item was taken: {all}.",
    "odd": "{column}: (value looks like a list or an object and stays"
    "|values look like lists or objects and stay) text: {all}.",
    "repeated": "(row repeats|rows repeat) a text that its image has already; it is kept: {all}.",
    "twice": "(text reads|texts read) as UTF-8 that another program took for Windows-1252, such as 'Ã¶' for "
    "'ö': {all}.",
    "lost": "(row holds|rows hold) U+FFFD, which another program wrote for characters that it lost "
    "({lines}).",
}
_TIMES: Final = re.compile(r"\(([^()|]+)\|([^()|]+)\)")


@dataclass(frozen=True)
class Columns:
    """The columns of a table by what they hold.

    Attributes:
        indices: Index of the column of each role that the table has; of several with texts, the first one.
        texts: Indices of all columns with texts, in their order.
        labels: Indices of all columns with labels.
        metadata: Names of the columns that become metadata, by their indices.
    """

    indices: dict[Role, int]
    texts: tuple[int, ...]
    labels: tuple[int, ...]
    metadata: dict[int, str]
    unnamed: tuple[int, ...]
    notes: tuple[str, ...]
    exiftool: bool = False


def is_known_column(name: str) -> bool:
    """Whether a column's name says that it holds something other than metadata."""
    return _without_number(name) in _ROLES


def read_columns(table: Table, column_of_images: Callable[[], int | None] = lambda: None) -> Columns:
    """Tell what each column of a table holds: by its name or a synonym, without regard to case.

    `column_of_images` finds the column with the paths of images where no name says which it is.

    Raises:
        DataError: No column holds the paths of images.
    """
    normal = [_GROUP.sub("", normal_name(name)) for name in table.columns]
    exiftool = _EXIFTOOL in normal
    indices: dict[Role, int] = {
        role: normal.index(name)
        for role in get_args(Role)
        if (name := next((name for name in NAMES[role] if name in normal), None)) is not None
    }
    texts = _columns_of_texts(normal)
    labels = tuple(index for role, index in indices.items() if role == "labels")
    if exiftool:
        # A caption or a keyword may be in any of them.
        texts = tuple(index for index, name in enumerate(normal) if name in _CAPTIONS) or texts
        labels = tuple(index for index, name in enumerate(normal) if name in _KEYWORDS) or labels
        indices["image"] = normal.index(_EXIFTOOL)
    if labels:
        indices["labels"] = labels[0]
    if texts:
        indices["text"] = texts[0]
    if "report" not in indices and ("findings" in indices) != ("impression" in indices):
        # One section alone is the whole of what a report says.
        indices["report"] = indices.pop("findings", indices.pop("impression", -1))
    if "image" not in indices and (index := column_of_images()) is not None:
        texts = tuple(other for other in texts if other != index)
        indices = {role: other for role, other in indices.items() if other != index} | {"image": index}
    if "image" not in indices:
        raise DataError(_without_images(table))
    unnamed = tuple(index for index, name in enumerate(table.columns) if is_unnamed(name))
    used = {*indices.values(), *texts, *labels, *unnamed}
    metadata = {index: name for index, name in enumerate(table.columns) if index not in used}
    notes = tuple(_notes_on_columns(table, indices, texts, labels, metadata))
    return Columns(indices, texts, labels, metadata, unnamed, notes, exiftool)


def _without_number(name: str) -> str:
    """The normal name of a column without its number, if one of texts has any."""
    normal = normal_name(name)
    numbered = _NUMBERED.fullmatch(normal)
    if normal in _ROLES or numbered is None or _ROLES.get(numbered[1]) != "text":
        return normal
    return numbered[1]


def _columns_of_texts(normal: Sequence[str]) -> tuple[int, ...]:
    """Indices of the columns of one name for texts, that without a number first."""
    plain = [_without_number(name) for name in normal]
    base = next((name for name in (*NAMES["text"], *LAST_TEXTS) if name in plain), None)

    def number(index: int) -> int:
        numbered = _NUMBERED.fullmatch(normal[index])
        return 0 if numbered is None or normal[index] == base else int(numbered[2])

    return tuple(sorted((index for index, name in enumerate(plain) if name == base), key=number))


def _without_images(table: Table) -> str:
    first = next((name for name in table.columns if is_like_image(name)), None)
    if first is not None:
        return begins_with_image(table, first)
    shown = ", ".join(shortened(name) for name in table.columns[:_SHOWN])
    return (
        f"{table.path} has no column 'image' (or such as 'file_name', 'path'); its first line has {shown}. "
        "Name the column with the paths of the images 'image', and that with texts 'text'."
    )


def begins_with_image(table: Table, image: str) -> str:
    """Say that a table has no header."""
    return (
        f"{table.path} begins with the image {image!r}; put a line with the names of the columns ahead, such "
        "as image,text."
    )


def _notes_on_columns(
    table: Table,
    indices: dict[Role, int],
    texts: Sequence[int],
    labels: Sequence[int],
    metadata: dict[int, str],
) -> Iterator[str]:
    if table.titles:
        yield f"Passed over {table.titles} {'line' if table.titles == 1 else 'lines'} ahead of the header."
    if table.captions:
        yield f"Took {table.path} for lines of a name, # and a number, a tab, and a caption."
    several: dict[Role, Sequence[int]] = {"text": texts, "labels": labels}
    named = {role: several.get(role) or [index] for role, index in indices.items()}
    taken = [
        f"{_listed([repr(table.columns[index]) for index in own])} for {_CALLED.get(role, role)}"
        for role, own in named.items()
        if any(table.columns[index].casefold() != role for index in own)
    ]
    if taken:
        plural = len(taken) > 1 or " and " in taken[0]
        yield f"Took {'columns' if plural else 'column'} {_listed(taken)}."
    others = [repr(name) for name in metadata.values() if _ROLES.get(_without_number(name)) in indices]
    if others:
        yield f"Took {_listed(others)} for metadata, in addition to the columns above."
    if indices.keys().isdisjoint(_SAYING):
        names = [shortened(name) for name in metadata.values()][:_SHOWN]
        rest = f"; its other columns are {_listed(names)}: rename one to 'text' or 'report'" if names else ""
        yield f"{table.path} has no column of texts, such as 'text', 'caption' or 'report'{rest}."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


@dataclass(slots=True)
class ImageRows:
    """The rows of one image, taken together.

    Attributes:
        order: Where the table numbers the texts of an image, the number of each.
        one_each: What an image has one of, with the line that says so.
        known: Metadata by the indices of their columns.
        later: Lines of metadata that are not on the first line.
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


@dataclass
class TableReader:
    """The rows of a table, gathered by image.

    Attributes:
        keep_unknown_texts: Keep texts such as "nan".
        images: What is known of each image, by its path, in the order of the table.
        refused: Rows that cannot be used, in the order of their lines.
        values: Metadata by the indices of their columns.
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
    values: defaultdict[int, Values] = field(default_factory=lambda: defaultdict(Values))
    _missing: list[Row] = field(default_factory=list)
    _foreign: list[tuple[str, int]] = field(default_factory=list)
    # Columns whose values another program mostly wrote as lists.
    _lists: set[int] = field(default_factory=set)
    _noted: defaultdict[str, defaultdict[str | int, Examples]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Examples))
    )

    def read(self) -> None:
        """Read all rows.

        Raises:
            DataError: The table cannot be read, or is not in its encoding.
        """
        image = self.columns.indices["image"]

        def begins_row(line: str) -> bool:
            return self.finder.begins_with_image(line, self.table.delimiter, image, len(self.table.columns))

        looked = islice(self.table.rows(begins_row), _LOOKED_AT)
        rows = [row for row in looked if isinstance(row, Row)]
        self.finder.learn([row.values[image].strip() for row in rows])
        for index in {*self.columns.texts, *self.columns.labels}:
            values = [row.values[index] for row in rows if not is_not_known(row.values[index])]
            if 2 * sum(parse_list(value) is not None for value in values) >= max(1, len(values)):
                self._lists.add(index)
        for row in self.table.rows(begins_row):
            self.found += 1
            if isinstance(row, LeftOut):
                self.left_out[row.reason] += row.count
            elif isinstance(row, Rejection):
                self.refused.append(row)
            elif is_not_known(name := row.values[image]):
                self.refused.append(Rejection(row.line, "it names no image"))
            elif any("\0" in value for value in row.values):
                self.refused.append(Rejection(row.line, "it holds a null character"))
            elif (path := self.finder.find(name) or self.finder.find(name.strip())) is None:
                self._missing.append(row)
            else:
                self._take(row, path)
        self._take_missing()
        for known in self.images.values():
            if len(known.order) == len(known.texts) and all(map(str.isdecimal, known.order)):
                numbered = zip(map(int, known.order), known.texts, strict=True)
                known.texts = [text for _, text in sorted(numbered, key=itemgetter(0))]

    def _take_missing(self) -> None:
        """Take rows whose names fit one image but for their spelling, where no other name fits it."""
        image = self.columns.indices["image"]
        names = {row.values[image].strip() for row in self._missing}
        loose_names = {name: self.finder.find_loosely(name) for name in names}
        fitting = Counter(match[0] for match in loose_names.values() if match is not None)
        exact = set(self.images)
        for row in self._missing:
            name = row.values[image].strip()
            path, difference = loose_names[name] or ("", "")
            if fitting[path] > 1:
                self._refuse(row, f"{name!r} may be {path!r}, and so may another name of the table")
            elif path in exact:
                self._refuse(row, f"{name!r} may be {path!r}, which another row names")
            elif path:
                if self._take(row, path):
                    words = f"{name!r} for {path!r} on line {row.line}"
                    self._noted["loose"][difference].note(words, row.line)
            elif self.finder.is_foreign(name):
                self._foreign.append((as_path(name), row.line))
                self._refuse(row, f"there is no image {name!r} in {self.folder}")
            else:
                like = " or ".join(map(repr, self.finder.like(name)[:_SUGGESTED]))
                self._refuse(row, f"there is no image {name!r} in {self.folder}{like and f'; is it {like}?'}")

    def _refuse(self, row: Row, reason: str) -> None:
        self.refused.append(Rejection(row.line, reason))

    def _take(self, row: Row, path: str) -> bool:
        """Add a row to the image of this path, or refuse it."""
        name = row.values[self.columns.indices["image"]].strip()
        suffix = PurePosixPath(path).suffix.lower()
        if not is_readable_suffix(suffix) and not _has_signature(self.folder / path):
            self._refuse(row, f"{name!r} is one of the {unreadable(suffix)}")
            return False
        known = self.images.get(path)
        one_each = dict(self._one_each(row))
        if "split" in one_each and one_each["split"].casefold() not in SPLITS:
            self._refuse(row, f"the split {one_each['split']!r} is not one of {', '.join(_SPLITS)}")
            return False
        for role, value in one_each.items():
            if known is not None and known.one(role) not in (None, value):
                before, line = known.one_each[role]
                self._refuse(
                    row,
                    f"the {role} of the image {path!r} is {shortened(value)} and {shortened(before)} on line "
                    f"{line}",
                )
                return False
        if known is None:
            known = self.images[path] = ImageRows(row.line)
        self._add(row, known, one_each)
        if not is_like_image(name) and is_like_image(path):
            self._noted["bare"][""].note(f"{name!r} for {path!r} on line {row.line}", row.line)
        return True

    def _one_each(self, row: Row) -> Iterator[tuple[Role, str]]:
        for role in _ONE_EACH:
            if role in self.columns.indices:
                index = self.columns.indices[role]
                value = row.values[index].strip()
                if role == "split" and value.casefold() in _SPLITS:
                    value = value.casefold()
                is_there = (
                    self._is_text(value, row.line) if role in _REPORTS else self._is_there(value, index, row)
                )
                if is_there:
                    yield role, value

    def _add(self, row: Row, known: ImageRows, one_each: dict[Role, str]) -> None:
        known.rows += 1
        for role, value in one_each.items():
            known.one_each.setdefault(role, (value, row.line))
        if "split" in one_each and one_each["split"] not in _SPLITS:
            self._noted["split"][one_each["split"]].add(one_each["split"], row.line)
        texts: set[str] = set()
        for index in self.columns.texts:
            own = [" ".join(text.split()) for text in row.texts.get(index) or self._items(row, index)]
            # Programs write one caption of a photograph into several fields.
            own = [text for text in own if not (self.columns.exiftool and text in texts)]
            texts.update(own)
            for text in own:
                self._add_text(row, known, text)
        for index in self.columns.labels:
            self._add_labels(row, known, index)
        for index in self.columns.metadata:
            value = row.values[index].strip()
            if self._is_there(value, index, row):
                self._add_metadata(row, known, index, value)
        for index in self.columns.unnamed:
            if value := row.values[index].strip():
                self._noted["unnamed"][index].add(value, row.line)
        if lost := next((value for value in row.values if _LOST in value), None):
            self._noted["lost"][""].add(lost, row.line)

    def _add_text(self, row: Row, known: ImageRows, text: str) -> None:
        if not self._is_text(text, row.line):
            return
        if text in known.texts[-_RECENT:] and not is_not_known(text):
            self._noted["repeated"][""].add(text, row.line)
        if _is_decoded_twice(text):
            self._noted["twice"][""].add(text, row.line)
        known.texts.append(text)
        if "order" in self.columns.indices:
            known.order.append(row.values[self.columns.indices["order"]].strip())

    def _items(self, row: Row, index: int) -> tuple[str, ...]:
        """The texts of a value that another program wrote as a list, where those of its column mostly are."""
        value = row.values[index]
        if not value.startswith(_ODD):
            return (value,)
        items = parse_list(value) if index in self._lists else None
        self._noted["odd" if items is None else "listed"][index].add(value, row.line)
        return (value,) if items is None else items

    def _add_labels(self, row: Row, known: ImageRows, index: int) -> None:
        between = _BETWEEN_KEYWORDS if self.columns.exiftool else _BETWEEN_LABELS
        parts = (part.strip() for item in self._items(row, index) for part in between.split(item))
        own = dict.fromkeys(label for label in parts if self._is_there(label, index, row))
        if known.labels and own.keys() - known.labels.keys():
            self._noted["labels"][""].add("; ".join(own), row.line)
        known.labels |= own

    def _add_metadata(self, row: Row, known: ImageRows, index: int, value: str) -> None:
        before = known.known.get(index)
        if before is None:
            known.known[index] = value
            if row.line != known.line:
                known.later[index] = row.line
            self.values[index].add(value, row.line)
        elif before != value:
            first = f"{shortened(before)} on line {known.later.get(index, known.line)}"
            words = f"{shortened(value)} on line {row.line} after {first}"
            self._noted["differing"][index].note(words, row.line)

    def _is_there(self, value: str, index: int, row: Row) -> bool:
        if not is_not_known(value):
            return True
        if value:
            self._noted["unknown"][index].add(value, row.line)
        return False

    def _is_text(self, value: str, line: int) -> bool:
        if value and is_without_words(value):
            self._noted["wordless"][""].add(value, line)
            return False
        if not is_not_known(value):
            return True
        if value:
            self._noted["kept" if self.keep_unknown_texts else "unknown text"][value].add(value, line)
        return bool(value) and self.keep_unknown_texts

    def notes(self) -> Iterator[str]:
        """Sentences on values that are not in the manifest as they are in the table, with their lines."""
        for beginning, folder in self.finder.moved.items():
            if not beginning:
                yield f"Looked for the images in the folder {folder.rstrip('/')!r} as well."
                continue
            where = f"{self.folder / folder}" if folder else f"{self.folder}"
            yield f"Looked for images whose paths begin with {beginning!r} in {where}, by the rest of them."
        if self._foreign:
            yield self._note_on_foreign()
        for kind, note in _NOTES.items():
            # Those of columns in their order.
            for key, examples in sorted(self._noted[kind].items(), key=lambda item: _index(item[0])):
                verb = _TIMES.search(note)
                times = "" if verb is None else examples.times(verb[1], verb[2])
                yield _TIMES.sub("{times}", note).format(
                    times=times,
                    key=key,
                    column=self.table.columns[_index(key)],
                    number=_index(key) + 1,
                    split=SPLITS.get(str(key).casefold()),
                    lines=examples.lines(),
                    all=examples,
                )

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


def _index(key: str | int) -> int:
    return key if isinstance(key, int) else -1


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
