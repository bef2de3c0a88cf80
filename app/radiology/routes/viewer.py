"""The viewer in the browser, and the page around it that lists similar cases."""

from http import HTTPStatus
from pathlib import Path
from typing import Final

from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse, Response

from app.edge.problems import Kind, RequestError
from app.page_routes import PAGE_FOLDER
from app.radiology.viewer.installation import viewer_folder
from app.services import InjectedServices

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
# Scripts of the viewer compile code for decoders and templates; nothing but this origin is asked.
_VIEWER_POLICY: Final = (
    "default-src 'self'; script-src 'self' 'unsafe-eval' blob:; worker-src 'self' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' blob: data:; font-src 'self' data:; "
    "connect-src 'self' blob: data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'self'"
)
# The viewer in the frame is of this origin, too.
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


@router.get("/reading")
async def get_reading() -> Response:
    """The page around the viewer; what it shows is asked for with the rights of whoever signs in there."""
    headers = {**_ISOLATED, "Content-Security-Policy": _PAGE_POLICY}
    return FileResponse(PAGE_FOLDER / "viewer" / "reading.html", headers=headers)


@router.get("/viewer")
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
