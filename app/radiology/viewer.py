"""The viewer in the browser, OHIF as its npm package has it, and the page around it."""

import hashlib
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from string import Formatter
from typing import BinaryIO, Final
from urllib.parse import quote
from urllib.request import urlopen

from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse, Response

from app.edge.operations import operation
from app.edge.problems import Kind, RequestError
from app.page_routes import PAGE_FOLDER
from app.services import InjectedServices
from app.settings import Settings
from training.common.atomic import atomic_folder
from training.common.errors import RecoquestError
from training.common.manifest import MetadataValue

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
_CHUNK: Final = 1 << 20
_FOLDER: Final = PurePosixPath("package/dist")
_LICENCE: Final = PurePosixPath("package/LICENSE")
# Scripts load other scripts from their own folder instead of the root of the origin, which has the search
# page, or is outside of the path that a proxy gives the service.
_AT_ROOT: Final = b'__webpack_require__.p = "/";'
_AT_SCRIPT: Final = (
    b"__webpack_require__.p = (self.document ? document.currentScript.src : location.href)"
    b'.replace(/[^/]*$/, "");'
)
# A runtime for models in the browser, which is two thirds of the package and is not used, and source maps.
_LEFT_OUT: Final = ("ort/",)
_LEFT_OUT_ENDING: Final = ".map"
router = APIRouter(include_in_schema=False)
_MISSING: Final = Kind("no-viewer", "No viewer is installed", HTTPStatus.NOT_FOUND)
_CONFIGURATION: Final = PAGE_FOLDER / "viewer" / "ohif-config.js"
# Browsers give SharedArrayBuffer to isolated pages only; without it, viewports of OHIF stay black.
_ISOLATED: Final = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
# Scripts of the viewer compile code for decoders and templates; they only contact this origin.
_VIEWER_POLICY: Final = (
    "default-src 'self'; script-src 'self' 'unsafe-eval' blob:; worker-src 'self' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' blob: data:; font-src 'self' data:; "
    "connect-src 'self' blob: data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'self'"
)
# The viewer in the frame is also of this origin.
_PAGE_POLICY: Final = (
    "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Viewer</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="viewer/app.bundle.css">
<script src="viewer/app-config.js"></script>
<script defer src="viewer/{script}"></script>
</head>
<body>
<noscript>The viewer needs JavaScript.</noscript>
<div id="react-portal"></div>
<div id="root"></div>
</body>
</html>
"""


class ViewerPackageError(RecoquestError):
    """The package of the viewer cannot be had, or is another one."""


def viewer_folder(home: Path) -> Path:
    """Return the folder of the installed viewer, which may not be there."""
    return home / "viewer" / f"ohif-{VERSION}"


def viewer_template(settings: Settings) -> str | None:
    """Return the template of a viewer's address: of the settings, otherwise of the installed viewer."""
    if settings.viewer_url is not None or not settings.dicomweb or not viewer_folder(settings.home).is_dir():
        return settings.viewer_url
    return _READING


def install_viewer(home: Path, package: Path | None) -> Path:
    """Unpack the viewer into the home folder, where it is not there yet, and return its folder.

    `package`: the package as a file; None: it is downloaded.

    Raises:
        ViewerPackageError: The package cannot be read, or is not this version.
    """
    folder = viewer_folder(home)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder.parent) as file:
        for chunk in _chunks(package):
            file.write(chunk)
        file.seek(0)
        if hashlib.file_digest(file, "sha512").hexdigest() != _SHA512:
            raise ViewerPackageError(
                f"This is not the package @ohif/app {VERSION} as it was published: its SHA-512 is another. "
                f"Download {PACKAGE} again."
            )
        file.seek(0)
        with atomic_folder(folder) as part:
            _unpack(file, part)
    return folder


def _chunks(package: Path | None) -> Iterator[bytes]:
    size = 0
    try:
        with urlopen(PACKAGE, timeout=_TIMEOUT_S) if package is None else package.open("rb") as file:
            while size <= _MAX_BYTES and (chunk := file.read(_CHUNK)):
                size += len(chunk)
                yield chunk
    except (OSError, HTTPException) as error:
        if package is not None:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ViewerPackageError(f"{package} cannot be read: {reason}.") from None
        raise ViewerPackageError(
            f"{PACKAGE} cannot be downloaded ({error}). Where this machine has no network, bring the file "
            "here and give it with --package."
        ) from None


def _unpack(file: BinaryIO, folder: Path) -> None:
    with tarfile.open(fileobj=file, mode="r:gz") as archive:
        for member in archive:
            relative = _relative_path(member)
            if relative is None:
                continue
            path = folder / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            packed = archive.extractfile(member)
            assert packed is not None
            content = packed.read()
            if path.suffix == ".js":
                content = content.replace(_AT_ROOT, _AT_SCRIPT)
            elif path.suffix == ".css":
                # Fonts and pictures are next to it.
                content = content.replace(b"url(/", b"url(")
            path.write_bytes(content)


def _relative_path(member: tarfile.TarInfo) -> str | None:
    """Return the path of a file below the folder; None: it is left out."""
    path = PurePosixPath(member.name)
    if not member.isfile() or ".." in path.parts:
        return None
    if path == _LICENCE:
        return _LICENCE.name
    if not path.is_relative_to(_FOLDER):
        return None
    relative = str(path.relative_to(_FOLDER))
    return None if relative.startswith(_LEFT_OUT) or relative.endswith(_LEFT_OUT_ENDING) else relative


def viewer_link(
    template: str | None, metadata: Mapping[str, MetadataValue], *, prefix: str = ""
) -> str | None:
    """Return the address of an image in a viewer; None where the image lacks a UID that the template has.

    `template`: template of the settings; None: there is no viewer.
    `prefix`: where a proxy has put the service, for a path.
    """
    if template is None:
        return None
    names = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    values = {name: metadata.get(name) for name in names}
    if not all(isinstance(value, str) and value for value in values.values()):
        return None
    link = template.format(**{name: quote(str(value), safe="") for name, value in values.items()})
    return f"{prefix}{link}" if link.startswith("/") else link


@router.get("/reading")
@operation(None, "read")
async def get_reading() -> Response:
    """The page around the viewer; its content needs the permissions of the user who signs in."""
    headers = {**_ISOLATED, "Content-Security-Policy": _PAGE_POLICY}
    return FileResponse(PAGE_FOLDER / "viewer" / "reading.html", headers=headers)


@router.get("/viewer")
@operation(None, "read")
async def get_viewer(services: InjectedServices) -> Response:
    """OHIF; it reads pixels from `/dicomweb`."""
    folder = viewer_folder(services.settings.home)
    scripts = sorted(folder.glob("app.bundle.*.js"))
    if not scripts:
        raise RequestError(
            _MISSING, "No viewer is here: `recoquest viewer install` brings it into the home folder."
        )
    headers = {**_ISOLATED, "Content-Security-Policy": _VIEWER_POLICY}
    return HTMLResponse(_PAGE.format(script=scripts[0].name), headers=headers)


@router.get("/viewer/{path:path}")
@operation(None, "read")
async def get_viewer_file(path: str, services: InjectedServices) -> Response:
    """A file of the viewer."""
    headers = {**_ISOLATED, "Content-Security-Policy": _VIEWER_POLICY}
    if path == "app-config.js":
        return FileResponse(_CONFIGURATION, headers=headers)
    file = _file_of(viewer_folder(services.settings.home), path)
    if file is None:
        raise RequestError(
            _MISSING, "The viewer has no such file, or is not installed: `recoquest viewer install`."
        )
    return FileResponse(file, headers=headers, stat_result=file.stat())


def _file_of(folder: Path, path: str) -> Path | None:
    """Return a file below a folder; None: there is none, or it is elsewhere."""
    if "\x00" in path:
        return None
    file = (folder / path).resolve()
    try:
        return file if file.is_relative_to(folder.resolve()) and file.is_file() else None
    except OSError:
        # Longer than a name may be.
        return None
