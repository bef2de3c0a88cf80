"""The installed viewer: OHIF, as its package in the npm registry has it, in the home folder."""

import hashlib
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final
from urllib.request import urlopen

from app.settings import Settings
from training.common.atomic import atomic_folder
from training.common.errors import RecoquestError

VERSION: Final = "3.13.2"
PACKAGE: Final = f"https://registry.npmjs.org/@ohif/app/-/app-{VERSION}.tgz"
_SHA512: Final = (
    "5997719a9986eeba85816f5924b71b82bdd70ad2e2d4a0cd3e831a798e4f3dee"
    "a3e06e1f8c48e393271933a0ba664d85f3b04ac457e9abe8dde715d907d13c10"
)
# The page around the viewer; no browser sends the fragment of an address.
_READING: Final = "/reading#study={study}&series={series}&image={sop}"
_TIMEOUT_S: Final = 60.0
_MAX_BYTES: Final = 80 << 20
_MAX_UNPACKED_BYTES: Final = 400 << 20
_MAX_FILES: Final = 2000
_CHUNK: Final = 1 << 20
_FOLDER: Final = PurePosixPath("package/dist")
_LICENCE: Final = PurePosixPath("package/LICENSE")
# Scripts load other scripts from their own folder instead of the root of the origin, which has the search
# page, or lies outside of the path that a proxy gives the service.
_AT_ROOT: Final = b'__webpack_require__.p = "/";'
_AT_SCRIPT: Final = (
    b"__webpack_require__.p = (self.document ? document.currentScript.src : location.href)"
    b'.replace(/[^/]*$/, "");'
)
# A runtime for models in the browser, which is two thirds of the package and is not used, and source maps.
_LEFT_OUT: Final = ("ort/",)
_LEFT_OUT_ENDING: Final = ".map"


class ViewerPackageError(RecoquestError):
    """The package of the viewer cannot be had, or is another one."""


def viewer_folder(home: Path) -> Path:
    """Return the folder of the installed viewer, which may not be there."""
    return home / "viewer" / f"ohif-{VERSION}"


def viewer_template(settings: Settings) -> str | None:
    """Return the template of a viewer's address: of the settings, or else of the installed viewer."""
    if settings.viewer_url is not None or not settings.dicomweb or not viewer_folder(settings.home).is_dir():
        return settings.viewer_url
    return _READING


def install_viewer(home: Path, package: Path | None) -> Path:
    """Unpack the viewer into the home folder, where it is not there yet.

    Args:
        home: Home folder.
        package: The package as a file; None: it is downloaded.

    Returns:
        Its folder.

    Raises:
        ViewerPackageError: The package cannot be read, or is not this version.
        OSError: The home folder cannot be written to.
    """
    folder = viewer_folder(home)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder.parent) as file:
        for chunk in _downloaded() if package is None else _chunks_of(package):
            file.write(chunk)
        _check(file)
        with atomic_folder(folder) as part:
            _unpack(file, part)
    return folder


def _downloaded() -> Iterator[bytes]:
    try:
        with urlopen(PACKAGE, timeout=_TIMEOUT_S) as answer:
            yield from _chunks(answer)
    except (OSError, HTTPException) as error:
        raise ViewerPackageError(
            f"{PACKAGE} cannot be downloaded ({error}). Where this machine has no network, bring the file "
            "here and give it with --package."
        ) from None


def _chunks_of(package: Path) -> Iterator[bytes]:
    try:
        with package.open("rb") as file:
            yield from _chunks(file)
    except OSError as error:
        raise ViewerPackageError(f"{package} cannot be read: {error.strerror}.") from None


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    size = 0
    while chunk := file.read(_CHUNK):
        size += len(chunk)
        if size > _MAX_BYTES:
            break
        yield chunk


def _check(file: BinaryIO) -> None:
    file.seek(0)
    digest = hashlib.sha512()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    if digest.hexdigest() != _SHA512:
        raise ViewerPackageError(
            f"This is not the package @ohif/app {VERSION} as it was published: its SHA-512 is another. "
            f"Download {PACKAGE} again."
        )
    file.seek(0)


def _unpack(file: BinaryIO, folder: Path) -> None:
    size = count = 0
    with tarfile.open(fileobj=file, mode="r:gz") as archive:
        for member in archive:
            place = _place(member)
            if place is None:
                continue
            size, count = size + member.size, count + 1
            if size > _MAX_UNPACKED_BYTES or count > _MAX_FILES:
                raise ViewerPackageError("The package is larger than that of the viewer.")
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            content = archive.extractfile(member)
            assert content is not None
            with path.open("xb") as out:
                if place.endswith(".js"):
                    out.write(content.read().replace(_AT_ROOT, _AT_SCRIPT))
                elif place.endswith(".css"):
                    # Fonts and pictures lie beside it.
                    out.write(content.read().replace(b"url(/", b"url("))
                else:
                    shutil.copyfileobj(content, out)


def _place(member: tarfile.TarInfo) -> str | None:
    """Return the place of a file below the folder; None: it is left out."""
    path = PurePosixPath(member.name)
    if not member.isfile() or ".." in path.parts:
        return None
    if path == _LICENCE:
        return _LICENCE.name
    if not path.is_relative_to(_FOLDER):
        return None
    place = str(path.relative_to(_FOLDER))
    return None if place.startswith(_LEFT_OUT) or place.endswith(_LEFT_OUT_ENDING) else place
