"""Every way a command may end: its exit code, its one sentence, and no traceback."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from app.cli.endings import StoppedError, ended, stoppable
from training.errors import DataError
from training.trainer.errors import TrainingInterruptedError


def raising(error: BaseException) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


def code_of(command: Callable[[], object]) -> object:
    with pytest.raises(SystemExit) as left:
        ended(command)
    return left.value.code


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (DataError("The data are\nbroken: mend them."), 1, "The data are broken: mend them."),
        (PermissionError(13, "Permission denied", "/out"), 1, "/out: Permission denied."),
        (OSError(28, "No space left on device"), 1, "No space left on device."),
        (ModuleNotFoundError("No module named 'faiss'", name="faiss"), 1, "faiss is not installed: run "),
        (KeyboardInterrupt(), 130, "Stopped."),
        (StoppedError("Stopped here."), 130, "Stopped here."),
        (SystemExit(130), 130, "Stopped."),
    ],
)
def test_one_sentence_and_the_code(
    error: BaseException, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(raising(error)) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"recoquest: {sentence}")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("code", [0, 2])
def test_typers_own_endings_are_kept(code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(raising(SystemExit(code))) == code
    assert capsys.readouterr().err == ""


def test_a_command_that_returns_is_done() -> None:
    assert code_of(lambda: None) == 0


def test_a_defect_leaves_its_traceback_in_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert code_of(raising(ZeroDivisionError("by zero"))) == 70
    sentence = capsys.readouterr().err
    assert sentence.count("\n") == 1
    assert "This is a defect (ZeroDivisionError: by zero)" in sentence
    (file,) = tmp_path.iterdir()
    assert str(file) in sentence
    assert re.search(r"Traceback.*in command.*ZeroDivisionError", file.read_text(), re.DOTALL)


def test_who_asks_sees_the_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOQUEST_DEBUG", "1")
    assert code_of(raising(ZeroDivisionError("by zero"))) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err
    assert code_of(raising(DataError("Broken."))) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), TrainingInterruptedError("asked to stop")])
def test_stoppable_says_what_was_kept(error: BaseException) -> None:
    with pytest.raises(StoppedError, match="Kept all of it"), stoppable("Kept all of it."):
        raise error


def in_a_process(body: str) -> "subprocess.Popen[str]":
    """A real process that runs `body` as a typer command."""
    script = f"""
import sys, time, typer
from app.cli.endings import ended
application = typer.Typer(pretty_exceptions_enable=False)

@application.command()
def command() -> None:
    {body}

ended(application)
"""
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )


def test_ctrl_c_in_a_real_process() -> None:
    process = in_a_process("print('ready', flush=True); time.sleep(30)")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert errors.strip() == "recoquest: Stopped."


def test_a_reader_that_leaves_is_no_error() -> None:
    process = in_a_process("[typer.echo('x' * 1000) for _ in range(10_000)]")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    assert process.wait(timeout=20) == 1
    assert errors == ""


def test_letters_that_the_terminal_lacks_do_not_stop_a_command() -> None:
    process = in_a_process("print('Herzgr\\u00f6\\u00dfe \\u2713')")
    output, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    assert output == "Herzgr\\xf6\\xdfe \\u2713\n"


def test_typer_reports_stop_as_an_exit_code() -> None:
    """`ended` relies on it."""
    application = typer.Typer()
    application.command()(raising(KeyboardInterrupt()))
    with pytest.raises(SystemExit) as left:
        application([])
    assert left.value.code == 130
