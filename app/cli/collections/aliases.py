"""`recoquest aliases`: other names of collections, listed, set, swapped and deleted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.table import Table

from app.cli.options import AsJson, Home, indexed
from app.edge.console import console

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from index.audit.event import Action, Detail
    from index.generations.names import Alias

_Before = TypeVar("_Before", bound="Alias | None")
Name = Annotated[str, typer.Argument(metavar="ALIAS", help="The alias.")]

aliases = typer.Typer(
    name="aliases", no_args_is_help=True, help="Other names of collections; see docs/writing.md."
)


@aliases.command("list")
def list_all(as_json: AsJson = False, home: Home = None) -> None:
    """List all aliases with their collections."""
    from app.settings import load_settings
    from index.generations.names import list_aliases

    with indexed(load_settings(home=home)) as engine, engine.home.catalogue.read() as session:
        found = list_aliases(session)
    if as_json:
        typer.echo(json.dumps({one.name: one.collection for one in found}, indent=2))
        return
    table = Table("Alias", "Collection")
    for one in found:
        table.add_row(one.name, one.collection)
    console().print(table)


@aliases.command("set")
def set_one(
    alias: Name,
    collection: Annotated[str, typer.Argument(help="The collection's own name.")],
    home: Home = None,
) -> None:
    """Point an alias at a collection, a new one or one that led elsewhere; services follow at once."""
    from index.generations.names import put_alias

    before = _change(
        home,
        "change",
        "aliases set",
        alias,
        collection,
        lambda session: put_alias(session, alias, collection),
    )
    led = "" if before is None or before.collection == collection else f", and no more to {before.collection}"
    typer.echo(f"{alias} leads to {collection}{led}.")


@aliases.command()
def swap(
    alias: Name,
    old: Annotated[str, typer.Argument(metavar="FROM", help="The collection that it must lead to now.")],
    new: Annotated[str, typer.Argument(metavar="TO", help="The collection that it is to lead to.")],
    home: Home = None,
) -> None:
    """Point an alias from one collection at another, unless somebody else has changed it."""
    from index.generations.names import swap_alias

    _change(home, "change", "aliases swap", alias, new, lambda session: swap_alias(session, alias, old, new))
    typer.echo(f"{alias} leads to {new}, and no more to {old}.")


@aliases.command()
def delete(alias: Name, home: Home = None) -> None:
    """Delete an alias; its collection stays."""
    from index.generations.names import remove_alias

    removed = _change(
        home, "delete", "aliases delete", alias, None, lambda session: remove_alias(session, alias)
    )
    typer.echo(f"{alias} is no alias any more; {removed.collection} stays.")


def _change(
    home: Path | None,
    action: "Action",
    command: str,
    alias: str,
    collection: str | None,
    change: "Callable[[Session], _Before]",
) -> _Before:
    """Change an alias and write the event, in one transaction; return the alias before."""
    from app.audit.trail import record_command
    from app.settings import load_settings

    settings = load_settings(home=home)
    with indexed(settings) as engine, engine.home.catalogue.write() as session:
        before = change(session)
        led_to = None if before is None else before.collection
        details: dict[str, Detail] = {} if collection is None else {"led_to": led_to}
        record_command(
            settings,
            engine.home.catalogue,
            action,
            command,
            session=session,
            collection=collection or led_to,
            alias=alias,
            further=details,
        )
    return before
