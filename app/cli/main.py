"""The `recoquest` command and its subcommands."""

import atexit
import gc
from importlib.metadata import version
from typing import Annotated

import typer

from app.cli.access import audit, keys
from app.cli.collections import aliases, collections, delete, duplicates, erase, models
from app.cli.demo import demo, sample_data
from app.cli.errors import ended
from app.cli.feedback import feedback
from app.cli.import_data import import_data
from app.cli.index import activate, generations, index, reindex, rollback
from app.cli.installation import backup, doctor, restore, settings, tidy
from app.cli.jobs import jobs, worker
from app.cli.radiology import findings, hl7, pacs, reports, viewer
from app.cli.retrain import retrain
from app.cli.search import search
from app.cli.serve import serve
from app.cli.training import bundle, classify, evaluate, language_model, recipes, train
from training.common.host import keep_order_of_sums


def _print_version(wanted: bool) -> None:
    if wanted:
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
    """The command with all its subcommands, in the order of a first use."""
    recoquest = typer.Typer(
        name="recoquest", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
    )
    recoquest.callback()(_describe)
    recoquest.command()(demo)
    recoquest.command("sample-data")(sample_data)
    recoquest.command("import")(import_data)
    recoquest.command()(recipes)
    recoquest.command()(train)
    recoquest.command()(bundle)
    recoquest.command()(evaluate)
    recoquest.command()(classify)
    recoquest.command("language-model")(language_model)
    recoquest.command()(index)
    recoquest.command()(reindex)
    recoquest.add_typer(pacs)
    recoquest.command()(retrain)
    recoquest.add_typer(models)
    recoquest.command()(generations)
    recoquest.command()(activate)
    recoquest.command()(rollback)
    recoquest.command()(collections)
    recoquest.add_typer(aliases)
    recoquest.command()(search)
    recoquest.command()(findings)
    recoquest.command()(reports)
    recoquest.command()(duplicates)
    recoquest.add_typer(feedback)
    recoquest.command()(delete)
    recoquest.command()(erase)
    recoquest.command()(serve)
    recoquest.command()(hl7)
    recoquest.command()(worker)
    recoquest.add_typer(jobs)
    recoquest.add_typer(keys)
    recoquest.add_typer(viewer)
    recoquest.command()(tidy)
    recoquest.command()(settings)
    recoquest.command()(doctor)
    recoquest.add_typer(audit)
    recoquest.command()(backup)
    recoquest.command()(restore)
    return recoquest


def run() -> None:
    """Run the command line and leave the process with its exit code; see `app.cli.errors`."""
    keep_order_of_sums()
    # The interpreter's end would search a million objects for garbage, which takes half a second.
    atexit.register(gc.freeze)
    ended(build())
