"""`recoquest duplicates`: the near-duplicates of a collection."""

import json
from typing import Annotated

import typer

from app.cli.endings import stoppable
from app.cli.options import Home, indexed
from app.cli.output import console


def duplicates(
    collection: Annotated[str, typer.Argument(help="Where to look; see `recoquest collections`.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the groups as JSON.")] = False,
    home: Home = None,
) -> None:
    """List images that show the same picture, in files that may differ by size, tone or a cropped edge."""
    from rich.table import Table

    from app.settings import load_settings
    from index.duplicates import find_duplicates

    with indexed(load_settings(home=home)) as engine, stoppable("Stopped. Nothing was changed."):
        found = find_duplicates(engine, collection)
    if as_json:
        groups = [{"ids": list(group.ids), "same_file": group.same_file} for group in found.groups]
        typer.echo(json.dumps({"groups": groups, "unread": list(found.unread)}, indent=2, ensure_ascii=False))
        return
    if found.groups:
        table = Table("Images", "Files")
        for group in found.groups:
            table.add_row(", ".join(group.ids), "the same" if group.same_file else "different")
        console().print(table)
    else:
        typer.echo("There are no near-duplicates.")
    if found.unread:
        typer.echo(f"The files of these could not be read: {', '.join(found.unread)}.", err=True)
