"""`recoquest audit`: the trail verified, exported and pruned."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import typer

from app.cli.options import Home, indexed
from training.common.errors import RecoquestError


def _time(text: str) -> datetime:
    from app.audit.schemas import read_time

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

audit = typer.Typer(
    name="audit", no_args_is_help=True, help="The audit trail: verify, export, prune; see docs/audit.md."
)


class AuditFaultError(RecoquestError):
    """The audit trail fails its verification."""


@audit.command()
def verify(
    head: Annotated[
        str | None, typer.Option("--head", help="Hash of an earlier end, which the trail must hold.")
    ] = None,
    home: Home = None,
) -> None:
    """Compare every event with its hash; print the hash of the last one, to be noted elsewhere."""
    from app.audit.trail import open_trail
    from app.settings import load_settings
    from index.audit.dead_letters import count_dead_letters, dead_letters_of
    from index.audit.verify import verify_trail

    settings = load_settings(home=home)
    with indexed(settings) as engine:
        trail = open_trail(settings, engine.home.catalogue)
        with engine.home.catalogue.read() as session:
            found = verify_trail(session, key=trail.key, head=head)
    if found.fault is not None:
        raise AuditFaultError(f"The audit trail fails its verification. {found.fault}")
    pruned = f" ({found.pruned:,} before them were pruned)" if found.pruned else ""
    typer.echo(f"{found.events:,} events are as they were written{pruned}.")
    typer.echo(f"Head: {found.hash}")
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
    from app.audit.schemas import time_stamp
    from app.audit.trail import record_command
    from app.settings import load_settings
    from index.audit.listing import Selection, all_events, audit_event
    from training.common.atomic import atomic_file

    if str(file) != "-" and not file.parent.is_dir():
        raise typer.BadParameter(
            f"the folder {file.parent} is not there: create it first.", param_hint="FILE"
        )
    settings, count = load_settings(home=home), 0
    selection = Selection(time_stamp(since), time_stamp(until), collection)
    with indexed(settings) as engine:
        catalogue = engine.home.catalogue
        with catalogue.read() as session:
            lines = (
                json.dumps(audit_event(entry, "recoquest"), ensure_ascii=False)
                if form == "fhir"
                else entry.line()
                for entry in all_events(session, selection)
            )
            if str(file) == "-":
                for line in lines:
                    sys.stdout.write(line + "\n")
                    count += 1
            else:
                with atomic_file(file) as written:
                    for line in lines:
                        written.write(line.encode() + b"\n")
                        count += 1
        record_command(
            settings, catalogue, "audit", "audit export", collection=collection, format=form, count=count
        )
    typer.echo(f"Wrote {count:,} events to {file}.", err=True)


@audit.command()
def prune(
    before: Annotated[
        datetime,
        typer.Option("--before", parser=_time, metavar="TIME", help="Time from which on events stay; UTC."),
    ],
    home: Home = None,
) -> None:
    """Remove the events before a time; an event says so, with the hash that the trail goes on from."""
    from app.audit.schemas import time_stamp
    from app.audit.trail import command_actor, open_trail
    from app.settings import load_settings
    from index.audit.event import Event
    from index.audit.verify import prune_trail

    time, today = time_stamp(before), datetime.now(UTC).date().isoformat()
    assert time is not None
    if time >= today:
        raise typer.BadParameter(
            f"{time[:10]} is not over: name a day before today, {today} (UTC).", param_hint="--before"
        )
    settings = load_settings(home=home)
    with indexed(settings) as engine:
        trail = open_trail(settings, engine.home.catalogue)
        pruned = prune_trail(trail, time, Event(action="prune", actor=command_actor()))
    typer.echo(f"Removed {pruned.events:,} events; the trail goes on from {pruned.hash}.")
