"""The `recoquest` command and its subcommands."""

from importlib.metadata import version
from typing import Annotated

import typer

from app.cli.backup import backup, restore
from app.cli.classify import classify
from app.cli.demo import demo
from app.cli.doctor import doctor
from app.cli.duplicates import duplicates
from app.cli.endings import ended
from app.cli.evaluate import evaluate
from app.cli.feedback import feedback
from app.cli.generations import activate, generations, rollback
from app.cli.import_ import import_data
from app.cli.index import index
from app.cli.jobs import jobs
from app.cli.language_model import language_model
from app.cli.lists import collections, recipes
from app.cli.models import models
from app.cli.reindex import reindex
from app.cli.retrain import retrain
from app.cli.sample_data import sample_data
from app.cli.search import search
from app.cli.serve import serve
from app.cli.settings import settings
from app.cli.tidy import tidy
from app.cli.train import train
from app.cli.worker import worker
from training.host import keep_order_of_sums


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
    recoquest.command()(evaluate)
    recoquest.command()(classify)
    recoquest.command("language-model")(language_model)
    recoquest.command()(index)
    recoquest.command()(reindex)
    recoquest.command()(retrain)
    recoquest.add_typer(models)
    recoquest.command()(generations)
    recoquest.command()(activate)
    recoquest.command()(rollback)
    recoquest.command()(collections)
    recoquest.command()(search)
    recoquest.command()(duplicates)
    recoquest.add_typer(feedback)
    recoquest.command()(serve)
    recoquest.command()(worker)
    recoquest.add_typer(jobs)
    recoquest.command()(tidy)
    recoquest.command()(settings)
    recoquest.command()(doctor)
    recoquest.command()(backup)
    recoquest.command()(restore)
    return recoquest


def run() -> None:
    """Run the command line and leave the process with its exit code; see `app.cli.endings`."""
    keep_order_of_sums()
    ended(build())
