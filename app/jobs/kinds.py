"""The kinds of jobs: commands of `recoquest` that a worker runs, and what it adds to their arguments."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from index.keys.api_keys import Role

# A result is shown in lists; a larger one is looked up in the job's folder.
_MAX_RESULT_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Kind:
    """A command that a worker can run.

    Attributes:
        output: The option with the path of the command's output, if the worker sets one.
        output_path: Value of that option, relative to the job's folder.
        result: The file inside the job's folder with the result, as a JSON object.
        run: Whether what it writes is the folder of a run, which several processes may share, and which goes
            on with --resume.
        bundle: The folder inside the job's folder that holds the encoder that came out.
        study: The option whose value is a study, which an ended job forgets when that study is erased.
    """

    output: str | None = None
    output_path: str = ""
    result: str | None = None
    run: bool = False
    bundle: str | None = None
    study: str | None = None

    def placed(self, folder: Path) -> list[str]:
        """The option for the command's output, set to a path in a job's folder."""
        return [] if self.output is None else [self.output, str(folder / self.output_path)]


@dataclass(frozen=True, slots=True)
class Rules:
    """What else holds for jobs of a kind, by their arguments.

    Attributes:
        refuse: Raises `JobExistsError` if another job does the same.
        role: Returns the role in a collection that may follow and cancel a job; None: none in one may.
    """

    refuse: "Callable[[Session, Sequence[str]], None]" = lambda _session, _arguments: None
    role: "Callable[[Sequence[str]], tuple[Role, str] | None]" = lambda _arguments: None


KINDS: Final[Mapping[str, Kind]] = {
    "train": Kind("--out", "run", "run/bundle/metrics.json", run=True, bundle="run/bundle"),
    "evaluate": Kind("--json", "report.json", "report.json"),
    "import": Kind(),
    "index": Kind(),
    "reindex": Kind(),
    "tidy": Kind(),
    "retrain": Kind("--out", "retraining", "retraining/result.json", bundle="retraining/run/bundle"),
    "duplicates": Kind("--out", "duplicates", "duplicates/result.json"),
    "pacs_sync": Kind(study="--study"),
}


def command_of(kind: str) -> list[str]:
    """Words of the command that does jobs of a kind."""
    return kind.split("_")


def command_line(kind: str, arguments: Sequence[str], folder: Path, processes: int) -> list[str]:
    """The arguments of `recoquest` that do a job, or continue with it.

    So many processes train together, unless the arguments give another number.
    """
    settings_of_kind = KINDS[kind]
    if not settings_of_kind.run:
        return [*command_of(kind), *settings_of_kind.placed(folder), *arguments]
    # Not above: it imports torch, which only a training needs.
    from training.trainer.run_state.folder import RunFolder

    resume = ["--resume"] if RunFolder(folder / settings_of_kind.output_path).recover() else []
    return [kind, *settings_of_kind.placed(folder), "--processes", str(processes), *resume, *arguments]


def bundle_of(kind: str, folder: Path) -> Path | None:
    """Path of the encoder that a job has written into its folder; None for kinds that write none."""
    settings_of_kind = KINDS.get(kind)
    return (
        None
        if settings_of_kind is None or settings_of_kind.bundle is None
        else folder / settings_of_kind.bundle
    )


def digest_of(bundle: Path) -> str | None:
    """Digest of a bundle, by its file alone; None if it cannot be read."""
    try:
        return str(json.loads((bundle / "digest.json").read_bytes())["digest"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def read_result(kind: str, folder: Path) -> dict[str, Any] | None:
    """Result of a finished job; None where its kind has none, or the file is unreadable."""
    name = KINDS[kind].result
    if name is None:
        return None
    try:
        content = (folder / name).read_bytes()
        parsed = json.loads(content) if len(content) <= _MAX_RESULT_BYTES else None
    except (OSError, ValueError):
        return None
    return parsed if isinstance(parsed, dict) else None
