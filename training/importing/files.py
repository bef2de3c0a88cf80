"""Files of folders: images, and what systems, programs and other formats put there."""

import filecmp
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from training.common.errors import DataError, ImageError
from training.common.manifest import MANIFEST_NAME
from training.common.record import LineError
from training.imaging.formats import HEIC_SUFFIXES, is_readable_suffix, sniff_format
from training.importing.report import HIDDEN_FILES, IN_FOLDERS

_SYSTEM_MARKS: Final = ("@", "#", ".")
_SYSTEM_FOLDERS: Final = frozenset(
    {
        *("__macosx", "temporary items", "network trash folder", "$recycle.bin", "recycler", "recycled"),
        *("system volume information", "lost+found", "~snapshot"),
    }
)
_SYSTEM_FILES: Final = frozenset({"thumbs.db", "ehthumbs.db", "desktop.ini"})
# They may hold images.
_ARCHIVES: Final = frozenset({".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar"})
# DICOM files hold names of patients; `import dicom` leaves them out.
_DICOM: Final = frozenset({".dcm", ".dicom"})
_OTHER_IMAGES: Final = frozenset(
    {
        *(".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf"),
        *(".jp2", ".j2k", ".jxl", ".jxr", ".psd", ".svg", ".ico", ".pcx", ".tga", ".eps"),
    }
)
# AVIF and HEIC tell themselves apart by brands at the beginning.
_SIGNATURE_BYTES: Final = 256
_DEEPEST: Final = 200
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def walk_files(folder: Path) -> Iterator[str]:
    """Paths with '/' of all files below a folder, in order; hidden ones are passed over."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inside = os.path.relpath(parent, folder).replace(os.sep, "/")
        prefix = "" if inside == "." else f"{inside}/"
        yield from (prefix + name for name in sorted(files) if not name.startswith("."))


def is_image(path: str) -> bool:
    """Whether the ending of a path is that of an image."""
    return is_readable_suffix(os.path.splitext(path)[1].lower())  # noqa: PTH122


def image_paths(folder: Path, folders: Iterable[str] = ("",)) -> dict[str, str]:
    """All images below some folders in a folder, as a `Listing` counts those that no line names."""
    return {
        f"{inside}/{path}" if inside else path: ""
        for inside in sorted(set(folders))
        for path in walk_files(folder / inside)
        if is_image(path)
    }


class ImageFiles:
    """Images below a folder by their names, wherever a download has unpacked them.

    Attributes:
        paths: All paths, as a `Listing` takes them to count the images that no line names.
        by_name: The paths by the name of the file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths = image_paths(folder)
        self.by_name: dict[str, list[str]] = {}
        for path in self.paths:
            self.by_name.setdefault(path.rpartition("/")[2], []).append(path)

    def need(self, name: str, folder: str = "") -> str:
        """Path of the image of this name, in a folder of this name where there is one.

        Of several, none is taken unless all are the same file, as some downloads hold everything twice.

        Raises:
            LineError: There is none to take.
        """
        paths = self.by_name.get(name, [])
        chosen = [path for path in paths if folder and f"/{path}".endswith(f"/{folder}/{name}")] or paths
        if not chosen:
            raise LineError(f"there is no image {name!r}")
        if not all(self._same(chosen[0], other) for other in chosen[1:]):
            raise LineError(f"there are {len(paths):,} images {name!r}: {', '.join(paths[:3])}")
        return chosen[0]

    def _same(self, one: str, other: str) -> bool:
        try:
            return filecmp.cmp(self.folder / one, self.folder / other, shallow=False)
        except OSError:
            return False


@dataclass
class FoundFiles:
    """All files of a folder and below.

    Attributes:
        reasons: For each file by its path with "/", why it is left out, or "" for an image.
        folders: Sentences on folders that were not opened.
    """

    reasons: dict[str, str] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)

    def images(self) -> list[str]:
        """Paths of the images, in order."""
        return sorted(path for path, reason in self.reasons.items() if not reason)


def find_files(folder: Path) -> FoundFiles:
    """Find all files in a folder and below, but a manifest in it, with the reason why a file is left out.

    Folders that are links are not followed, so that no image comes twice and no circle is entered; they are
    named, as are folders that cannot be opened.

    Raises:
        DataError: There is no such folder.
    """
    refuse_file(folder)
    if not folder.is_dir():
        raise DataError(f"There is no folder {folder}.")
    files = FoundFiles()
    waiting: list[tuple[str, str]] = [("", "")]
    while waiting:
        inside, reason = waiting.pop()
        try:
            with os.scandir(folder / inside) as entries:
                for entry in entries:
                    path = f"{inside}/{entry.name}" if inside else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        if path.count("/") >= _DEEPEST:
                            files.folders.append(f"The folder {path!r} is too deep and was not opened.")
                        else:
                            waiting.append((path, reason or _reason_of_folder(entry.name)))
                    # Unlike the entry's own methods, these give no error for a link that leads to itself.
                    elif entry.is_symlink() and os.path.isdir(entry.path):  # noqa: PTH112
                        files.folders.append(
                            f"The folder {path!r} is a link and was not followed; import it by itself."
                        )
                    else:
                        files.reasons[path] = reason or _reason_of_file(entry, path)
        except OSError as error:
            files.folders.append(
                f"The folder {inside or str(folder)!r} cannot be opened: {error.strerror or error}."
            )
    files.reasons.pop(MANIFEST_NAME, None)
    files.folders.sort()
    return files


def refuse_file(path: Path) -> None:
    """Refuse a file, such as an archive, instead of a folder.

    Raises:
        DataError: It is a file.
    """
    if path.is_file():
        way_out = "unpack it, and give the folder that it makes"
        if path.suffix.lower() not in _ARCHIVES:
            way_out = "give the folder that has the images; a table of them belongs to --table"
        raise DataError(f"{path} is a file, not a folder: {way_out}.")


def _reason_of_folder(name: str) -> str:
    if name.startswith(_SYSTEM_MARKS) or name.casefold() in _SYSTEM_FOLDERS:
        return f"{IN_FOLDERS}{name!r}"
    return ""


def _reason_of_file(entry: "os.DirEntry[str]", path: str) -> str:
    if "\\" in path:
        return "files with a backslash in their path (rename them)"
    # Bytes of a name that are no UTF-8 are halves of surrogate pairs in Python.
    if not path.isascii() and _SURROGATE.search(path):
        return "files whose paths are not UTF-8 (rename them)"
    name = entry.name.casefold()
    if name.startswith(".") or name in _SYSTEM_FILES:
        return HIDDEN_FILES
    suffix = PurePosixPath(name).suffix
    by_content = suffix in (".avif", *HEIC_SUFFIXES)
    if not by_content and not is_readable_suffix(suffix):
        return unreadable(suffix)
    if not os.path.isfile(entry.path):  # noqa: PTH113
        return "links that lead to no file" if entry.is_symlink() else "pipes, sockets and devices"
    return _reason_of_content(entry.path, suffix) if by_content else ""


def unreadable(suffix: str) -> str:
    """Why files with an ending, in lower case, are no images that can be decoded, and the way out."""
    if not suffix.strip("."):
        return "files without an ending"
    if not suffix.isprintable():
        suffix = repr(suffix)
    reason = "which are no images that can be read"
    if suffix in HEIC_SUFFIXES:
        reason = "which cannot be read (install recoquest[heic], or convert them to JPEG or PNG)"
    elif suffix in _DICOM:
        reason = "which an import of folders leaves out (`recoquest import dicom` takes them)"
    elif suffix in _OTHER_IMAGES:
        reason = "which cannot be read (convert them to JPEG or PNG)"
    elif suffix in _ARCHIVES:
        reason = "which are not opened (unpack those that hold images)"
    return f"{suffix} files, {reason}"


def _reason_of_content(path: str, suffix: str) -> str:
    """Why a file that may hold one of two formats, or a JPEG that a telephone has renamed, cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            start = file.read(_SIGNATURE_BYTES)
    except OSError:
        return "files that cannot be opened"
    if not start and is_readable_suffix(suffix):
        # An empty file is named when it is decoded, like one of any other format.
        return ""
    try:
        sniff_format(start)
    except ImageError:
        if suffix in HEIC_SUFFIXES and not is_readable_suffix(suffix):
            return unreadable(suffix)
        return f"{suffix} files that hold another format (convert them to JPEG or PNG)"
    if start[4:8] == b"ftyp" and int.from_bytes(start[:4]) > len(start) < _SIGNATURE_BYTES:
        return f"{suffix} files that are cut within their beginning"
    return ""
