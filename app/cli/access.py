"""`recoquest keys` and `audit`: who may do what, and the trail of what was done."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from app.cli.options import AsJson, Home, line_writer, opened, print_table, shown_time
from index.errors import CollectionNameError, UnknownCollectionError
from training.common.errors import RecoquestError

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from index.keys.api_keys import NewKey, Role

# As in `index.keys.api_keys`, whose import takes half a second.
_ROLES: Final = "reader, judge, curator, admin, auditor"

Name = Annotated[str, typer.Argument(help="Client or person that has the key.")]

keys = typer.Typer(name="keys", no_args_is_help=True, help="API keys of the service: who may do what.")


@keys.command()
def create(
    name: Name,
    role: Annotated[list[str], typer.Option(help=f"{_ROLES}; may be repeated.")],
    collection: Annotated[
        list[str] | None,
        typer.Option(help="Collection that the roles hold in; may be repeated; else in all."),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="Days until it expires.")] = 90,
    home: Home = None,
) -> None:
    """Make a key and print it; it is shown this once."""
    from index.catalogue.collections import check_name
    from index.keys.api_keys import EVERY_COLLECTION, create_key, role_of

    for each in role:
        if role_of(each) is None:
            raise typer.BadParameter(f"{each!r} is not one of {_ROLES}.", param_hint="--role")
    roles: frozenset[Role] = frozenset(filter(None, map(role_of, role)))
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
    with opened(create=True, home=home) as installation, installation.catalogue.write() as session:
        for each in named:
            _warn_of_name(session, each)
        made = create_key(session, name, grants, days=days)
        installation.record("create", "keys create", session=session, key=made.key.id, name=made.key.name)
    _print_key(made)


@keys.command("list")
def list_all(as_json: AsJson = False, home: Home = None) -> None:
    """List all keys; none is shown itself."""
    from index.keys.api_keys import list_keys, written_grants

    with opened(create=True, home=home) as installation, installation.catalogue.read() as session:
        keys = list_keys(session)
    if as_json:
        names = ("id", "name", "state", "grants", "created", "expires", "revoked", "used")
        shown = [
            {name: written_grants(key.grants) if name == "grants" else getattr(key, name) for name in names}
            for key in keys
        ]
        typer.echo(json.dumps(shown, indent=2))
        return
    rows = [
        (
            key.id,
            key.name,
            key.state,
            "; ".join(f"{', '.join(r)} in {c}" for c, r in written_grants(key.grants).items()),
            shown_time(key.created),
            shown_time(key.expires) or "never",
            key.used or "never",
        )
        for key in keys
    ]
    print_table("Key", "Name", "State", "Roles", "Made", "Expires", "Used", rows=rows, utc=True)


@keys.command()
def rotate(name: Name, home: Home = None) -> None:
    """Make the key that replaces one of the same name; both hold until the old one is revoked or expires."""
    from index.keys.api_keys import rotate_key

    with opened(create=True, home=home) as installation, installation.catalogue.write() as session:
        made = rotate_key(session, name)
        installation.record("create", "keys rotate", session=session, key=made.key.id, name=made.key.name)
    _print_key(made)


@keys.command()
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Identifier of the key; see keys list.")],
    home: Home = None,
) -> None:
    """Revoke a key; services refuse it within a second or two."""
    from index.keys.api_keys import revoke_key

    with opened(create=True, home=home) as installation, installation.catalogue.write() as session:
        revoked = revoke_key(session, key)
        installation.record("delete", "keys revoke", session=session, key=revoked.id, name=revoked.name)
    typer.echo(f"The key {revoked.id} of {revoked.name!r} is revoked.")


def _warn_of_name(session: "Session", name: str) -> None:
    """Say that roles in a name hold nowhere now."""
    from index.catalogue.collections import require_collection
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


def _print_key(made: "NewKey") -> None:
    """The key alone goes to standard output, for scripts to take it from there."""
    until = "" if made.key.expires is None else f" (valid until {shown_time(made.key.expires)} UTC)"
    typer.echo(f"Key {made.key.id} of {made.key.name!r}{until}, shown only this once:", err=True)
    typer.echo(made.text)


def _time(text: str) -> datetime:
    from app.audit.routes import read_time

    try:
        return read_time(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Collection = Annotated[str | None, typer.Option("--collection", help="Only events of this collection.")]
Since = Annotated[
    datetime | None,
    typer.Option("--since", parser=_time, metavar="TIME", help="Time of the first event; UTC."),
]
Until = Annotated[
    datetime | None,
    typer.Option("--until", parser=_time, metavar="TIME", help="Time before which events are; UTC."),
]

audit = typer.Typer(name="audit", no_args_is_help=True, help="The audit trail: verify, export, prune.")


@audit.command()
def verify(
    head: Annotated[
        str | None, typer.Option(help="Hash of an earlier end, which the trail must hold.")
    ] = None,
    home: Home = None,
) -> None:
    """Compare every event with its hash; print the hash of the last one, to be noted elsewhere."""
    from app.audit.trail import open_trail
    from index.audit.dead_letters import count_dead_letters, dead_letters_of
    from index.audit.verify import verify_trail

    with opened(home=home) as installation:
        settings = installation.settings
        trail = open_trail(settings, installation.catalogue)
        with installation.catalogue.read() as session:
            verified = verify_trail(session, key=trail.key, head=head)
    if verified.fault is not None:
        raise RecoquestError(f"The audit trail fails its verification. {verified.fault}")
    pruned = f" ({verified.pruned:,} before them were pruned)" if verified.pruned else ""
    typer.echo(f"{verified.events:,} events are as they were written{pruned}.")
    typer.echo(f"Head: {verified.hash}")
    if letters := count_dead_letters(settings.home):
        typer.echo(
            f"{letters:,} events could not be written to the trail: they are in "
            f"{dead_letters_of(settings.home)}.",
            err=True,
        )


@audit.command()
def export(
    file: Annotated[Path, typer.Argument(help="The file to be written; - for standard output.")],
    form: Annotated[
        Literal["ndjson", "fhir"],
        typer.Option("--format", help="One JSON object a line: events, or FHIR R4 AuditEvent resources."),
    ] = "ndjson",
    since: Since = None,
    until: Until = None,
    collection: Collection = None,
    home: Home = None,
) -> None:
    """Write events into a file, one a line, the oldest first."""
    from app.audit.routes import time_stamp
    from index.audit.listing import Selection, all_events, audit_event

    if str(file) != "-" and not file.parent.is_dir():
        raise typer.BadParameter(
            f"the folder {file.parent} is not there: create it first.", param_hint="FILE"
        )
    count, selection = 0, Selection(time_stamp(since), time_stamp(until), collection)
    with opened(home=home) as installation:
        with installation.catalogue.read() as session, line_writer(file) as write:
            for entry in all_events(session, selection):
                if form == "fhir":
                    write(json.dumps(audit_event(entry, "recoquest"), ensure_ascii=False))
                else:
                    write(entry.line())
                count += 1
        installation.record("audit", "audit export", collection=collection, format=form, count=count)
    typer.echo(f"Wrote {count:,} events to {file}.", err=True)


@audit.command()
def prune(
    before: Annotated[
        datetime, typer.Option(parser=_time, metavar="TIME", help="Time from which on events stay; UTC.")
    ],
    home: Home = None,
) -> None:
    """Remove the events before a time; an event says so, with the hash that the trail continues from."""
    from app.audit.routes import time_stamp
    from app.audit.trail import command_actor, open_trail
    from index.audit.event import Event
    from index.audit.verify import prune_trail

    time, today = time_stamp(before), datetime.now(UTC).date().isoformat()
    assert time is not None
    if time >= today:
        raise typer.BadParameter(
            f"{time[:10]} is not over: name a day before today, {today} (UTC).", param_hint="--before"
        )
    with opened(home=home) as installation:
        trail = open_trail(installation.settings, installation.catalogue)
        pruned = prune_trail(trail, time, Event(action="prune", actor=command_actor()))
    typer.echo(f"Removed {pruned.events:,} events; the trail continues from {pruned.hash}.")
