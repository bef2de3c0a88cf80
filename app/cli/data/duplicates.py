"""`recoquest duplicates`: the near-duplicates of a collection."""

import json
from pathlib import Path
from typing import Annotated

import typer

from app.cli.errors import stoppable
from app.cli.options import Home, indexed
from app.edge.observability.console import console


def duplicates(
    collection: Annotated[str, typer.Argument(help="A collection; see `recoquest collections`.")],
    json_wanted: Annotated[bool, typer.Option("--json", help="Print the groups as JSON.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the groups as JSON into this folder instead.")
    ] = None,
    home: Home = None,
) -> None:
    """List images that show the same picture, in files that may differ by size, tone or a cropped edge."""
    from rich.table import Table

    from app.collections.duplicates import as_json, write_groups
    from app.settings import load_settings
    from index.duplicates import find_duplicates

    with indexed(load_settings(home=home)) as engine, stoppable("Stopped. Nothing was changed."):
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        found = find_duplicates(engine.home, collection)
    if out is not None:
        write_groups(found, out)
        typer.echo(f"Groups of near-duplicates: {len(found.groups):,}, in {out / 'groups.json'}.")
    elif json_wanted:
        typer.echo(json.dumps(as_json(found), indent=2, ensure_ascii=False))
        return
    elif found.groups:
        table = Table("Images", "Files")
        for group in found.groups:
            table.add_row(", ".join(group.ids), "the same" if group.same_file else "different")
        console().print(table)
    else:
        typer.echo("There are no near-duplicates.")
    if found.unread:
        typer.echo(f"The files of these could not be read: {', '.join(found.unread)}.", err=True)
