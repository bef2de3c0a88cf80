"""What a test needs and is not there: skipped on any machine, failed in CI, which installs everything."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.needed import VARIABLE, needed, needed_module

_CI = Path(__file__).parents[1] / ".ci" / "run"
_PROGRAMS = (
    "chromium",
    "initdb",
    "npm",
    "nginx",
    "caddy",
    "promtool",
    "ip",
    "curl",
    "Orthanc",
    "dcmcjpeg",
    "dciodvfy",
    "python3.11",
)


@pytest.mark.parametrize(
    ("value", "outcome"), [(None, pytest.skip.Exception), ("required", pytest.fail.Exception)]
)
def test_what_is_missing_is_named(
    value: str | None, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(outcome, match="PostgreSQL is not installed: `apt-get install postgresql`"):
        needed(None, "PostgreSQL", "`apt-get install postgresql`")
    with pytest.raises(outcome, match="no_such_module is not installed: `pip install it`"):
        needed_module("no_such_module", "`pip install it`")
    assert needed("/usr/bin/initdb", "PostgreSQL", "") == "/usr/bin/initdb"
    assert needed_module("pytest", "") is pytest


@pytest.mark.parametrize(
    ("there", "value", "said"), [(_PROGRAMS, "required", ""), (_PROGRAMS[1:], "", "chromium")]
)
def test_ci_requires_what_it_has_and_says_what_it_cannot_install(
    there: tuple[str, ...], value: str, said: str, tmp_path: Path
) -> None:
    shell = {"id": "echo 1000", "make": f'echo "$1:${VARIABLE}"', "dirname": f"echo {tmp_path}/.ci"}
    for name, line in shell.items() | dict.fromkeys(there, "true").items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/bash\n{line}\n")
        program.chmod(0o755)
    (tmp_path / ".ci").mkdir()
    environment = {name: each for name, each in os.environ.items() if name != VARIABLE}
    done = subprocess.run(
        ["/bin/bash", _CI],
        env={**environment, "PATH": str(tmp_path / "bin")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"test:{value}\ntest-slow:{value}\n"
    assert said in done.stderr
    assert bool(said) == bool(done.stderr)
