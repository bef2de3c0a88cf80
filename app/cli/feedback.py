"""`recoquest feedback`: what people say of hits, given, counted, exported and forgotten."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from app.cli.options import Home, indexed
from app.cli.output import console

Collection = Annotated[str, typer.Argument(help="Name of the collection.")]

feedback = typer.Typer(
    name="feedback", no_args_is_help=True, help="What people say of hits, to train on: add, count, export."
)


@feedback.command()
def add(
    collection: Collection,
    hit: Annotated[str, typer.Argument(help="Id of the image that was found.")],
    relevant: Annotated[
        bool, typer.Option("--relevant/--not-relevant", help="Whether it is what was searched for.")
    ],
    texts: Annotated[
        list[str] | None, typer.Option("--text", help="The text searched for; may come again.")
    ] = None,
    like: Annotated[
        list[str] | None, typer.Option("--like", help="A liked image, by its id; may come again.")
    ] = None,
    unlike: Annotated[
        list[str] | None, typer.Option("--unlike", help="A disliked image, by its id; may come again.")
    ] = None,
    home: Home = None,
) -> None:
    """Say whether an image is what was searched for; the last judgement of query and image stands."""
    from app.settings import load_settings
    from index.feedback import JudgedQuery, judge

    settings = load_settings(home=home)
    query = JudgedQuery(texts=tuple(texts or ()), images=tuple(like or ()), unlike_images=tuple(unlike or ()))
    with indexed(settings) as engine, engine.catalogue.write() as session:
        judge(session, collection, query, hit, relevant, most=settings.max_feedback)


@feedback.command("list")
def list_feedback(home: Home = None) -> None:
    """Count the judgements of each collection."""
    from app.settings import load_settings
    from index.feedback import count_feedback

    table = Table("Collection", "Relevant", "Not relevant", "Queries", "Latest")
    with indexed(load_settings(home=home)) as engine, engine.catalogue.read() as session:
        for name in engine.names():
            counts = count_feedback(session, name)
            latest = "" if counts.latest is None else counts.latest[:19].replace("T", " ")
            table.add_row(
                name, f"{counts.relevant:,}", f"{counts.not_relevant:,}", f"{counts.queries:,}", latest
            )
    table.caption = "Times are in UTC"
    console().print(table)


@feedback.command()
def export(
    collection: Collection,
    file: Annotated[Path, typer.Argument(help="The file to be written, one JSON object a line.")],
    home: Home = None,
) -> None:
    """Write the judgements of a collection into a file, the oldest first."""
    from app.settings import load_settings
    from index.feedback import judgements
    from training.atomic import atomic_file

    count = 0
    with (
        indexed(load_settings(home=home)) as engine,
        engine.catalogue.read() as session,
        atomic_file(file) as written,
    ):
        for judgement in judgements(session, collection):
            line = {**asdict(judgement), "query": judgement.query.as_json()}
            written.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            count += 1
    typer.echo(f"Wrote {count:,} judgements to {file}.")


@feedback.command()
def clear(collection: Collection, home: Home = None) -> None:
    """Forget all judgements of a collection; export them before to keep them."""
    from app.settings import load_settings
    from index.feedback import clear_feedback

    with indexed(load_settings(home=home)) as engine, engine.catalogue.write() as session:
        count = clear_feedback(session, collection)
    typer.echo(f"{collection}: {count:,} judgements are forgotten.")
