"""Paths of images from another computer: the beginning ahead of the part that is the same here."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://[^/]*")
_ABSOLUTE: Final = re.compile(r"/|[A-Za-z]:/|[A-Za-z][A-Za-z0-9+.-]+:/")
_QUERY: Final = re.compile(r"[?#]")
_MOST: Final = 4


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
