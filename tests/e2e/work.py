"""A folder in which the commands are run, and the service in a process of its own."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli.errors import ended
from app.cli.main import build
from tests.access import OPEN_ENVIRONMENT
from training.common.manifest import Record, read_manifest

COMMAND = [sys.executable, "-c", "from app.cli.main import run; run()"]
TINY = [
    "train.epochs=2",
    "train.batch_size=16",
    "preprocessing.image.size=32",
    "model.dim=16",
    "model.image.options.hidden_sizes=[8, 8, 16, 16]",
    "model.image.options.embedding_size=8",
    "model.text.vocabulary_size=300",
]
# Settings of a retraining that finds something better than so little training did: the loss falls on.
FURTHER = ("--set", "train.epochs=20", "--set", "train.select_by=loss")


@dataclass(frozen=True)
class Done:
    """What a command printed."""

    stdout: str
    stderr: str


@dataclass(frozen=True)
class Work:
    """A folder with sample data, a trained encoder, and a home in which `scenes` is indexed."""

    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "samples" / "scenes"

    @property
    def records(self) -> tuple[Record, ...]:
        return read_manifest(self.data).records

    def run(self, *arguments: object, code: int = 0) -> Done:
        """Run a command in this process, which has imported everything already."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            done = run_here([str(argument) for argument in arguments], RECOQUEST_HOME="home")
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return Done(done.stdout, done.stderr)

    def search(self, *arguments: object) -> dict[str, Any]:
        page: dict[str, Any] = json.loads(self.run("search", "scenes", *arguments, "--json").stdout)
        return page


def run_here(words: Sequence[str], **settings: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in this process, with environment variables."""
    output, errors = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
        pytest.raises(SystemExit) as left,
    ):
        for name, value in settings.items():
            patch.setenv(name, value)
        ended(partial(build(), words))
    code = left.value.code
    assert isinstance(code, int)
    return subprocess.CompletedProcess(words, code, output.getvalue(), errors.getvalue())


@contextlib.contextmanager
def service(work: Work, **settings: object) -> Iterator[tuple[httpx.Client, "subprocess.Popen[str]"]]:
    """`recoquest serve` on a free port, once it is ready; settings by keyword."""
    given = {f"RECOQUEST_{name.upper()}": str(value) for name, value in settings.items()}
    environment = {**OPEN_ENVIRONMENT, **os.environ, "RECOQUEST_HOME": "home", **given}
    # A pipe that nobody reads would fill with the service's log and stop it.
    with tempfile.NamedTemporaryFile("w+") as log:
        process = subprocess.Popen(
            [*COMMAND, "serve", "--port", "0"],
            stdout=subprocess.DEVNULL,
            stderr=log,
            text=True,
            cwd=work.folder,
            env=environment,
        )
        try:
            address = _address(process, Path(log.name))
            headers = {"Authorization": f"Bearer {environment['RECOQUEST_ADMIN_KEY']}"}
            with httpx.Client(base_url=address, timeout=30, headers=headers) as client:
                _wait_until(lambda: _is_ready(client), process, Path(log.name))
                yield client, process
        finally:
            process.kill()
            process.wait()


def _address(process: "subprocess.Popen[str]", log: Path) -> str:
    """Where the service says that it is, once it has."""
    _wait_until(lambda: "\n" in log.read_text(), process, log)
    announcement = log.read_text().partition("\n")[0]
    assert announcement.startswith("Serving on http://127.0.0.1:"), announcement
    return announcement.split()[-1]


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def _wait_until(true: Callable[[], bool], process: "subprocess.Popen[str]", log: Path) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, "the service did not become ready within a minute"
        time.sleep(0.05)
