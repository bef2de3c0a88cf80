"""docs/integration.md: a viewer with search, by the commands as they stand there, with a real archive."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.browser.test_reading import install_ohif
from tests.e2e.work import COMMAND
from tests.needed import needed
from tests.orthanc import INSTALL, find_orthanc, free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PAGE: Final = Path(__file__).parents[2] / "docs" / "integration.md"
# Commands that prepare the machine, for which the tests have their own ways.
INSTALLS: Final = ("sudo ", "python3.11 -m venv ", ". .venv/", "pip install ", "recoquest viewer install")
CHECKS: Final = """
curl -sf -H "Authorization: Bearer $KEY" localhost:8000/v1/studies/$STUDY/similar > similar.json
curl -sf localhost:8000/reading > reading.html
curl -sf localhost:8000/viewer > viewer.html
kill $(jobs -p)
wait
"""


def _commands() -> str:
    section = PAGE.read_text(encoding="utf-8").partition("## A viewer with search in ten minutes\n")[2]
    lines = re.findall(r"^    (.*)$", section.partition("\n## ")[0], re.MULTILINE)
    kept = [line for line in lines if not line.startswith(INSTALLS)]
    assert len(lines) - len(kept) == 7
    return "\n".join(kept)


def test_the_commands_lead_from_nothing_to_similar_cases_in_a_viewer(tmp_path: Path) -> None:
    needed(find_orthanc(), "Orthanc", INSTALL)
    (tmp_path / "trial" / "home").mkdir(parents=True)
    install_ohif(tmp_path / "trial" / "home")
    program = tmp_path / "bin" / "recoquest"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    program.chmod(0o755)
    archive, service = str(free_port()), str(free_port())
    script = f"{_commands()}\n{CHECKS}".replace("8042", archive).replace(
        "localhost:8000", f"localhost:{service}"
    )
    script = script.replace("mkdir trial", "mkdir -p trial")
    script = script.replace("recoquest serve", f"recoquest serve --port {service}")
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "RECOQUEST_DEVICE": "cpu"}
    running = subprocess.Popen(
        ["bash", "-eu", "-o", "pipefail", "-c", script],
        cwd=tmp_path,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        said, errors = running.communicate(timeout=800)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 0, errors
    assert re.search(r"200 instances found = 200 taken", said), said
    similar = json.loads((tmp_path / "trial" / "similar.json").read_text())
    assert (similar["state"], similar["collection"]) == ("indexed", "films")
    assert len(similar["hits"]) == 10
    assert re.search(rf"http://localhost:{service}/reading#study=[\d.]+ with the key \S+", said), said
    assert "app.bundle" in (tmp_path / "trial" / "viewer.html").read_text()
