"""docs/guides/own-code.md, run from outside the project: with the wheel, in a folder of its own."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_pages import blocks_of

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "own-code.md").read_text(encoding="utf-8")
_COMMAND = "import sys; from app.command import run; sys.argv[0] = 'recoquest'; run()"


class Outside:
    """A folder, and Python with the wheel and the packages of this environment."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder, self.wheel = folder, wheel

    def run(self, *words: str) -> str:
        """Run Python with some arguments and return what it printed."""
        environment = {**os.environ, "PYTHONPATH": str(self.wheel), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def recoquest(self, line: str) -> str:
        """Run a line of the page."""
        command, *words = shlex.split(line)
        assert command == "recoquest"
        return self.run("-c", _COMMAND, *words)


@pytest.mark.slow
def test_the_page_runs_from_top_to_bottom(tmp_path: Path, wheel: Path) -> None:
    outside = Outside(tmp_path, wheel)
    assert str(wheel) in outside.run("-c", "import training; print(training.__file__)")
    printed = []
    for block in blocks_of(PAGE):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            commands = block.text.replace("\\\n", " ").splitlines()
            printed += [outside.recoquest(line) for line in commands]
        elif block.language == "python":
            (tmp_path / "script.py").write_text(block.text, encoding="utf-8")
            printed.append(outside.run("script.py"))
    _, loss, more, mine, counts, memory, patience, own_loop = printed
    assert loss.count("loss ") == 3
    assert more.count("loss ") == 2
    assert "Encoder: runs/mine/bundle" in mine
    assert "Encoder: runs/counts/bundle" in counts
    lines = map(json.loads, (tmp_path / "runs/counts/metrics.jsonl").read_text().splitlines())
    assert all(line["count"] > 0 for line in lines if line["kind"] == "train")
    # Three colors are told apart by a model that learns at all.
    assert float(memory.split()[-1]) > 0
    assert re.fullmatch(r"\d+ steps, \d measurements\n", patience)
    assert "rsum" in own_loop
    assert (tmp_path / "runs" / "own-loop" / "config.json").is_file()
