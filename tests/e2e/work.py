"""A folder in which the commands are run, and the service in a process of its own."""

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli.endings import ended
from app.cli.main import build
from training.data.manifest import Record, read_manifest

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
        output, errors = io.StringIO(), io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
            pytest.raises(SystemExit) as left,
        ):
            patch.chdir(self.folder)
            patch.setenv("RECOQUEST_HOME", "home")
            ended(partial(build(), [str(argument) for argument in arguments]))
        done = Done(output.getvalue(), errors.getvalue())
        assert left.value.code == code, done.stderr
        assert "Traceback" not in done.stderr
        return done

    def search(self, *arguments: object) -> dict[str, Any]:
        page: dict[str, Any] = json.loads(self.run("search", "scenes", *arguments, "--json").stdout)
        return page


@contextlib.contextmanager
def service(work: Work, **settings: object) -> Iterator[tuple[httpx.Client, "subprocess.Popen[str]"]]:
    """`recoquest serve` on a free port, once it is ready; settings by keyword."""
    environment = {f"RECOQUEST_{name.upper()}": str(value) for name, value in settings.items()}
    process = subprocess.Popen(
        [*COMMAND, "serve", "--port", "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=work.folder,
        env={**os.environ, "RECOQUEST_HOME": "home", **environment},
    )
    assert process.stderr is not None
    try:
        announcement = process.stderr.readline()
        assert announcement.startswith("Serving on http://127.0.0.1:"), announcement
        with httpx.Client(base_url=announcement.split()[-1], timeout=30) as client:
            _wait_until_ready(client, process)
            yield client, process
    finally:
        process.kill()
        process.communicate()


def _wait_until_ready(client: httpx.Client, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        with contextlib.suppress(httpx.TransportError):
            if client.get("/readyz").status_code == 200:
                return
        time.sleep(0.2)
    raise AssertionError("the service did not become ready within a minute")
