"""The command as a whole: what it offers, how fast it answers, and wrong use."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from rich.table import Table
from typer.testing import CliRunner

from app.cli.main import build
from index.errors import CatalogueError
from tests.app.commands import run_command
from tests.e2e.work import run_here
from training.common.progress import console

COMMANDS = [
    *("bundle", "classify", "collections", "demo", "duplicates", "evaluate", "feedback", "import", "index"),
    *("recipes", "sample-data", "search", "serve", "settings", "train", "tune"),
]


@pytest.fixture(autouse=True)
def wide_and_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


def test_help_names_every_command_and_explains_its_options() -> None:
    message = run_command("--help").output
    assert sorted(name for name in COMMANDS if f"│ {name} " in message) == COMMANDS
    for command in COMMANDS:
        for line in run_command(command, "--help").output.splitlines():
            if line.startswith("│ --") or line.startswith("│ *"):
                assert len(line.strip("│ ").split("  ")) > 1, f"no explanation: {line}"
    assert run_command("--version").output == f"recoquest {version('recoquest')}\n"


def test_nothing_heavy_is_imported_before_a_command_runs() -> None:
    script = "import sys, app.cli.main; app.cli.main.build(); print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy = "torch numpy matplotlib transformers fastapi pydantic sqlalchemy faiss PIL"
    assert not {*heavy.split()} & {*done.stdout.split()}


@pytest.mark.parametrize(
    ("arguments", "explanation"),
    [
        (["search", "films", "a text", "--exclude-same-group", "group"], "goes with an example"),
        (["search", "films", "--like", "x", "--exclude-same-group", "--group-by", "group"], "name a field"),
        (["search", "films", *["--like", "x"] * 17], "at most 16"),
        (["search", "films", "a text", "--target", "reports"], "'images' or 'texts'"),
        (["search", "films", "a text", "--group-by", "x" * 1001], "at most 1000"),
        (["search", "films", "a text", "--diversity", "2"], "less than or equal to 1"),
        (["search", "films", "   "], "there is nothing in it"),
        (["search", "films", "a text", "--keywords", " "], "there is nothing in it"),
        (["search", "films", "\u200b\u2060"], "there is nothing in it"),
        (["search", "films", "a text", "-k", "0"], "greater than or equal to 1"),
        (["search", "films", "a text", "--filter", "{"], "not JSON"),
        (["search", "films", "a text", "--filter", "[1]"], "JSON object"),
        (["search", "films", "a text", "--filter", "[" * 200_000], ""),
        (["index", "films", "--data", "d"], "--bundle"),
        (["train", "--data", "d", "--out", "o"], "RECIPE"),
        (["nothing"], "No such command"),
    ],
)
def test_wrong_use_is_explained(arguments: list[str], explanation: str) -> None:
    result = run_command(*arguments, code=2)
    assert explanation.lower() in result.output.lower()
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "explanation"),
    [
        *(
            ([*words.split(), "--home", "missing"], "Nothing is indexed in missing")
            for words in (
                "search films text",
                "collections",
                "index films --explain",
                "index films --view exact",
            )
        ),
        (["train", "no-such-recipe", "--data", "d", "--out", "o"], "There is no recipe 'no-such-recipe'"),
        (["evaluate", "no-bundle", "--data", "d"], "no-bundle"),
        (["serve", "--host", "host.invalid"], "is not an address of this machine"),
    ],
)
def test_what_a_user_can_mend_is_one_sentence(
    arguments: list[str], explanation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_here(arguments)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert explanation in done.stderr
    assert done.stderr.startswith("recoquest: ")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        ["train", "demo-scenes", "--processes", "0"],
        ["classify", "glue-bert-base::rte"],
        ["language-model", "lm-small::ivae"],
    ],
)
def test_what_trains_does_so_on_the_device_of_the_settings(command: list[str], tmp_path: Path) -> None:
    positions = ["--data", str(tmp_path / "none"), "--out", str(tmp_path / "run")]
    done = run_here([*command, *positions], RECOQUEST_DEVICE="cuda:99")
    assert (done.returncode, "no device 'cuda:99' here" in done.stderr) == (1, True)


@pytest.mark.parametrize("command", [["collections"], ["tidy"], ["backup", "before.tar"]])
def test_the_settings_file_that_a_variable_names_holds_for_every_command(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "recoquest.env"
    file.write_text(f"RECOQUEST_HOME={tmp_path}/elsewhere\n")
    monkeypatch.delenv("RECOQUEST_HOME", raising=False)
    done = run_here(command, RECOQUEST_ENV_FILE=str(file))
    assert f"{tmp_path}/elsewhere" in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == [file]


def test_brackets_in_a_table_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("Text")
    table.add_row("[/b] a dog [laughs] :smile:")
    console().print(table)
    assert "[/b] a dog [laughs] :smile:" in capsys.readouterr().out


def test_a_damaged_catalogue_is_said_before_the_server_starts(tmp_path: Path) -> None:
    (tmp_path / "catalogue.sqlite3").write_bytes(b"no database" * 100)
    result = CliRunner().invoke(build(), ["serve", "--home", str(tmp_path), "--port", "0"])
    assert isinstance(result.exception, CatalogueError)
