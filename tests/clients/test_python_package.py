"""The Python client as a package of its own: built, installed alone, used by every Python that is here."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from shutil import copytree, ignore_patterns, which
from typing import Final

import pytest

from app.application import create_app
from tests.access import ADMIN_KEY
from tests.browser.service import SHAPES, index_shapes, running

CLIENT: Final = Path(__file__).resolve().parents[2] / "clients" / "python"
_SECONDS: Final = 300
_VERSIONS: Final = ("3.10", "3.11", "3.12", "3.13", "3.14")
# Found by names of its own alone: nothing of the service can be imported.
_WALK: Final = """
import asyncio, importlib.util, sys
from recoquest_client import AsyncClient, Client, NewImage, ProblemError

assert all(importlib.util.find_spec(name) is None for name in ("app", "index", "training"))
address, key, collection, picture = sys.argv[1:]
with Client(address, key=key) as client:
    told = []
    new = NewImage("walked", picture, {"texts": ["a picture of the walk"]})
    uploaded = client.upload(collection, [new], progress=told.append)
    assert [one.id for one in uploaded.results] == ["walked"] and told
    page = client.search(collection, text="a picture of the walk", limit=3)
    assert len(page.hits) == 3
    try:
        client.search("none", text="a")
    except ProblemError as error:
        assert error.status == 404
    else:
        raise AssertionError

async def search():
    async with AsyncClient(address, key=key) as client:
        return await client.search(collection, text="a picture of the walk", limit=3)

assert [hit.id for hit in asyncio.run(search()).hits] == [hit.id for hit in page.hits]
print("walked by", sys.version.split()[0])
"""


def _run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _pythons() -> list[str]:
    """Return one Python of each version that works here."""
    found = []
    for version in _VERSIONS:
        path = which(f"python{version}")
        if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            found.append(path)
    return found or [sys.executable]


@pytest.mark.slow
def test_the_wheel_alone_goes_the_whole_way(tmp_path: Path) -> None:
    # As in a new clone: the client without asyncio is written by the build.
    copytree(CLIENT, tmp_path / "source", ignore=ignore_patterns("client"))
    _run(sys.executable, "-m", "venv", tmp_path / "build", cwd=tmp_path)
    tools = tmp_path / "build" / "bin"
    _run(tools / "pip", "install", "--quiet", "build", cwd=tmp_path)
    _run(tools / "python", "-m", "build", "--outdir", tmp_path / "dist", tmp_path / "source", cwd=tmp_path)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    (source,) = (tmp_path / "dist").glob("*.tar.gz")
    modules = {
        str(path.relative_to(tmp_path / "source"))
        for path in tmp_path.glob("source/recoquest_client/**/*.py")
    }
    written = {name.replace("async_client", "client") for name in modules}
    needed = {*modules, *written, "recoquest_client/py.typed"}
    with zipfile.ZipFile(wheel) as archive:
        assert needed <= set(archive.namelist())
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        assert {*needed, "LICENSE", "README.md"} <= names
    settings = index_shapes(tmp_path / "home", tmp_path / "data")
    picture = next((tmp_path / "data").rglob("*.png"))
    with running(create_app(settings)) as address:
        for number, python in enumerate(_pythons()):
            folder = tmp_path / f"venv-{number}"
            _run(python, "-m", "venv", folder, cwd=tmp_path)
            _run(folder / "bin" / "pip", "install", "--quiet", wheel, cwd=tmp_path)
            walk = (folder / "bin" / "python", "-I", "-c", _WALK)
            assert "walked by" in _run(*walk, address, ADMIN_KEY, SHAPES, str(picture), cwd=tmp_path)
