"""`recoquest viewer`: the viewer of studies that the service shows."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.options import Home

viewer = typer.Typer(name="viewer", no_args_is_help=True, help="The viewer of studies in the browser.")


@viewer.callback()
def _group() -> None:
    """Make Typer keep the name of the only command on the command line."""


@viewer.command("install")
def install(
    package: Annotated[
        Path | None,
        typer.Option("--package", help="The package as a file, where this machine has no network."),
    ] = None,
    home: Home = None,
) -> None:
    """Bring OHIF into the home folder: its package of the npm registry, by version and checksum."""
    from app.settings import load_settings
    from app.viewer.installation import PACKAGE, VERSION, install_viewer, viewer_folder

    settings = load_settings(home=home)
    if viewer_folder(settings.home).is_dir():
        typer.echo(f"OHIF {VERSION} is there already: {viewer_folder(settings.home)}")
        return
    typer.echo(f"Reading {package or PACKAGE} (50 MB)")
    folder = install_viewer(settings.home, package)
    typer.echo(f"OHIF {VERSION} is in {folder}. The service shows it at /reading, with RECOQUEST_DICOMWEB.")
