"""The viewer's package: only the one that was published, whole, and nowhere but in its folder."""

import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli.main import build
from app.radiology import viewer as installation
from app.radiology.viewer import ViewerPackageError, install_viewer, viewer_folder, viewer_template
from app.settings import Settings

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


def _installed(home: Path) -> dict[str, bytes]:
    folder = viewer_folder(home)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_files_that_the_service_shows_are_unpacked(package: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert install_viewer(home, package) == viewer_folder(home)
    installed = _installed(home)
    assert installed.keys() == {"LICENSE", "app.bundle.0.js", "app.bundle.css", "assets/a.wasm"}
    # A proxy may have the service below any path.
    assert installed["app.bundle.css"] == b"@font-face{src:url(a.woff2)}"
    assert b'.p = "/"' not in installed["app.bundle.0.js"]
    assert installed["app.bundle.0.js"].startswith(b"x();__webpack_require__.p = (self.document")
    assert not list(tmp_path.rglob("escape.js"))
    package.unlink()
    assert install_viewer(home, package) == viewer_folder(home)


def test_another_package_is_refused_and_nothing_is_left(package: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    package.write_bytes(package.read_bytes() + b"\0")
    with pytest.raises(ViewerPackageError, match="SHA-512"):
        install_viewer(home, package)
    with pytest.raises(ViewerPackageError, match="cannot be read"):
        install_viewer(home, tmp_path / "missing.tgz")
    assert not [path for path in home.rglob("*") if path.is_file()]


def test_the_registry_that_does_not_answer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "PACKAGE", "http://127.0.0.1:9/app.tgz")
    with pytest.raises(ViewerPackageError, match="--package"):
        install_viewer(tmp_path / "home", None)


def test_the_command_installs_once(package: Path, tmp_path: Path) -> None:
    arguments = ["viewer", "install", "--home", str(tmp_path / "home"), "--package", str(package)]
    first = CliRunner().invoke(build(), arguments)
    assert first.exit_code == 0, first.output
    assert "RECOQUEST_DICOMWEB" in first.output
    assert "there already" in CliRunner().invoke(build(), arguments).output


def test_hits_lead_to_the_installed_viewer_or_to_that_of_the_settings(package: Path, tmp_path: Path) -> None:
    known: dict[str, Any] = {"home": tmp_path / "home", "pacs_url": "http://127.0.0.1:9/x"}
    open_archive = Settings(**known, dicomweb=True)
    assert viewer_template(open_archive) is None
    install_viewer(open_archive.home, package)
    assert viewer_template(open_archive) == "/reading#study={study}&series={series}&image={sop}"
    assert viewer_template(Settings(**known)) is None
    named = Settings(**known, dicomweb=True, viewer_url="https://v.example.org/{study}")
    assert viewer_template(named) == "https://v.example.org/{study}"
