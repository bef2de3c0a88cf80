"""End of a command: one sentence on standard error, an exit code, and a traceback only on request.

0 done; 1 something the user can mend; 2 wrong use of the command line; 69 an encoder that hangs for good;
70 a defect; 130 stopped by Ctrl-C; 143 stopped by SIGTERM, as a system does that shuts down.
"""

import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Final, NoReturn

from training.common.errors import RecoquestError, what_to_install
from training.trainer.run_state.errors import AnotherProcessFailedError, TrainingInterruptedError

DEBUG_VARIABLE = "RECOQUEST_DEBUG"
MENDABLE = 1
HANGING = 69
DEFECT = 70
STOPPED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM

_TELLING_S: Final = 0.3
_LONGEST_SUMMARY: Final = 300


class StoppedError(Exception):
    """A signal during work that has something to say about it; `code` is the command's exit code."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


@contextmanager
def stoppable(sentence: str | Callable[[], str]) -> Iterator[None]:
    """Say a sentence when a signal stops the block, at once or at the end of a training step.

    A function is called for the sentence when the block was stopped.
    """
    try:
        yield
    except KeyboardInterrupt:
        code = STOPPED
    except TrainingInterruptedError as error:
        code = TERMINATED if error.received == signal.SIGTERM else STOPPED
    except SystemExit as leaving:
        if leaving.code != TERMINATED:
            raise
        code = TERMINATED
    else:
        return
    raise StoppedError(sentence if isinstance(sentence, str) else sentence(), code)


@contextmanager
def resumable(out: Path) -> Iterator[None]:
    """Return how to resume an interrupted training that has its run in a folder."""

    def sentence() -> str:
        if (out / "checkpoints" / "last.pt").exists():
            return f"Stopped. The same command with --resume continues from the last checkpoint in {out}."
        return "Stopped before the first checkpoint: the same command begins again."

    with stoppable(sentence):
        yield


def ended(command: Callable[[], object], *, tell_stop: bool = True) -> NoReturn:
    """Run a command to its end and leave the process; with `tell_stop`, say that a signal stopped it.

    With RECOQUEST_DEBUG=1 every failure shows its traceback.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal that cannot show a letter must not stop a search.
            stream.reconfigure(errors="backslashreplace")
    # Ends as any other command does, so that nothing half-written stays behind.
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(TERMINATED))
    try:
        code = _exit_code(command, tell_stop=tell_stop)
    finally:
        signal.signal(signal.SIGTERM, before)
    sys.exit(code)


def leave_hanging() -> NoReturn:
    """End a process whose threads hang, at once: they would keep any orderly end from coming."""
    # Writing blocks for ever if nobody reads standard error.
    sentence = "The encoder hangs: start the process again."
    writer = threading.Thread(target=_say, args=(sentence, HANGING), daemon=True)
    writer.start()
    writer.join(_TELLING_S)
    os._exit(HANGING)


def _exit_code(command: Callable[[], object], *, tell_stop: bool) -> int:
    try:
        return _code_of(command)
    except StoppedError as stopped:
        return _say(str(stopped), stopped.code) if tell_stop else stopped.code
    except BrokenPipeError:
        # The reader has gone, as `head` does; the interpreter must not write there again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return MENDABLE
    except AnotherProcessFailedError:
        return MENDABLE
    except RecoquestError as error:
        return _say(str(error), MENDABLE, getattr(error, "__notes__", ()))
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        return _say(f"{error.filename}: {reason}." if error.filename else f"{reason}.", MENDABLE)
    except Exception as error:  # noqa: BLE001 - the last one to see it
        advice = what_to_install(error) if isinstance(error, ModuleNotFoundError) else None
        return _defect(error) if advice is None else _say(advice, MENDABLE)


def _code_of(command: Callable[[], object]) -> int:
    code = 0
    try:
        command()
    except KeyboardInterrupt as error:
        raise StoppedError("Stopped.", STOPPED) from error
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if code in (STOPPED, TERMINATED):
            raise StoppedError("Stopped.", code) from leaving
    sys.stdout.flush()
    return code


def _say(sentence: str, code: int, notes: Sequence[str] = ()) -> int:
    if os.environ.get(DEBUG_VARIABLE) == "1":
        traceback.print_exc()
    for line in (f"recoquest: {sentence}", *notes):
        print(" ".join(line.split()), file=sys.stderr)  # noqa: T201
    return code


def _defect(error: Exception) -> int:
    if os.environ.get(DEBUG_VARIABLE) == "1":
        where = "see the traceback above"
    else:
        with tempfile.NamedTemporaryFile(
            "w", prefix="recoquest-", suffix=".log", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write("".join(traceback.format_exception(error)))
        where = f"the traceback is in {file.name}"
    summary = f"{type(error).__name__}: {error}"
    summary = summary if len(summary) <= _LONGEST_SUMMARY else f"{summary[:_LONGEST_SUMMARY]}..."
    return _say(f"This is a defect ({summary}); {where}. Please report it.", DEFECT)
