"""`recoquest jobs` and `worker`: give work to the workers, do it, and see what becomes of it."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from app.cli.index import activate
from app.cli.options import AsJson, Device, EnvFile, Home, print_table, shown_time
from app.jobs.kinds import KINDS, command_of
from index.errors import JobStateError

if TYPE_CHECKING:
    from app.settings import Settings
    from index.catalogue import Catalogue
    from index.catalogue.jobs import Job

_LOOK_SECONDS = 0.5

State = Literal["queued", "running", "done", "failed", "cancelled"]
Number = Annotated[int, typer.Argument(min=1, help="Number of the job.")]

jobs = typer.Typer(
    name="jobs", no_args_is_help=True, help="Give work to the workers, and see what becomes of it."
)


@jobs.command(context_settings={"allow_interspersed_args": False})
def start(
    context: typer.Context,
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"A command: {', '.join(KINDS)}.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENTS", help="Arguments of that command; see --help.")
    ] = None,
    home: Home = None,
) -> None:
    """Have a worker run a command: `recoquest jobs start train RECIPE --data FOLDER`."""
    from app.jobs.queue import give_job

    words = arguments or []
    _check(context.find_root(), kind, words)
    with _opened(home) as (_, catalogue):
        job = give_job(catalogue, kind, words, folder=str(Path.cwd()))
    typer.echo(f"{job.id}")
    typer.echo(f"To see it: recoquest jobs watch {job.id}", err=True)


@jobs.command("list")
def list_all(
    state: Annotated[State | None, typer.Option(help="Only those in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most that are shown.")] = 50,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """List the jobs, the latest first."""
    from index.catalogue.jobs import list_jobs

    with _opened(home) as (_, catalogue), catalogue.read() as session:
        jobs = list_jobs(session, state=state, limit=limit)
    if as_json:
        typer.echo(json.dumps([asdict(job) for job in jobs], indent=2))
        return
    rows = [
        (
            str(job.id),
            job.kind,
            _state(job),
            _progress(job),
            *map(shown_time, (job.created, job.started, job.ended)),
        )
        for job in jobs
    ]
    print_table("Job", "Kind", "State", "Progress", "Given", "Begun", "Ended", rows=rows, utc=True)


@jobs.command()
def show(job: Number, as_json: AsJson = False, home: Home = None) -> None:
    """Show all details of a job."""
    from app.jobs.folder import JobFolder

    with _opened(home) as (settings, catalogue):
        details = _get(catalogue, job)
    folder = JobFolder.for_job(settings, job).path
    if as_json:
        typer.echo(json.dumps({**asdict(details), "files": str(folder)}, indent=2))
        return
    begun = (
        details.started and f"{shown_time(details.started)}, attempt {details.attempts} by {details.worker}"
    )
    for name, value in (
        ("Command", " ".join(("recoquest", *command_of(details.kind), *details.arguments))),
        ("In", details.folder),
        ("State", _state(details)),
        ("Progress", _progress(details)),
        ("Submitted", shown_time(details.created)),
        ("Started", begun),
        ("Ended", shown_time(details.ended)),
        ("Result", details.result and json.dumps(details.result)),
        ("Error", details.error),
        ("Files", str(folder)),
    ):
        if value:
            typer.echo(f"{name + ':':10}{value}")


@jobs.command()
def watch(job: Number, home: Home = None) -> None:
    """Follow a job until it ends; exits with 1 if it failed or was cancelled."""
    printed = None
    with _opened(home) as (_, catalogue):
        while True:
            current = _get(catalogue, job)
            line = " ".join(part for part in (_state(current), _progress(current)) if part)
            if line != printed:
                typer.echo(line)
                printed = line
            if current.has_ended:
                break
            time.sleep(_LOOK_SECONDS)
    if current.error is not None:
        typer.echo(current.error, err=True)
    if current.state != "done":
        raise typer.Exit(1)


@jobs.command()
def log(job: Number, home: Home = None) -> None:
    """Print what a job has printed so far."""
    from app.jobs.folder import JobFolder

    with _opened(home) as (settings, catalogue):
        details = _get(catalogue, job)
    try:
        sys.stdout.write(JobFolder.for_job(settings, job).log.read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        missing = "It is not kept any more." if details.has_ended else "It has not begun yet."
        typer.echo(missing, err=True)


@jobs.command()
def cancel(job: Number, home: Home = None) -> None:
    """Cancel a job; one that is running is stopped, and what it has written stays."""
    from index.catalogue.jobs import cancel_job

    with _opened(home) as (_, catalogue), catalogue.write() as session:
        cancelled = cancel_job(session, job)
    typer.echo(f"Job {job} is {_state(cancelled)}.")


@jobs.command()
def promote(job: Number, home: Home = None, device: Device = None) -> None:
    """Search with the model of a retraining that waits for a person."""
    with _opened(home) as (_, catalogue):
        details = _get(catalogue, job)
    result = details.result or {}
    if details.kind != "retrain" or result.get("generation") is None:
        raise JobStateError(f"Job {job} has no model to promote: see `recoquest jobs show {job}`.")
    activate(result["collection"], result["generation"], home, device)


def worker(
    at_once: Annotated[int, typer.Option(min=1, help="Jobs done at the same time.")] = 1,
    home: Home = None,
    device: Device = None,
    env_file: EnvFile = None,
) -> None:
    """Do jobs as they come (see `recoquest jobs`); Ctrl-C leaves what was begun to the next worker."""
    from app.edge.logging import configure_logging
    from app.edge.server import allow_descriptors, require_limits
    from app.jobs.worker import Worker
    from app.settings import load_settings

    require_limits()
    settings = load_settings(env_file, home=home, device=device)
    configure_logging(settings.log_level)
    allow_descriptors(0)
    working = Worker(settings)
    typer.echo(f"Working on the jobs of {settings.home}.", err=True)
    working.work(at_once)


def _check(root: Any, kind: str, arguments: list[str]) -> None:
    """Make sure that the command would take the arguments; its --help is shown."""
    if kind not in KINDS:
        raise typer.BadParameter(f"{kind!r} is not one of {', '.join(KINDS)}.", param_hint="KIND")
    for option in ("--home", "--out", "--resume", "--json"):
        if any(argument == option or argument.startswith(f"{option}=") for argument in arguments):
            raise typer.BadParameter(f"{option} is set by the worker: leave it out.")
    command, words = root.command, command_of(kind)
    for word in words:
        assert isinstance(command, TyperGroup)
        command = command.commands[word]
    command.make_context(f"recoquest {' '.join(words)}", [*KINDS[kind].placed(Path()), *arguments])


@contextmanager
def _opened(home: Path | None) -> "Iterator[tuple[Settings, Catalogue]]":
    from app.settings import load_settings
    from index.catalogue import open_catalogue

    settings = load_settings(home=home)
    with closing(open_catalogue(settings.catalogue_url)) as catalogue:
        yield settings, catalogue


def _get(catalogue: "Catalogue", job: int) -> "Job":
    from index.catalogue.jobs import get_job

    with catalogue.read() as session:
        return get_job(session, job)


def _state(job: "Job") -> str:
    return "being cancelled" if job.cancelling and not job.has_ended else job.state


def _progress(job: "Job") -> str:
    if job.progress is None:
        return ""
    done, total = job.progress["done"], job.progress["total"]
    of_total = "" if total is None else f" of {total:,}"
    return f"{job.progress['what']}: {done:,}{of_total} {job.progress['note']}".strip()
