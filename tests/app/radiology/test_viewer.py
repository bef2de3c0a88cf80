"""The viewer: only the published package is installed, its pages have few rights, and hits link to it."""

import hashlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.radiology import viewer as installation
from app.radiology.viewer import (
    ViewerPackageError,
    install_viewer,
    viewer_folder,
    viewer_link,
    viewer_template,
)
from app.settings import Settings
from tests.app.commands import run_command
from tests.app.conftest import Indexed, serve
from tests.app.search.test_search import problem

FILES = {
    "package/LICENSE": b"MIT",
    "package/dist/app.bundle.0.js": b'x();__webpack_require__.p = "/";y();',
    "package/dist/app.bundle.css": b"@font-face{src:url(/a.woff2)}",
    "package/dist/assets/a.wasm": b"\x00asm",
    "package/dist/ort/ort.wasm": b"large",
    "package/dist/app.bundle.0.js.map": b"{}",
    "package/package.json": b"{}",
    "package/dist/../../escape.js": b"no",
    "../escape.js": b"no",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small package that is taken for the published one."""
    path = tmp_path / "app.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in FILES.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("package/dist/link.js")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    monkeypatch.setattr(installation, "_SHA512", hashlib.sha512(path.read_bytes()).hexdigest())
    return path


def test_the_files_that_the_service_shows_are_unpacked(package: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert install_viewer(home, package) == viewer_folder(home)
    folder = viewer_folder(home)
    files = (path for path in folder.rglob("*") if path.is_file())
    installed = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    assert installed.keys() == {"LICENSE", "app.bundle.0.js", "app.bundle.css", "assets/a.wasm"}
    # A proxy may have the service below any path.
    assert installed["app.bundle.css"] == b"@font-face{src:url(a.woff2)}"
    assert b'.p = "/"' not in installed["app.bundle.0.js"]
    assert installed["app.bundle.0.js"].startswith(b"x();__webpack_require__.p = (self.document")
    assert not list(tmp_path.rglob("escape.js"))
    package.unlink()
    assert install_viewer(home, package) == viewer_folder(home)


def test_another_package_or_none_is_refused_and_nothing_is_left(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    package.write_bytes(package.read_bytes() + b"\0")
    monkeypatch.setattr(installation, "PACKAGE", "http://127.0.0.1:9/app.tgz")
    for given, expected in (
        (package, "SHA-512"),
        (tmp_path / "missing.tgz", "cannot be read"),
        # The registry does not answer.
        (None, "--package"),
    ):
        with pytest.raises(ViewerPackageError, match=expected):
            install_viewer(home, given)
    assert not [path for path in home.rglob("*") if path.is_file()]


def test_the_command_installs_once(package: Path, tmp_path: Path) -> None:
    for told in ("RECOQUEST_DICOMWEB", "there already"):
        done = run_command("viewer", "install", "--package", package, home=tmp_path / "home")
        assert told in done.output


def test_hits_lead_to_the_installed_viewer_or_to_that_of_the_settings(package: Path, tmp_path: Path) -> None:
    known: dict[str, Any] = {"home": tmp_path / "home", "pacs_url": "http://127.0.0.1:9/x"}
    open_archive = Settings(**known, dicomweb=True)
    assert viewer_template(open_archive) is None
    install_viewer(open_archive.home, package)
    assert viewer_template(open_archive) == "/reading#study={study}&series={series}&image={sop}"
    assert viewer_template(Settings(**known)) is None
    named = Settings(**known, dicomweb=True, viewer_url="https://v.example.org/{study}")
    assert viewer_template(named) == "https://v.example.org/{study}"


@pytest.fixture
def installed(own: Indexed) -> Iterator[TestClient]:
    folder = viewer_folder(own.settings.home)
    (folder / "assets").mkdir(parents=True)
    (folder / "app.bundle.17.js").write_text("start()")
    (folder / "assets" / "a.wasm").write_bytes(b"\0asm")
    (folder.parent / "secret").write_text("secret")
    (folder / "link").symlink_to(folder.parent / "secret")
    with serve(own, key=False) as client:
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
        *("../secret", "%2e%2e/secret", "link", "missing.js", "assets", "", "%00", "..%2fsecret"),
        *("/etc/passwd", "a" * 300),
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


KNOWN = {"study": "1.2", "series": "1.2.3", "sop": "1.2.3.4"}


def test_places_are_filled_and_encoded_behind_the_prefix_of_a_proxy() -> None:
    template = "https://v.example.org/?s={study}&e={series}&i={sop}"
    assert viewer_link(template, KNOWN, prefix="/in") == "https://v.example.org/?s=1.2&e=1.2.3&i=1.2.3.4"
    assert viewer_link("/v?s={study}", KNOWN, prefix="/in") == "/in/v?s=1.2"
    assert viewer_link("/v?s={study}", {"study": "a&b=c d"}) == "/v?s=a%26b%3Dc%20d"
    # An image without a UID has no address.
    without: tuple[dict[str, str | int], ...] = ({}, {"study": ""}, {"study": 7}, {"study": "1.2"})
    for metadata in without:
        assert viewer_link("/v?s={study}&i={sop}", metadata) is None
    assert viewer_link(None, KNOWN) is None
