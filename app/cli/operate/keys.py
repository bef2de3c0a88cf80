"""`recoquest keys`: API keys of the service, made, listed, rotated, revoked."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from app.cli.options import AsJson, Home
from app.edge.observability.console import console
from index.keys.api_keys import EVERY_COLLECTION, ROLES, Role, role_of, written_grants

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from app.settings import Settings
    from index.audit.event import Action
    from index.catalogue import Catalogue
    from index.keys.api_keys import ApiKey, NewKey

_ROLES = ", ".join(ROLES)

Name = Annotated[str, typer.Argument(help="Client or person that has the key.")]

keys = typer.Typer(name="keys", no_args_is_help=True, help="API keys of the service: who may do what.")


@keys.command()
def create(
    name: Name,
    role: Annotated[list[str], typer.Option("--role", help=f"{_ROLES}; may be repeated.")],
    collection: Annotated[
        list[str] | None,
        typer.Option("--collection", help="Collection that the roles hold in; may be repeated; else in all."),
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="Days until it expires.")] = 90,
    home: Home = None,
) -> None:
    """Make a key and print it; it is shown this once."""
    from index.catalogue.collections import check_name
    from index.errors import CollectionNameError
    from index.keys.api_keys import create_key

    roles = frozenset(_role(each) for each in role)
    if "auditor" in roles and collection and EVERY_COLLECTION not in collection:
        raise typer.BadParameter(
            "The audit trail belongs to no collection: give an auditor a key without --collection.",
            param_hint="--collection",
        )
    grants = dict.fromkeys(collection or [EVERY_COLLECTION], roles)
    named = [each for each in grants if each != EVERY_COLLECTION]
    for each in named:
        try:
            check_name(each)
        except CollectionNameError as error:
            raise typer.BadParameter(str(error), param_hint="--collection") from None
    with _opened(home) as (settings, catalogue), catalogue.write() as session:
        for each in named:
            _warn(session, each)
        made = create_key(session, name, grants, days=days)
        _record(settings, catalogue, session, "create", "keys create", made.key)
    _print(made)


@keys.command("list")
def list_all(as_json: AsJson = False, home: Home = None) -> None:
    """List all keys; none is shown itself."""
    from index.keys.api_keys import list_keys

    with _opened(home) as (_, catalogue), catalogue.read() as session:
        found = list_keys(session)
    if as_json:
        typer.echo(json.dumps([_entry(key) for key in found], indent=2))
        return
    table = Table("Key", "Name", "State", "Roles", "Made", "Expires", "Used", caption="Times are in UTC")
    for key in found:
        roles = "; ".join(f"{', '.join(r)} in {c}" for c, r in written_grants(key.grants).items())
        expires = "never" if key.expires is None else _time(key.expires)
        table.add_row(key.id, key.name, key.state, roles, _time(key.created), expires, key.used or "never")
    console().print(table)


@keys.command()
def rotate(name: Name, home: Home = None) -> None:
    """Make the key that replaces one of the same name; both hold until the old one is revoked or expires."""
    from index.keys.api_keys import rotate_key

    with _opened(home) as (settings, catalogue), catalogue.write() as session:
        made = rotate_key(session, name)
        _record(settings, catalogue, session, "create", "keys rotate", made.key)
    _print(made)


@keys.command()
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Identifier of the key; see keys list.")],
    home: Home = None,
) -> None:
    """Revoke a key; services refuse it within a second or two."""
    from index.keys.api_keys import revoke_key

    with _opened(home) as (settings, catalogue), catalogue.write() as session:
        found = revoke_key(session, key)
        _record(settings, catalogue, session, "delete", "keys revoke", found)
    typer.echo(f"The key {found.id} of {found.name!r} is revoked.")


def _warn(session: "Session", name: str) -> None:
    """Say that roles in a name hold nowhere now."""
    from index.catalogue.collections import require_collection
    from index.errors import UnknownCollectionError
    from index.generations.names import find_alias

    alias = find_alias(session, name)
    if alias is not None:
        typer.echo(
            f"{name!r} is an alias of {alias.collection!r}, and roles hold by a collection's own name: the "
            f"key gives no right in it. Make one with --collection {alias.collection}.",
            err=True,
        )
        return
    try:
        require_collection(session, name)
    except UnknownCollectionError as error:
        typer.echo(f"{error} The key holds there once it is made.", err=True)


def _record(
    settings: "Settings",
    catalogue: "Catalogue",
    session: "Session",
    action: "Action",
    command: str,
    key: "ApiKey",
) -> None:
    from app.audit.trail import record_command

    record_command(settings, catalogue, action, command, session=session, key=key.id, name=key.name)


def _role(name: str) -> Role:
    found = role_of(name)
    if found is None:
        raise typer.BadParameter(f"{name!r} is not one of {_ROLES}.", param_hint="--role")
    return found


def _print(made: "NewKey") -> None:
    """The key alone goes to standard output, for scripts to take it from there."""
    until = "" if made.key.expires is None else f", holds until {_time(made.key.expires)} UTC"
    typer.echo(f"The key {made.key.id} of {made.key.name!r}{until}. It is shown this once:", err=True)
    typer.echo(made.text)


def _entry(key: "ApiKey") -> dict[str, object]:
    return {
        "id": key.id,
        "name": key.name,
        "state": key.state,
        "grants": written_grants(key.grants),
        "created": key.created,
        "expires": key.expires,
        "revoked": key.revoked,
        "used": key.used,
    }


def _time(stamp: str) -> str:
    return stamp[:16].replace("T", " ")


@contextmanager
def _opened(home: Path | None) -> "Iterator[tuple[Settings, Catalogue]]":
    from app.engine import open_engine
    from app.settings import load_settings

    # Also before the first start of a service, and never in the catalogue of another home.
    settings = load_settings(home=home)
    with closing(open_engine(settings)) as engine:
        yield settings, engine.home.catalogue
