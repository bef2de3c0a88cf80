"""`recoquest settings`: what the environment and the settings file come to."""

import json
from typing import Annotated

import typer

from app.cli.options import EnvFile


def settings(
    env_file: EnvFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
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
