"""`recoquest delete`: the images that pass a filter out of a collection."""

import time
from typing import Annotated

import typer

from app.cli.options import Home, indexed, parse_filter_option


def delete(
    collection: Annotated[str, typer.Argument(help="Name of the collection.")],
    condition: Annotated[
        str, typer.Option("--filter", help='JSON, such as \'{"field": "view", "eq": "PA"}\'.')
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the images, and delete none.")] = False,
    expected: Annotated[
        int | None,
        typer.Option("--expected-count", min=0, help="Delete only if there are as many images."),
    ] = None,
    home: Home = None,
) -> None:
    """Delete the images that pass a filter, some at a time; searches and other writers go on."""
    from app.audit.trail import command_actor
    from app.cli.errors import stoppable
    from app.operations.writes.delete_matching import Deletion
    from app.settings import load_settings
    from index.catalogue import PAUSE_SECONDS
    from index.catalogue.lookup import parts

    parsed = parse_filter_option(condition)
    if not parsed:
        raise typer.BadParameter("an empty filter would delete every image.", param_hint="--filter")
    settings = load_settings(home=home)
    with indexed(settings) as engine:
        deletion = Deletion.begin(
            settings, engine.home, collection, parsed, command_actor(), operation="delete", expected=expected
        )
        matched = len(deletion.matching.keys)
        if dry_run:
            more = ", ..." if matched > len(deletion.ids) else ""
            which = f": {', '.join(deletion.ids)}{more}" if matched else ""
            typer.echo(f"{collection}: {matched:,} images pass the filter{which}. Nothing was deleted.")
            return

        def stopped() -> str:
            return f"Stopped. {deletion.deleted:,} images are deleted; the same command goes on."

        with stoppable(stopped):
            for keys in parts(deletion.matching.keys):
                deletion.delete(keys)
                time.sleep(PAUSE_SECONDS)
        typer.echo(f"{collection}: {deletion.deleted:,} of {matched:,} images are deleted.")
        left = deletion.remaining()
        if left:
            typer.echo(
                f"{left:,} images pass the filter now, changed or added meanwhile: run the command again.",
                err=True,
            )
