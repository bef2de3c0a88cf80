"""Every way a command may end: its exit code, its one sentence, and no traceback."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli.errors import StoppedError, ended, resumable, stoppable
from training.common.errors import DataError
from training.trainer.run_state.errors import TrainingInterruptedError


def code_of(error: BaseException, *, tell_stop: bool = True) -> object:
    def command() -> None:
        raise error

    with pytest.raises(SystemExit) as left:
        ended(command, tell_stop=tell_stop)
    return left.value.code


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (DataError("The data are\nbroken: mend them."), 1, "The data are broken: mend them."),
        (PermissionError(13, "Permission denied", "/out"), 1, "/out: Permission denied."),
        (OSError(28, "No space left on device"), 1, "No space left on device."),
        (ModuleNotFoundError("No module named 'faiss'", name="faiss"), 1, "faiss is not installed: run "),
        (KeyboardInterrupt(), 130, "Stopped."),
        (StoppedError("Stopped here.", 130), 130, "Stopped here."),
        (StoppedError("Ended here.", 143), 143, "Ended here."),
        (SystemExit(130), 130, "Stopped."),
        (SystemExit(143), 143, "Stopped."),
        # Endings of typer are kept.
        (SystemExit(0), 0, None),
        (SystemExit(2), 2, None),
    ],
)
def test_one_sentence_and_the_code(
    error: BaseException, code: int, sentence: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(error) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"recoquest: {sentence}" if sentence else "")
    assert printed.err.count("\n") == (sentence is not None)
    if code >= 130:
        # One of several processes leaves the sentence to its parent.
        assert code_of(error, tell_stop=False) == code
        assert capsys.readouterr().err == ""


def test_a_defect_leaves_its_traceback_in_a_file_and_who_asks_sees_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert code_of(ZeroDivisionError("by zero")) == 70
    sentence = capsys.readouterr().err
    assert sentence.count("\n") == 1
    assert "This is a defect (ZeroDivisionError: by zero)" in sentence
    (file,) = tmp_path.iterdir()
    assert str(file) in sentence
    assert re.search(r"Traceback.*in command.*ZeroDivisionError", file.read_text(), re.DOTALL)
    error = DataError("Two lines are\nbroken.")
    error.add_note("Line 1: gone.")
    error.add_note("Line 7: also\ngone.")
    assert code_of(error) == 1
    expected = ["recoquest: Two lines are broken.", "Line 1: gone.", "Line 7: also gone."]
    assert capsys.readouterr().err.splitlines() == expected
    monkeypatch.setenv("RECOQUEST_DEBUG", "1")
    for defect, code in ((ZeroDivisionError("by zero"), 70), (DataError("Broken."), 1)):
        assert code_of(defect) == code
        assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyboardInterrupt(), 130),
        (SystemExit(143), 143),
        (TrainingInterruptedError("asked to stop", signal.SIGINT), 130),
        (TrainingInterruptedError("asked to stop", signal.SIGTERM), 143),
        (TrainingInterruptedError("another was asked to stop", None), 130),
    ],
)
def test_stoppable_says_what_was_kept(error: BaseException, code: int) -> None:
    with pytest.raises(StoppedError, match="Kept all of it") as stopped, stoppable("Kept all of it."):
        raise error
    assert stopped.value.code == code


def test_other_exits_pass_and_a_resume_is_promised_from_the_first_checkpoint_on(tmp_path: Path) -> None:
    with pytest.raises(SystemExit), stoppable("Kept all of it."):
        raise SystemExit(2)
    with pytest.raises(StoppedError, match="before the first checkpoint"), resumable(tmp_path / "out"):
        raise KeyboardInterrupt
    with pytest.raises(StoppedError, match="--resume continues"), resumable(tmp_path / "out"):
        (tmp_path / "out/checkpoints").mkdir(parents=True)
        (tmp_path / "out/checkpoints/last.pt").touch()
        raise KeyboardInterrupt


def in_a_process(body: str) -> "subprocess.Popen[str]":
    """A real process that runs `body` as a typer command."""
    script = f"""
import contextlib, sys, time, typer
from app.cli.errors import ended, stoppable
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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    ("block", "sentence"),
    [("contextlib.nullcontext()", "Stopped."), ("stoppable('Stopped. Kept.')", "Stopped. Kept.")],
)
def test_signals_to_a_real_process(number: signal.Signals, code: int, block: str, sentence: str) -> None:
    process = in_a_process(f"""
    with {block}:
        print('ready', flush=True)
        time.sleep(30)
""")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == code
    assert errors.strip() == f"recoquest: {sentence}"


def test_a_reader_that_leaves_is_no_error() -> None:
    process = in_a_process("[typer.echo('x' * 1000) for _ in range(10_000)]")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    assert process.wait(timeout=20) == 1
    assert errors == ""
    # Nor are letters that the terminal lacks.
    process = in_a_process("print('Herzgr\\u00f6\\u00dfe \\u2713')")
    output, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    assert output == "Herzgr\\xf6\\xdfe \\u2713\n"
