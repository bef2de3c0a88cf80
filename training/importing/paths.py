"""Finds the file that a table names, and gives each image an id of its own."""

import hashlib
import os
import posixpath
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
# Beginnings of paths on other computers that a table may have.
_MOST_MOVED: Final = 4


class PathFinder:
    """Files of a folder by the names that a table has for them.

    Args:
        files: All files found in it: with the reason why one is no image, or "" for an image.
        table: The table; names may start from its folder, where that is below the folder of the images or the
            name has "..".

    Attributes:
        moved: Beginnings of paths in a table, with the folders here that have the images; see `learn`.
    """

    def __init__(self, folder: Path, files: Mapping[str, str], table: Path | None = None) -> None:
        self._folder = str(folder)
        absolute = folder.resolve()
        self._roots = tuple(f"{root}/" for root in dict.fromkeys((str(folder), str(absolute), absolute.name)))
        self._table_folder = "" if table is None else f"{table.resolve().parent}/"
        below = table is not None and absolute in table.resolve().parents[1:]
        self._prefix = self._table_folder.removeprefix(f"{absolute}/") if below else ""
        self._files = files
        self._images = [path for path, reason in files.items() if not reason]
        # One spelling for all: zips of macOS decompose names that tables of other systems compose. Names that
        # two files have are those of neither, but as they are written.
        spelled = Counter(map(_composed, files))
        self._by_spelling = {name: path for path in files if spelled[name := _composed(path)] == 1}
        self._known: dict[str, str | None] = {}
        self.moved: Mapping[str, str] = {}

    def find(self, name: str) -> str | None:
        """Path inside of the folder of the file with this name; None if there is none.

        Looked up are the name as it is written, in the folder of a table below first, then with composed and
        decomposed characters, then all of these with slashes for backslashes, and without the folder's own
        path or name ahead; last the only image that has the name without its ending.
        """
        if name not in self._known:
            path = next(filter(None, map(self._look_up, self._spellings(name))), None)
            self._known[name] = path or self._add_ending(name)
        return self._known[name]

    def find_loosely(self, name: str) -> tuple[str, str] | None:
        """The image that has a name but for case, percent-encoding or what Label Studio puts ahead.

        Returns:
            Its path, and the difference; None where no image, or more than one, has the name.
        """
        plain = unquote(name)
        # "/data/local-files/?d=trip/1.jpg", "/data/upload/1/0a1b2c3d-1.jpg"
        _, _, local = plain.partition("?d=")
        exported = _PREFIX.sub("", local or plain)
        for difference, written in ((_CASE, name), (_QUOTES, plain), (_PREFIXES, exported)):
            paths = [_fold(path) for path in self._spellings(written)]
            files = {file for path in paths for file in self._by_folded_name.get(path.rpartition("/")[2], ())}
            alike = {file for file in files if _fold(file) in paths}
            if difference == _PREFIXES and exported != plain and not alike:
                # The folders are those of its storage.
                alike = files
            if alike:
                return (alike.pop(), difference) if len(alike) == 1 else None
        return None

    def learn(self, names: Sequence[str]) -> None:
        """Tell from all names at once where images are that are not found, as `moved`.

        Paths of another computer begin with its folders. A download has its table next to the folder that has
        all images, so its paths lack that folder.
        """
        missing = [_plain(name) for name in names if self.find(name) is None]
        votes = Counter(filter(None, map(self._match, missing)))
        moved: dict[str, str] = {}
        for (beginning, folder), count in votes.most_common():
            if not beginning and not all(path.startswith(folder) for path in self._images):
                continue
            # Two names alike in two folders are no more than a chance.
            if (
                beginning not in moved
                and len(moved) < _MOST_MOVED
                and (not beginning or 2 * count >= sum(path.startswith(beginning) for path in missing))
            ):
                moved[beginning] = folder
        self.moved = moved
        self._known.clear()

    def is_foreign(self, name: str) -> bool:
        """Whether a name begins with a folder that is not here."""
        path = as_path(name)
        if ".." in path.split("/") or "/" not in path:
            return False
        return bool(_ABSOLUTE.match(path) or _SCHEME.match(name)) or path.partition("/")[0] not in self._here

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
        if column >= len(values) or any(
            '"' in one and not _QUOTED.fullmatch(one) for one in written[:column]
        ):
            return False
        like_row = len(values) == columns or (column == 0 and len(values) > 1)
        return self._is_image(values[column]) or (is_like_image(values[column]) and like_row)

    def like(self, name: str) -> list[str]:
        """The images whose names differ by case, ending or folder alone, in the likest folders."""
        plain = name.replace("\\", "/").strip(_AROUND)
        alike = self._by_stem.get(_stem(plain)) or self._by_stem.get(_stem(unquote(plain)), [])
        folders = _fold(plain).split("/")[:-1]
        ends = [_common_end(folders, _fold(path).split("/")[:-1]) for path in alike]
        return [path for path, end in zip(alike, ends, strict=True) if end == max(ends)]

    @cached_property
    def _by_folded_name(self) -> dict[str, list[str]]:
        return _grouped((_fold(path).rpartition("/")[2], path) for path in self._images)

    @cached_property
    def _by_stem(self) -> dict[str, list[str]]:
        return _grouped((_stem(path), path) for path in sorted(self._images))

    @cached_property
    def _without_ending(self) -> dict[str, list[str]]:
        """Images by their paths without the ending."""
        images = ((name, path) for name, path in self._by_spelling.items() if not self._files[path])
        return _grouped((name.rpartition(".")[0], path) for name, path in images)

    @cached_property
    def _here(self) -> frozenset[str]:
        """Folders with images."""
        return frozenset(_composed(path).partition("/")[0] for path in self._images if "/" in path)

    def _is_image(self, name: str) -> bool:
        return bool(name) and any(
            path in self._files or _composed(path) in self._by_spelling for path in self._spellings(name)
        )

    def _spellings(self, name: str) -> Iterator[str]:
        foreign = as_path(name)
        for path in dict.fromkeys((name, name.replace("\\", "/"), foreign)):
            # A path that leaves the folder stays as it is, and no manifest takes it, unless the table's own
            # folder leads back.
            leaves = ".." in path.split("/")
            plain = path if leaves else posixpath.normpath(path)
            if leaves and self._table_folder and not path.startswith("/"):
                whole = posixpath.normpath(self._table_folder + path)
                yield from (whole[len(root) :] for root in self._roots if whole.startswith(root))
            elif self._prefix and not path.startswith("/"):
                yield self._prefix + plain
            yield plain
            yield from (plain[len(root) :] for root in self._roots if plain.startswith(root))
        if self.moved and ".." not in foreign.split("/"):
            plain = _plain(name)
            for beginning, folder in self.moved.items():
                if plain.startswith(beginning):
                    yield folder + plain[len(beginning) :]

    def _look_up(self, path: str) -> str | None:
        if path in self._files:
            return path
        if "\0" not in path and not path.startswith("/") and os.path.isfile(f"{self._folder}/{path}"):  # noqa: PTH113
            return path
        return self._by_spelling.get(_composed(path))

    def _add_ending(self, name: str) -> str | None:
        if is_like_image(name):
            return None
        spelled = map(_composed, self._spellings(name))
        images = next((self._without_ending[path] for path in spelled if path in self._without_ending), [])
        return images[0] if len(images) == 1 else None

    def _match(self, path: str) -> tuple[str, str] | None:
        """Split a path and that of the only image with the longest end in common where they differ."""
        if ".." in (parts := path.split("/")):
            return None
        images = map(_composed, self._by_folded_name.get(_fold(parts[-1]), ()))
        ends = {image: _common_end(parts, image.split("/")) for image in images}
        longest = max(ends.values(), default=0)
        alike = [image for image, length in ends.items() if length == longest]
        if not longest or len(alike) != 1:
            return None
        end = len("/".join(parts[-longest:]))
        beginning, folder = path[:-end], alike[0][:-end]
        takes = self.is_foreign(path) if beginning else bool(folder)
        return (beginning, folder) if takes else None


def is_like_image(name: str) -> bool:
    """Whether a name ends as those of images do."""
    return PurePosixPath(name.strip().lower()).suffix in (*READABLE_SUFFIXES, *HEIC_SUFFIXES)


def as_path(name: str) -> str:
    """A name with "/" between folders; of a URL, its path alone."""
    scheme = _SCHEME.match(name)
    if scheme is None:
        return name.replace("\\", "/")
    return unquote(_QUERY.split(name[scheme.end() :], maxsplit=1)[0])


def _plain(name: str) -> str:
    return posixpath.normpath(_composed(as_path(name)))


def _composed(path: str) -> str:
    return unicodedata.normalize("NFC", path)


def _fold(path: str) -> str:
    return _composed(path).casefold()


def _stem(path: str) -> str:
    return _fold(PurePosixPath(path).stem)


def _grouped(pairs: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for key, path in pairs:
        groups.setdefault(key, []).append(path)
    return groups


def _common_end(one: Sequence[str], other: Sequence[str]) -> int:
    """Number of parts at the end of two paths that are the same."""
    length = 0
    for mine, theirs in zip(reversed(one), reversed(other), strict=False):
        if mine != theirs:
            break
        length += 1
    return length


def make_ids(images: Sequence[str], given: Sequence[str | None]) -> tuple[list[str], list[str]]:
    """An id for each image: the one that a table gives it, or else its path with "-" for "/".

    Where two images would get one id, those whose path is not the id itself get a few digits of a digest of
    their path as well, the same ones at each import.

    Returns:
        The ids, and the paths of images whose ids got digits.
    """
    plain = [_plain_id(path) if own is None else own for path, own in zip(images, given, strict=True)]
    counts = Counter(plain)
    taken = {own for own in given if own is not None} | {path for path in images if path in counts}
    ids, changed = [], []
    for path, own, name in zip(images, given, plain, strict=True):
        if own is not None or (counts[name] == 1 or (name == path and name not in given)):
            ids.append(name)
        else:
            ids.append(_with_digits(name, path, taken))
            changed.append(path)
        taken.add(ids[-1])
    return ids, changed


def _plain_id(path: str) -> str:
    # Screenshots of macOS have a narrow space, which an address of an image cannot have.
    name = "".join(sign if sign.isprintable() else "_" for sign in path.replace("/", "-")).strip()
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
