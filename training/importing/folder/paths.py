"""Finds the file that a table names, and gives each image an id of its own."""

import hashlib
import os
import posixpath
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote

from training.imaging.formats import HEIC_SUFFIXES, READABLE_SUFFIXES

_LONGEST_ID: Final = 255
_DIGITS: Final = 6
_CASE: Final = "upper and lower case"
_QUOTES: Final = "percent-encoding"
_PREFIXES: Final = "what Label Studio puts ahead"
_PREFIX: Final = re.compile(r"(?<![^/])[0-9a-f]{8}-(?=[^/]+$)")
_AROUND: Final = "\ufeff\u200b\u200e '\u2018\u2019\u201c\u201d\u201e"
_QUOTED: Final = re.compile('"(?:[^"]|"")*"')

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://[^/]*")
_ABSOLUTE: Final = re.compile(r"/|[A-Za-z]:/|[A-Za-z][A-Za-z0-9+.-]+:/")
_QUERY: Final = re.compile(r"[?#]")
_MOST: Final = 4


class PathFinder:
    """Files of a folder by the names that a table has for them.

    Args:
        folder: The folder of the images.
        files: Paths of all files found in it.
        table: The table; names may start from its folder, where that is below the folder of the images or the
            name has "..".
    """

    def __init__(self, folder: Path, files: Mapping[str, str], table: Path | None = None) -> None:
        self._folder = str(folder)
        absolute = folder.resolve()
        self._roots = tuple(f"{root}/" for root in dict.fromkeys((str(folder), str(absolute), absolute.name)))
        self._table_folder = "" if table is None else f"{table.resolve().parent}/"
        below = table is not None and absolute in table.resolve().parents[1:]
        self._beside = self._table_folder.removeprefix(f"{absolute}/") if below else ""
        self._files = files
        # One spelling for all: zips of macOS decompose names that tables of other systems compose.
        self._composed: dict[str, str] = {}
        alike = set()
        for path in files:
            if self._composed.setdefault(unicodedata.normalize("NFC", path), path) != path:
                alike.add(unicodedata.normalize("NFC", path))
        # Names that two files have are those of neither, but as they are written.
        for composed in alike:
            del self._composed[composed]
        self._known: dict[str, str | None] = {}
        self._inner = ""
        self._alike: dict[str, list[str]] | None = None
        self._bare: dict[str, list[str]] | None = None
        self._beginnings = Beginnings(path for path, reason in files.items() if not reason)
        self.moved: Mapping[str, str] = {}

    def find(self, name: str) -> str | None:
        """Path inside of the folder of the file with this name; None if there is none.

        Looked up are the name as it is written, in the folder of a table below first, then with composed and
        decomposed characters, then all of these with slashes for backslashes, and without the folder's own
        path or name ahead; last the only image that has the name without its ending.
        """
        if name not in self._known:
            found = next(filter(None, map(self._look_up, self._spellings(name))), None)
            self._known[name] = found or self._add_ending(name)
        return self._known[name]

    def find_loosely(self, name: str) -> tuple[str, str] | None:
        """The image that has a name but for case, percent-encoding or what Label Studio puts ahead.

        Returns:
            Its path, and what was not minded; None where no image, or more than one, has the name.
        """
        plain = unquote(name)
        # "/data/local-files/?d=trip/1.jpg", "/data/upload/1/0a1b2c3d-1.jpg"
        _, _, local = plain.partition("?d=")
        exported = _PREFIX.sub("", local or plain)
        for what, written in ((_CASE, name), (_QUOTES, plain), (_PREFIXES, exported)):
            paths = [_fold(path) for path in self._spellings(written)]
            found = {file for path in paths for file in self._folded.get(path.rpartition("/")[2], ())}
            alike = {file for file in found if _fold(file) in paths}
            if what == _PREFIXES and exported != plain and not alike:
                # The folders are those of its storage.
                alike = found
            if alike:
                return (alike.pop(), what) if len(alike) == 1 else None
        return None

    @cached_property
    def _folded(self) -> dict[str, list[str]]:
        """Images by their names without folders and case."""
        names: dict[str, list[str]] = {}
        for path, reason in self._files.items():
            if not reason:
                names.setdefault(_fold(path).rpartition("/")[2], []).append(path)
        return names

    def look_in_folder_of(self, name: str) -> str | None:
        """Look all names up in the folder of the only image with this name as well, if all images lie there.

        Returns:
            That folder; None where there is none.
        """
        tail = f"/{posixpath.normpath(name)}"
        images = [path for path, reason in self._files.items() if not reason]
        inner = {path[: -len(tail)] for path in images if path.endswith(tail)}
        if len(inner) != 1 or not all(path.startswith(f"{min(inner)}/") for path in images):
            return None
        self._inner = inner.pop()
        self._known.clear()
        return self._inner

    def learn(self, names: Sequence[str]) -> None:
        """Tell from all names at once what stands ahead of paths that were written on another computer.

        Afterwards `moved` has the beginnings, with the folders here that stand for them.
        """
        missing = [name for name in names if self.find(name) is None]
        self.moved = self._beginnings.find(missing)
        self._known.clear()

    def is_foreign(self, name: str) -> bool:
        """Whether a name begins with a folder that is not here."""
        return self._beginnings.is_foreign(name)

    def begins_with_image(self, line: str, delimiter: str, column: int, columns: int) -> bool:
        """Whether a line within a quoted field is surely another row.

        It begins with the path of an image, or has one in the image's column; or it has something like such a
        path there, of an image that is missing, and the fields of a row.
        """
        written = [value.strip() for value in line.split(delimiter)]
        values = [value.strip('"').strip() for value in written]
        if self._is_image(values[0]):
            return True
        # The end of a text of several lines, with its quote, may go ahead of the image of its own row.
        if column >= len(values) or any(_has_stray_quote(value) for value in written[:column]):
            return False
        like_image = is_like_image(values[column])
        like_row = len(values) == columns or (column == 0 and len(values) > 1)
        return self._is_image(values[column]) or (like_image and like_row)

    def like(self, name: str) -> list[str]:
        """The images whose names differ by case, ending or folder alone, in the likest folders."""
        if self._alike is None:
            self._alike = {}
            for path, reason in sorted(self._files.items()):
                if not reason:
                    self._alike.setdefault(_stem(path), []).append(path)
        plain = name.replace("\\", "/").strip(_AROUND)
        alike = self._alike.get(_stem(plain)) or self._alike.get(_stem(unquote(plain)), [])
        ends = [common_end(_folders(plain), _folders(path)) for path in alike]
        return [path for path, end in zip(alike, ends, strict=True) if end == max(ends)]

    def _is_image(self, name: str) -> bool:
        return bool(name) and any(
            path in self._files or unicodedata.normalize("NFC", path) in self._composed
            for path in self._spellings(name)
        )

    def _spellings(self, name: str) -> Iterator[str]:
        foreign = as_path(name)
        for path in dict.fromkeys((name, name.replace("\\", "/"), foreign)):
            # A path that leaves the folder stays as it is, and no manifest takes it, unless the table's own
            # folder leads back.
            plain = path if ".." in path.split("/") else posixpath.normpath(path)
            if plain is path and self._table_folder and not path.startswith("/"):
                whole = posixpath.normpath(self._table_folder + path)
                yield from (whole[len(root) :] for root in self._roots if whole.startswith(root))
            elif self._beside and not path.startswith("/"):
                yield self._beside + plain
            yield plain
            yield from (plain[len(root) :] for root in self._roots if plain.startswith(root))
            if self._inner:
                yield f"{self._inner}/{plain}"
        if self.moved and ".." not in foreign.split("/"):
            composed = unicodedata.normalize("NFC", foreign)
            for beginning, folder in self.moved.items():
                if composed.startswith(beginning):
                    yield folder + composed[len(beginning) :]

    def _add_ending(self, name: str) -> str | None:
        if is_like_image(name):
            return None
        if self._bare is None:
            self._bare = {}
            for composed, path in self._composed.items():
                if not self._files[path]:
                    self._bare.setdefault(composed.rpartition(".")[0], []).append(path)
        spelled = (unicodedata.normalize("NFC", path) for path in self._spellings(name))
        found = next((self._bare[path] for path in spelled if path in self._bare), [])
        return found[0] if len(found) == 1 else None

    def _look_up(self, path: str) -> str | None:
        if path in self._files:
            return path
        if "\0" not in path and not path.startswith("/") and os.path.isfile(f"{self._folder}/{path}"):  # noqa: PTH113
            return path
        return self._composed.get(unicodedata.normalize("NFC", path))


def _fold(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def is_like_image(name: str) -> bool:
    """Whether a name ends as those of images do."""
    return PurePosixPath(name.strip().lower()).suffix in (*READABLE_SUFFIXES, *HEIC_SUFFIXES)


def _has_stray_quote(value: str) -> bool:
    return '"' in value and _QUOTED.fullmatch(value) is None


def _stem(path: str) -> str:
    return unicodedata.normalize("NFC", PurePosixPath(path).stem).casefold()


def _folders(path: str) -> list[str]:
    return unicodedata.normalize("NFC", path).casefold().split("/")[:-1]


def make_ids(images: Sequence[str], given: Sequence[str | None]) -> tuple[list[str], list[str]]:
    """An id for each image: the given one, or else its path with "-" for "/".

    Where two images would get one id, those whose path is not the id itself get a few digits of a digest of
    their path as well, the same ones at each import.

    Args:
        images: Paths of the images, each once.
        given: The id that a table gives an image, or None.

    Returns:
        The ids, and the paths of images whose ids got digits.
    """
    plain = [_plain_id(path) if own is None else own for path, own in zip(images, given, strict=True)]
    wanted = Counter(plain)
    taken = {own for own in given if own is not None} | {path for path in images if path in wanted}
    ids, changed = [], []
    for path, own, name in zip(images, given, plain, strict=True):
        if own is not None or (wanted[name] == 1 or (name == path and name not in given)):
            ids.append(name)
        else:
            ids.append(_with_digits(name, path, taken))
            changed.append(path)
        taken.add(ids[-1])
    return ids, changed


def _plain_id(path: str) -> str:
    name = path.replace("/", "-")
    if not name.isprintable():
        # Screenshots of macOS have a narrow space, which an address of an image cannot have.
        name = "".join(character if character.isprintable() else "_" for character in name)
    name = name.strip()
    return name if len(name) <= _LONGEST_ID else _with_digits(name, path, frozenset())


def _with_digits(name: str, path: str, taken: "set[str] | frozenset[str]") -> str:
    digest = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()
    stem, dot, ending = name.rpartition(".")
    if not stem or len(ending) > _DIGITS:
        stem, dot, ending = name, "", ""
    for digits in range(_DIGITS, len(digest)):
        tail = f"-{digest[:digits]}{dot}{ending}"
        made = f"{stem[: _LONGEST_ID - len(tail)]}{tail}"
        if made not in taken:
            break
    return made


def as_path(name: str) -> str:
    """A name with "/" between folders; of a URL, its path alone."""
    scheme = _SCHEME.match(name)
    if scheme is None:
        return name.replace("\\", "/")
    return unquote(_QUERY.split(name[scheme.end() :], maxsplit=1)[0])


class Beginnings:
    """Tells the folders here that stand for those of another computer, by all names of a table.

    Args:
        paths: Paths of all files here.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._by_name: dict[str, list[str]] = {}
        self._folders: set[str] = set()
        for path in paths:
            composed = unicodedata.normalize("NFC", path)
            self._by_name.setdefault(composed.rpartition("/")[2], []).append(composed)
            if "/" in composed:
                self._folders.add(composed.partition("/")[0])

    def is_foreign(self, name: str) -> bool:
        """Whether a name begins with a folder that is not here."""
        path = as_path(name)
        if ".." in path.split("/") or "/" not in path:
            return False
        return bool(
            _ABSOLUTE.match(path) or _SCHEME.match(name) or path.partition("/")[0] not in self._folders
        )

    def find(self, names: Iterable[str]) -> Mapping[str, str]:
        """Beginnings of names with the folders here ("" for the first one) that have most of their files.

        Args:
            names: Names that no file here has.
        """
        votes = Counter[tuple[str, str]]()
        foreign = [as_path(name) for name in names if self.is_foreign(name)]
        for path in foreign:
            if (found := self._match(unicodedata.normalize("NFC", path))) is not None:
                votes[found] += 1
        beginnings: dict[str, str] = {}
        for (beginning, folder), count in votes.most_common():
            if beginning in beginnings or len(beginnings) == _MOST:
                continue
            others = sum(path.startswith(beginning) for path in foreign)
            # Two names alike in two folders are no more than a chance.
            if 2 * count >= others:
                beginnings[beginning] = folder
        return beginnings

    def _match(self, path: str) -> tuple[str, str] | None:
        """Split a path and that of the only file with the longest end in common where they differ."""
        parts = path.split("/")
        ends = {file: common_end(parts, file.split("/")) for file in self._by_name.get(parts[-1], ())}
        longest = max(ends.values(), default=0)
        alike = [file for file, length in ends.items() if length == longest]
        if len(alike) != 1 or longest == len(parts):
            return None
        end = len("/".join(parts[-longest:]))
        return path[:-end], alike[0][:-end]


def common_end(one: list[str], other: list[str]) -> int:
    """Number of parts at the end of two paths that are the same."""
    length = 0
    for mine, theirs in zip(reversed(one), reversed(other), strict=False):
        if mine != theirs:
            break
        length += 1
    return length
