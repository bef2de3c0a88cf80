"""`recoquest settings`, `doctor`, `tidy` and `viewer`: check an installation and look after it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from app.cli.options import AsJson, Device, EnvFile, Home, indexed

if TYPE_CHECKING:
    from app.health.doctor import Finding

_MARKS: Final = {"ok": "ok", "doubtful": "??", "wrong": "!!"}

viewer = typer.Typer(name="viewer", no_args_is_help=True, help="The viewer of studies in the browser.")
# Typer keeps the name of the only command on the command line.
viewer.callback()(lambda: None)


def settings(
    env_file: EnvFile = None,
    as_json: AsJson = False,
) -> None:
    """Print every setting as it holds here, without passwords and keys."""
    from app.setting_values import as_text
    from app.settings import PREFIX, load_settings

    found = load_settings(env_file)
    shown = found.printable()
    if as_json:
        typer.echo(json.dumps(shown, indent=2))
        return
    for name, value in shown.items():
        mark = "" if name in found.model_fields_set else "  # default"
        typer.echo(f"{PREFIX}{name.upper()}={'' if value is None else as_text(value)}{mark}")


def doctor(
    home: Home = None,
    device: Device = None,
    env_file: EnvFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Look at settings, machine, disk, jobs, images and encoders; ends with 1 if anything is wrong."""
    from app.health.doctor import examine
    from app.settings import load_settings

    found: list[Finding] = []
    for finding in examine(load_settings(env_file, home=home, device=device)):
        found.append(finding)
        if not as_json:
            typer.echo(f"{_MARKS[finding.state]} {finding.subject}: {finding.found}")
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in found], indent=2))
    if any(finding.state == "wrong" for finding in found):
        raise typer.Exit(1)


def tidy(home: Home = None) -> None:
    """Remove old generations, reports, folders of jobs, and files that are unused or unfinished."""
    from app.generations.lifecycle.build_generation import name_kept
    from app.jobs.housekeeping import drop_superseded_generations, remove_old_folders
    from app.radiology.reports.intake import ReportIntake
    from app.settings import load_settings
    from index.files.stale import UNTOUCHED_SECONDS, remove_stale, unfinished
    from index.generations.activation import drop_old_generations
    from index.writes.garbage import collect_garbage

    settings = load_settings(home=home)
    with indexed(settings) as engine:
        for collection in engine.names():
            dropped = drop_old_generations(engine.home, collection, settings.keep_generations)
            if dropped:
                typer.echo(f"{collection}: dropped generation {', '.join(map(str, dropped))}.")
            name_kept(engine, collection, settings.keep_generations)
            late = ReportIntake(engine, settings, collection, "tidy").drop_late()
            if late:
                typer.echo(f"{collection}: forgot {late:,} reports that waited for their images.")
        for collection, number in drop_superseded_generations(settings, engine.home):
            typer.echo(f"{collection}: dropped generation {number}, which was never activated.")
        folders = remove_old_folders(settings, engine.home.catalogue)
        if folders:
            typer.echo(f"Removed what was written by job {', '.join(map(str, folders))}.")
        collect_garbage(engine.home)
        left = remove_stale(unfinished(settings.home), UNTOUCHED_SECONDS)
        if left:
            typer.echo(f"Removed {left:,} unfinished files of processes that were killed.")
    typer.echo("Garbage is removed.")


@viewer.command("install")
def install(
    package: Annotated[
        Path | None,
        typer.Option("--package", help="The package as a file, where this machine has no network."),
    ] = None,
    home: Home = None,
) -> None:
    """Bring OHIF into the home folder: its package of the npm registry, by version and checksum."""
    from app.radiology.viewer.installation import PACKAGE, VERSION, install_viewer, viewer_folder
    from app.settings import load_settings

    settings = load_settings(home=home)
    if viewer_folder(settings.home).is_dir():
        typer.echo(f"OHIF {VERSION} is there already: {viewer_folder(settings.home)}")
        return
    typer.echo(f"Reading {package or PACKAGE} (50 MB)")
    folder = install_viewer(settings.home, package)
    typer.echo(f"OHIF {VERSION} is in {folder}. The service shows it at /reading, with RECOQUEST_DICOMWEB.")
