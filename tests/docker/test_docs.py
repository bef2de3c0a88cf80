"""The commands of docs/docker.md name commands, volumes and paths that there are."""

import re
import shlex

import pytest
from typer.testing import CliRunner

from app.cli.main import build
from tests.docker.compose import read_compose
from tests.docker.dockerfile import ROOT

PAGE = (ROOT / "docs" / "docker.md").read_text("utf-8")
COMMANDS = [
    shlex.split(line, comments=True) for line in re.findall(r"^    (docker compose .*)$", PAGE, re.MULTILINE)
]


@pytest.mark.parametrize(
    "words", [words for words in COMMANDS if words[1:3] == ["compose", "run"]], ids=" ".join
)
def test_what_runs_in_a_container_is_a_command(words: list[str]) -> None:
    command = words[words.index("recoquest") + 1]
    assert CliRunner().invoke(build(), [command, "--help"]).exit_code == 0


def test_what_is_copied_out_lies_on_the_volume() -> None:
    (copied,) = [words[3] for words in COMMANDS if words[1:3] == ["compose", "cp"]]
    service, _, path = copied.partition(":")
    (mount,) = read_compose()["services"][service]["volumes"]
    folder = mount.partition(":")[2]
    written = [words[-1] for words in COMMANDS if "backup" in words]
    assert [f"{folder}/{name}" for name in written] == [path]


def test_volumes_have_the_names_that_compose_gives_them() -> None:
    base = read_compose()
    volumes = base["volumes"] | read_compose("production")["volumes"]
    named = set(re.findall(r"\brecoquest_\w+", PAGE))
    assert named == {f"{base['name']}_{volume}" for volume in volumes}
