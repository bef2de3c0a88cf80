"""Options that several commands share, what commands open, and how they print tables."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from training.common.atomic import atomic_file
from training.common.errors import DataError, RecoquestError
from training.common.progress import console
from training.trainer.run_state.tracking import TrackerName

if TYPE_CHECKING:
    from app.settings import Settings
    from index.audit.event import Action
    from index.catalogue import Catalogue
    from index.engine import SearchEngine
    from training.common.manifest import Manifest, Rejections, Split

_SHOWN: Final = 20
Collection = Annotated[str, typer.Argument(help="Name of the collection.")]
Home = Annotated[
    Path | None,
    typer.Option("--home", help="Folder of catalogue, images and bundles [RECOQUEST_HOME, recoquest-data]."),
]
Device = Annotated[
    str | None, typer.Option("--device", help="auto, cpu, cuda or cuda:N [RECOQUEST_DEVICE, auto].")
]
Processes = Annotated[
    int, typer.Option("--processes", min=0, help="Processes that train together; 0: one for each GPU.")
]
Sets = Annotated[
    list[str] | None, typer.Option("--set", help="key=value, such as train.epochs=3; may be repeated.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue from the run's last checkpoint.")]
EnvFile = Annotated[
    Path | None, typer.Option("--env-file", help="Settings as NAME=value lines [RECOQUEST_ENV_FILE].")
]
Track = Annotated[
    list[TrackerName] | None,
    typer.Option("--track", help="Track the run with W&B or MLflow in addition to TensorBoard; repeatable."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Bundle = Annotated[Path | None, typer.Option("--bundle", help="Folder of the trained encoder.")]
Data = Annotated[Path, typer.Option("--data", help="Folder with manifest.jsonl.")]
SplitName = Annotated[
    Literal["train", "val", "test"] | None, typer.Option("--split", help="Only its images.")
]
BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="Images a forward pass.")]
MaxRejected = Annotated[
    float,
    typer.Option(
        "--max-rejected",
        min=0,
        max=1,
        help="Stop where a larger share of lines and images cannot be used; by default, take the others.",
        show_default=False,
    ),
]
MaxImagePixels = Annotated[
    int | None,
    typer.Option(
        "--max-image-pixels",
        min=1,
        help="Most pixels of an image; a JPEG counts with the size that it is decoded at "
        "[RECOQUEST_MAX_IMAGE_PIXELS, 50000000].",
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="End with exit code 1 if something could not be used; the rest is taken."),
]


def _parse_filter(condition: str) -> dict[str, Any]:
    try:
        parsed = json.loads(condition)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"this is not JSON: {error}.") from None
    if not isinstance(parsed, dict):
        raise typer.BadParameter("a filter is a JSON object.")
    return parsed


FILTER_OPTION = typer.Option(
    "--filter", parser=_parse_filter, metavar="JSON", help='Such as \'{"field": "view", "eq": "PA"}\'.'
)


@dataclass(frozen=True)
class Installation:
    """What a command works on: its settings, and the search engine of their home folder."""

    settings: "Settings"
    engine: "SearchEngine"

    @property
    def catalogue(self) -> "Catalogue":
        """The engine's catalogue."""
        return self.engine.home.catalogue

    def record(self, action: "Action", command: str, **details: Any) -> None:
        """Write the event of a command to the audit trail; see `record_command`."""
        from app.audit.trail import record_command

        record_command(self.settings, self.catalogue, action, command, **details)


def radiology_settings(env_file: Path | None = None, **values: Any) -> "Settings":
    """The settings of a command of radiology, which is refused where radiology is off."""
    from app.settings import load_settings

    settings = load_settings(env_file, **values)
    if not settings.radiology:
        raise RecoquestError("This is off here: the setting RECOQUEST_RADIOLOGY=true turns it on.")
    return settings


@contextmanager
def opened(
    *, create: bool = False, for_queries: bool = False, radiology: bool = False, **options: Any
) -> Iterator[Installation]:
    """Open the home folder of a command.

    Args:
        create: Make an empty home where nothing was indexed.
        for_queries: Encode on the CPU, unless a device is chosen.
        radiology: Refuse the command where radiology is off.
        options: Arguments of `load_settings`.
    """
    from app.settings import load_settings

    settings = radiology_settings(**options) if radiology else load_settings(**options)
    if not create and settings.database_url is None and not settings.home.is_dir():
        raise RecoquestError(
            f"Nothing is indexed in {settings.home}: run `recoquest index` first, or give another --home."
        )
    from app.engine import open_engine

    if for_queries:
        settings = settings.model_copy(update={"device": query_device(settings)})
    with closing(open_engine(settings)) as engine:
        yield Installation(settings, engine)


def chosen_device(device: str | None) -> str:
    """The device of the option, otherwise that of the settings."""
    from app.settings import load_settings

    return load_settings(device=device).device


def query_device(settings: "Settings") -> str:
    """Device for the queries of a command: a GPU takes longer to open than they take on a CPU."""
    return "cpu" if settings.device == "auto" else settings.device


def read_split(data: Path, split: "Split | None", max_rejected: float) -> "Manifest":
    """Read a manifest, or one split of it, and report what had to be left out."""
    from training.common.manifest import read_manifest

    manifest = read_manifest(data, max_rejected=max_rejected)
    name_left_out(manifest.rejections)
    return manifest if split is None else manifest.split(split)


def name_left_out(rejections: "Rejections") -> None:
    """Name on standard error what had to be left out, if anything."""
    if rejections:
        typer.echo(rejections.summary(), err=True)


def end_strictly(*tallies: "Rejections", strict: bool) -> None:
    """End a command that is done with an error, if it is strict and had to leave something out."""
    if strict and (count := sum(map(len, tallies))):
        what = "line or image" if count == 1 else "lines and images"
        raise RecoquestError(
            f"{count:,} {what} could not be used; the rest is taken. --strict makes this an error."
        )


def read_text(path: Path) -> str:
    """Return the text of a file in UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8: {error.reason} at byte {error.start}.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None


@contextmanager
def line_writer(file: Path) -> Iterator[Callable[[str], object]]:
    """Yield a function that writes a line to a file, atomically; `-` is standard output."""
    if str(file) == "-":
        yield lambda line: sys.stdout.write(f"{line}\n")
    else:
        with atomic_file(file) as written:
            yield lambda line: written.write(f"{line}\n".encode())


def first_of(names: Sequence[str], most: int = 5) -> str:
    """Return the first of many names."""
    return ", ".join((*names[:most], *(["..."] if len(names) > most else [])))


def say_refused(refused: Sequence[str], *, in_folder: bool) -> None:
    """Name reports that were refused."""
    from training.importing.reports import ORDER

    for sentence in refused[:_SHOWN]:
        typer.echo(f"Refused: {sentence}", err=True)
    if len(refused) > _SHOWN:
        typer.echo(f"Refused: and {len(refused) - _SHOWN:,} more.", err=True)
    if refused and in_folder:
        typer.echo(f"File numbers are places in: {ORDER}.", err=True)


def shown_time(stamp: str | None) -> str:
    """A time stamp of the catalogue for people, to the second."""
    return "" if stamp is None else stamp[:19].replace("T", " ")


def print_table(*columns: str, rows: Iterable[Sequence[Any]], utc: bool = False) -> None:
    """Print rows of texts under the names of their columns; with `utc`, say that their times are in UTC."""
    from rich.table import Table

    table = Table(*columns, caption="Times are in UTC" if utc else None)
    for row in rows:
        table.add_row(*row)
    console().print(table)
