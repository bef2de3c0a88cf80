"""Every kind of problem is explained, and problem documents lead there."""

import ast
import re
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.edge.problems import FRAMEWORK_KINDS, KINDS, Kind
from app.page_routes import SOURCE
from app.settings import PREFIX, Settings

APP = Path(__file__).parents[3] / "app"
SECTIONS = re.findall(r"^## (.+)\n\n\*\*(\d{3})\.\*\* (.+)", SOURCE.read_text(encoding="utf-8"), re.MULTILINE)


def _written() -> Iterator[str]:
    """Give the name of every kind that the code makes."""
    for path in APP.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Kind":
                first = node.args[0] if node.args else None
                # Other classes have this name too: kinds of jobs, with options of commands.
                if isinstance(first, ast.Constant) and re.fullmatch(r"[a-z][a-z-]+", str(first.value)):
                    yield str(first.value)


def test_every_kind_has_a_section_and_every_section_a_kind() -> None:
    headings = re.findall(r"^## (.+)$", SOURCE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [slug for slug, _, _ in SECTIONS] == headings == sorted(set(headings))
    assert set(headings) == set(_written())


@pytest.mark.parametrize("kind", [*KINDS.values(), *FRAMEWORK_KINDS.values()], ids=lambda kind: kind.slug)
def test_sections_have_the_status_of_their_kind(kind: Kind) -> None:
    statuses = {slug: int(status) for slug, status, _ in SECTIONS}
    assert statuses[kind.slug] == kind.status


def test_statuses_are_of_errors_and_sections_say_what_to_do() -> None:
    for slug, status, text in SECTIONS:
        assert HTTPStatus(int(status)) >= 400, slug
        assert len(text) > 40, slug


def test_settings_that_are_named_are_there() -> None:
    named = set(re.findall(rf"`{PREFIX}(\w+)`", SOURCE.read_text(encoding="utf-8")))
    assert named
    assert named <= {name.upper() for name in Settings.model_fields}


def test_a_problem_leads_to_its_section(client: TestClient) -> None:
    problem = client.get("/v1/collections/nobody").json()
    path, _, anchor = problem["help"].partition("#")
    page = client.get(path)
    assert page.headers["content-type"].startswith("text/html")
    assert problem["type"] == f"urn:recoquest:{anchor}"
    assert f'<h2 id="{anchor}">{anchor}</h2>' in page.text
    for slug, _, _ in SECTIONS:
        assert f'id="{slug}"' in page.text
    # Markup of the source is not shown as it is, and no other server is needed.
    assert "**" not in page.text
    assert "http" not in page.text.replace("HTTP", "")
