"""The commands of docs/docker.md name commands, volumes and paths that there are."""

import re
import shlex

import pytest
from typer.testing import CliRunner

from app.cli.main import build
from app.settings import PREFIX, Settings
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


def test_settings_are_written_where_service_and_worker_read_them() -> None:
    section = _section("Settings")
    (shared,) = read_compose()["services"]["worker"]["env_file"]
    assert f"`{shared['path']}`" in section
    lines = dict(re.findall(r"^    (RECOQUEST_\w+)=(.*)$", section, re.MULTILINE))
    values = {name.removeprefix(PREFIX).lower(): value for name, value in lines.items()}
    assert {"keep_generations", "retrain", "retrain_at"} <= set(values)
    Settings.model_validate(values)
    assert not re.search(r"^ +RECOQUEST_\w+:", PAGE, re.MULTILINE), "settings of one service only"


def test_files_that_are_added_are_there_and_come_with_a_word_on_the_override() -> None:
    sections = [text for text in re.split(r"^## ", PAGE, flags=re.MULTILINE) if "docker compose -f" in text]
    assert len(sections) == 5
    for text in sections:
        assert "[your override](#adding-files)" in text, text.partition("\n")[0]
        for words in (
            shlex.split(line) for line in re.findall(r"docker compose (-f .*)$", text, re.MULTILINE)
        ):
            named = [words[i + 1] for i, word in enumerate(words) if word == "-f"]
            assert named[0] == "docker-compose.yml"
            assert all((ROOT / name).is_file() for name in named)
    (together,) = re.findall(r"^    COMPOSE_FILE=(.*)$", _section("Adding files"), re.MULTILINE)
    *files, override = together.split(":")
    assert all((ROOT / name).is_file() for name in files)
    assert override == "docker-compose.override.yml"
    assert f"`{override}`" in _section("Put images into it")


def _section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_volumes_have_the_names_that_compose_gives_them() -> None:
    base = read_compose()
    volumes = base["volumes"] | read_compose("production")["volumes"]
    named = set(re.findall(r"\brecoquest_\w+", PAGE))
    assert named == {f"{base['name']}_{volume}" for volume in volumes}
