"""The `recoquest` command and its subcommands."""

import atexit
import gc
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated

import typer

from app.cli.access import audit, keys
from app.cli.collections import aliases, collections, delete, duplicates, erase, models
from app.cli.demo import demo, sample_data
from app.cli.errors import ended
from app.cli.feedback import feedback
from app.cli.import_data import ImportCommand, import_data
from app.cli.index import activate, generations, index, reindex, rollback
from app.cli.installation import backup, doctor, restore, settings, tidy
from app.cli.jobs import jobs, worker
from app.cli.recipes import recipes
from app.cli.retrain import retrain
from app.cli.search import search
from app.cli.serve import serve
from app.cli.training import bundle, classify, evaluate, language_model, train
from app.cli.tune import tune
from app.radiology import commands as radiology
from training.common.host import keep_order_of_sums


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"recoquest {version('recoquest')}")
        raise typer.Exit


def _describe(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None:
    """Search images by what they show: train encoders, measure them, index images, serve the search."""


def build() -> typer.Typer:
    """The command with all its subcommands, by purpose and in the order of a first use."""
    recoquest = typer.Typer(
        name="recoquest", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
    )
    recoquest.callback()(_describe)
    purposes: dict[str, tuple[Callable[..., None] | typer.Typer, ...]] = {
        "First steps": (demo, sample_data, import_data),
        "Encoders": (recipes, train, tune, retrain, bundle, evaluate, classify, language_model, models),
        "Collections": (index, reindex, generations, activate, rollback, collections, aliases),
        "Images": (search, duplicates, feedback, delete, erase),
        "Service": (serve, worker, jobs, keys, audit, tidy, settings, doctor, backup, restore),
    }
    for purpose, commands in purposes.items():
        for command in commands:
            if isinstance(command, typer.Typer):
                recoquest.add_typer(command, rich_help_panel=purpose)
            else:
                # A function cannot be called `import`.
                name, kind = ("import", ImportCommand) if command is import_data else (None, None)
                recoquest.command(name, cls=kind, rich_help_panel=purpose)(command)
    radiology.register(recoquest)
    return recoquest


def run() -> None:
    """Run the command line and leave the process with its exit code; see `app.cli.errors`."""
    keep_order_of_sums()
    # The interpreter's end would search a million objects for garbage, which takes half a second.
    atexit.register(gc.freeze)
    ended(build())
