"""`recoquest doctor`: what is wrong with this installation, and what to do about it."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from app.cli.options import Device, EnvFile, Home

if TYPE_CHECKING:
    from app.doctor import Finding

_MARKS: Final = {"ok": "ok", "doubtful": "??", "wrong": "!!"}


def doctor(
    home: Home = None,
    device: Device = None,
    env_file: EnvFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Look at settings, machine, disk, jobs, images and encoders; ends with 1 if anything is wrong."""
    from app.doctor import examine
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
