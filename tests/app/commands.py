"""Commands as they are typed, run in this process."""

import re
from pathlib import Path

from typer.testing import CliRunner, Result

from app.cli.main import build
from tests.e2e.work import Work
from tests.index.samples import make_bundle, make_manifest, make_records
from training.common.errors import RecoquestError


def run_command(*words: object, home: Path | None = None, code: int = 0) -> Result:
    """Run a command, in a home folder if one is named; an error that it is not to end with is raised."""
    arguments = [*words] if home is None else [*words, "--home", home]
    done = CliRunner().invoke(build(), [str(word) for word in arguments])
    if done.exit_code != code and isinstance(done.exception, Exception):
        raise done.exception
    assert done.exit_code == code, done.output
    return done


def outcome(*words: object) -> tuple[int, str]:
    """The exit code of a command that may end with an error that a user can mend, and all that it says."""
    done = CliRunner().invoke(build(), [str(word) for word in words])
    assert done.exception is None or isinstance(done.exception, RecoquestError | SystemExit)
    notes = getattr(done.exception, "__notes__", ())
    return done.exit_code, "\n".join((f"{done.output}{done.exception or ''}", *notes))


def indexed_work(folder: Path, *collections: str, images: int = 15) -> Work:
    """A folder with an untrained bundle `tiny` and images in `data`, which are indexed in collections."""
    make_bundle(folder / "tiny")
    make_manifest(folder / "data", make_records(images))
    for name in collections:
        Work(folder).run("index", name, "--bundle", "tiny", "--data", "data")
    return Work(folder)


def refusal(work: Work, *words: object) -> str:
    """The one sentence by which a command is refused."""
    sentence = work.run(*words, code=1).stderr
    assert sentence.count("\n") == 1, sentence
    return sentence


def plain_output(done: Result) -> str:
    """The whole output of a command, in one line and without frames."""
    words = re.sub("[│╭╰─╮╯]", " ", f"{done.output} {done.exception or ''}")
    return " ".join(words.split())
