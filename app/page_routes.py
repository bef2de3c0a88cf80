"""The pages and the description of the service, none of which needs another server."""

from importlib.resources import files
from itertools import pairwise
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse, Response

from app.edge.operations import operation

router = APIRouter(include_in_schema=False)

PAGE_FOLDER = Path(__file__).parent / "page"

SOURCE = PAGE_FOLDER.with_name("edge") / "problems.md"

_HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>recoquest: {title}</title>
<link rel="icon" href="data:,">
{links}</head>
<body>
{content}</body>
</html>
"""
_DOCS = _HTML.format(
    title="HTTP interface",
    links='<link rel="stylesheet" href="docs/assets/swagger-ui.css">\n',
    content="""<div id="description"></div>
<script src="docs/assets/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
""",
)
_START = """SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#description",
  deepLinking: true,
  displayOperationId: true,
  validatorUrl: null,
});
"""


def swagger_ui_folder() -> Path:
    """Folder of Swagger UI's script and styles in the installed package."""
    return Path(str(files("fastapi_offline"))) / "static"


@router.get("/")
@operation(None, "read", page=True)
async def get_page() -> Response:
    """The search page."""
    return _page("search/index.html")


@router.get("/room")
@operation(None, "read", page=True)
async def get_room() -> Response:
    """The reading room: the search, and films side by side."""
    return _page("room/room.html")


@router.get("/operate")
@operation(None, "read", page=True)
async def get_operate() -> Response:
    """The operator's page; everything but lists needs the admin key, if there is one."""
    return _page("operate/operate.html")


@router.get("/docs")
@operation(None, "read", page=True)
async def get_docs() -> Response:
    """The OpenAPI description, to be read and tried."""
    return HTMLResponse(_DOCS, headers={"Cache-Control": "no-cache"})


@router.get("/docs/start.js")
@operation(None, "read")
async def get_docs_start() -> Response:
    """The script that shows the description; a file, because inline scripts are forbidden."""
    return Response(_START, media_type="text/javascript", headers={"Cache-Control": "no-cache"})


@router.get("/docs/problems")
@operation(None, "read")
async def get_problems() -> Response:
    """The kinds of problems, with what to do about each; problem documents link to their kind."""
    # The page is rarely requested.
    from markdown_it import MarkdownIt

    markdown = MarkdownIt()
    tokens = markdown.parse(SOURCE.read_text(encoding="utf-8"))
    for opening, text in pairwise(tokens):
        if opening.type == "heading_open" and opening.tag == "h2":
            opening.attrSet("id", text.content)
    content = f"<main>\n{markdown.renderer.render(tokens, markdown.options, {})}</main>\n"
    page = _HTML.format(title="problems", links="", content=content)
    return HTMLResponse(page, headers={"Cache-Control": "no-cache"})


def _page(name: str) -> Response:
    return FileResponse(PAGE_FOLDER / name, headers={"Cache-Control": "no-cache"})
