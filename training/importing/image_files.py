"""The image files of a data set's folder, found by name."""

import filecmp
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from training.common.record import LineError
from training.imaging.formats import is_readable_suffix


def walk_files(folder: Path) -> Iterator[str]:
    """Paths with '/' of all files below a folder, in order; hidden ones are passed over."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inside = os.path.relpath(place, folder).replace(os.sep, "/")
        prefix = "" if inside == "." else f"{inside}/"
        yield from (prefix + name for name in sorted(files) if not name.startswith("."))


def is_image(path: str) -> bool:
    """Whether the ending of a path is that of an image."""
    return is_readable_suffix(os.path.splitext(path)[1].lower())  # noqa: PTH122


def image_paths(folder: Path, places: Iterable[str] = ("",)) -> dict[str, str]:
    """All images below some places in a folder, as a `Listing` counts those that no line names."""
    return {
        f"{place}/{path}" if place else path: ""
        for place in sorted(set(places))
        for path in walk_files(folder / place)
        if is_image(path)
    }


class ImageFiles:
    """Images below a folder by their names, wherever a download has unpacked them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._paths: dict[str, list[str]] = {}
        for path in walk_files(folder):
            if is_image(path):
                self._paths.setdefault(path.rpartition("/")[2], []).append(path)

    def paths(self) -> dict[str, str]:
        """All paths, as a `Listing` takes them to count the images that no line names."""
        return {path: "" for paths in self._paths.values() for path in paths}

    def find(self, name: str, folder: str = "") -> str | None:
        """Path of the image of this name, in a folder of this name where there is one; None without one.

        Of several, none is taken unless all are the same file, as some downloads hold everything twice.
        """
        paths = self._paths.get(name, [])
        inside = [path for path in paths if folder and f"/{path}".endswith(f"/{folder}/{name}")]
        chosen = inside or paths
        if len(chosen) > 1 and not all(self._same(chosen[0], other) for other in chosen[1:]):
            return None
        return chosen[0] if chosen else None

    def need(self, name: str, folder: str = "") -> str:
        """Like `find`, for an image that a row needs.

        Raises:
            LineError: There is none to take.
        """
        path = self.find(name, folder)
        if path is None:
            raise LineError(self.why_not(name))
        return path

    def _same(self, one: str, other: str) -> bool:
        try:
            return filecmp.cmp(self.folder / one, self.folder / other, shallow=False)
        except OSError:
            return False

    def why_not(self, name: str) -> str:
        """Why `find` gives none, as a sentence without its full stop."""
        paths = self._paths.get(name, [])
        if not paths:
            return f"there is no image {name!r}"
        return f"there are {len(paths):,} images {name!r}: {', '.join(paths[:3])}"
