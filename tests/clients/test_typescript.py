"""The TypeScript client: made from the document of today, strictly compiled, and the whole way with it."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from app.application import create_app
from index.catalogue import open_catalogue
from tests.access import ADMIN_KEY
from tests.browser.service import SHAPES, index_shapes, running
from tests.clients.typescript import CLIENT, compile_client, installed_packages
from tests.jobs import Jobs
from tests.needed import needed

_NODE_S = 150


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client with its tests, compiled."""
    packages = needed(installed_packages(), "Node.js with npm", "`apt-get install npm`, and a registry")
    return compile_client(packages, tmp_path_factory.mktemp("client") / "typescript")


def run_node(compiled: Path, test: str, **environment: str) -> None:
    """Run a file of tests by Node.js."""
    command = ["node", "--test", f"dist-test/{test}.test.js"]
    ours = {**os.environ, **environment}
    done = subprocess.run(command, cwd=compiled, env=ours, capture_output=True, text=True, timeout=_NODE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"^# pass (\d+)$", done.stdout, re.MULTILINE)
    assert passed is not None
    assert int(passed[1]) > 0


def test_packages_are_of_exact_versions_without_a_registry() -> None:
    package = json.loads((CLIENT / "package.json").read_text())
    for version in {**package["dependencies"], **package["devDependencies"]}.values():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    lock = json.loads((CLIENT / "package-lock.json").read_text())
    assert lock["packages"][""]["dependencies"] == package["dependencies"]
    for name, locked in lock["packages"].items():
        assert "resolved" not in locked, name
        assert not name or locked["integrity"].startswith("sha512-"), name


@pytest.mark.slow
def test_it_holds_out_against_servers_that_are_busy_or_broken(compiled: Path) -> None:
    run_node(compiled, "transport")


@pytest.mark.slow
def test_the_whole_way_against_a_running_service(compiled: Path, tmp_path: Path) -> None:
    settings = index_shapes(tmp_path / "home", tmp_path / "data")
    pictures = tmp_path / "data" / SHAPES / "images"
    catalogue = open_catalogue(settings.catalogue_url)
    jobs = Jobs(settings, catalogue)
    try:
        with running(create_app(settings)) as address, jobs.worker():
            run_node(
                compiled,
                "walk",
                RECOQUEST_URL=address,
                RECOQUEST_KEY=ADMIN_KEY,
                RECOQUEST_COLLECTION=SHAPES,
                RECOQUEST_PICTURES=str(pictures),
            )
            picture = str(min(pictures.iterdir()))
            command = ["node", "dist-test/example.js", address, SHAPES, picture]
            ours = {**os.environ, "RECOQUEST_KEY": ADMIN_KEY}
            done = subprocess.run(
                command, cwd=compiled, env=ours, capture_output=True, text=True, timeout=_NODE_S
            )
            assert done.returncode == 0, done.stderr
            printed = re.fullmatch(r"1 (\[.*\]) (\[.*\])\n", done.stdout, re.DOTALL)
            assert printed is not None, done.stdout
            assert [hits.count("'") for hits in printed.groups()] == [6, 6]
    finally:
        catalogue.close()
