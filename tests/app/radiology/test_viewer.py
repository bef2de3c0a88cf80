"""The pages of the viewer: what they may do, and files that are no part of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.application import create_app
from app.radiology.viewer import viewer_folder
from tests.app.conftest import Indexed
from tests.app.search.test_search import problem


@pytest.fixture
def installed(own: Indexed) -> Iterator[TestClient]:
    folder = viewer_folder(own.settings.home)
    (folder / "assets").mkdir(parents=True)
    (folder / "app.bundle.17.js").write_text("start()")
    (folder / "assets" / "a.wasm").write_bytes(b"\0asm")
    (folder.parent / "secret").write_text("secret")
    (folder / "link").symlink_to(folder.parent / "secret")
    with TestClient(create_app(own.settings), "http://localhost") as client:
        yield client


def test_the_viewer_is_isolated_and_shown_by_its_own_origin_alone(installed: TestClient) -> None:
    for path in ("/viewer", "/viewer/app-config.js", "/viewer/app.bundle.17.js", "/viewer/assets/a.wasm"):
        answer = installed.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["cross-origin-embedder-policy"] == "require-corp"
        assert answer.headers.get_list("cross-origin-resource-policy") == ["same-origin"]
        assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]
        assert "http" not in answer.headers["content-security-policy"]
    assert 'src="viewer/app.bundle.17.js"' in installed.get("/viewer").text
    assert installed.get("/viewer/assets/a.wasm").headers["content-type"] == "application/wasm"


def test_the_page_around_compiles_no_code_and_is_shown_by_nobody(installed: TestClient) -> None:
    policy = installed.get("/reading").headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    # Only the viewer's own pages may do more than others.
    assert "unsafe-eval" not in installed.get("/").headers["content-security-policy"]


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "%2e%2e/secret",
        "link",
        "missing.js",
        "assets",
        "",
        "%00",
        "..%2fsecret",
        "/etc/passwd",
        "a" * 300,
    ],
)
def test_nothing_but_its_files_is_shown(installed: TestClient, path: str) -> None:
    answer = installed.get(f"/viewer/{path}", follow_redirects=False)
    assert answer.status_code == 404
    assert "secret" not in answer.text


def test_without_a_viewer_the_pages_say_how_to_install_it(client: TestClient, films: Indexed) -> None:
    assert not viewer_folder(Path(films.settings.home)).exists()
    assert "recoquest viewer install" in problem(client.get("/viewer"), 404, "no-viewer")["detail"]
    problem(client.get("/viewer/app.bundle.17.js"), 404, "no-viewer")
