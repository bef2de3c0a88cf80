"""The page that explains every kind of problem."""

from itertools import pairwise
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("problems.md")
_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>recoquest: problems</title>
<link rel="icon" href="data:,">
</head>
<body>
<main>
{content}</main>
</body>
</html>
"""


def problems_page() -> str:
    """Return the page as HTML; each section has the name of its kind as its anchor."""
    # The page is seldom asked for.
    from markdown_it import MarkdownIt

    markdown = MarkdownIt()
    tokens = markdown.parse(SOURCE.read_text(encoding="utf-8"))
    for opening, text in pairwise(tokens):
        if opening.type == "heading_open" and opening.tag == "h2":
            opening.attrSet("id", text.content)
    return _PAGE.format(content=markdown.renderer.render(tokens, markdown.options, {}))
