"""`recoquest feedback`: what people say of hits, given, taken back, counted, exported and forgotten."""

import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from app.cli.options import Home, indexed
from app.edge.observability.console import console

if TYPE_CHECKING:
    from index.feedback import JudgedQuery

Collection = Annotated[str, typer.Argument(help="Name of the collection.")]
Hit = Annotated[str, typer.Argument(help="Id of the image that was found.")]
Texts = Annotated[list[str] | None, typer.Option("--text", help="Query text; repeatable.")]
Like = Annotated[list[str] | None, typer.Option("--like", help="Id of a positive example; repeatable.")]
Unlike = Annotated[list[str] | None, typer.Option("--unlike", help="Id of a negative example; repeatable.")]

feedback = typer.Typer(
    name="feedback",
    no_args_is_help=True,
    help="Relevance judgements of hits, to train on: add, remove, count, export.",
)


@feedback.command()
def add(
    collection: Collection,
    hit: Hit,
    relevant: Annotated[bool, typer.Option("--relevant/--not-relevant", help="Whether the hit is relevant.")],
    texts: Texts = None,
    like: Like = None,
    unlike: Unlike = None,
    missed: Annotated[bool, typer.Option("--missed", help="The image was not among the hits.")] = False,
    home: Home = None,
) -> None:
    """Say whether an image is what was searched for; the last judgement of query and image stands."""
    _judge(collection, hit, relevant, _judged(texts or [], like or [], unlike or []), home, missed=missed)
    typer.echo(f"{collection}: {hit} is kept as {'relevant' if relevant else 'not relevant'}.")


@feedback.command()
def remove(
    collection: Collection,
    hit: Hit,
    texts: Texts = None,
    like: Like = None,
    unlike: Unlike = None,
    home: Home = None,
) -> None:
    """Take back what was said of an image for a query; given again, it changes nothing."""
    if _judge(collection, hit, None, _judged(texts or [], like or [], unlike or []), home):
        typer.echo(f"{collection}: what was said of {hit} for this query is taken back.")
    else:
        typer.echo(f"{collection}: nothing was said of {hit} for this query.")


def _judge(
    collection: str,
    hit: str,
    relevant: bool | None,
    query: "JudgedQuery",
    home: Path | None,
    *,
    missed: bool = False,
) -> bool:
    """Write it down, and return whether something had been said of the two before."""
    from app.audit.trail import command_actor, record_command
    from app.settings import load_settings
    from index.feedback import User, record_judgement

    settings, actor = load_settings(home=home), command_actor()
    with indexed(settings) as engine:
        with engine.home.catalogue.write() as session:
            known = record_judgement(
                session,
                collection,
                query,
                hit,
                relevant,
                limit=settings.max_feedback,
                user=User(actor.id, actor.name),
                missed=missed,
            )
        record_command(
            settings,
            engine.home.catalogue,
            "judge",
            "feedback",
            collection=collection,
            objects=[hit],
            query={
                "text": query.texts,
                "like": query.images,
                "unlike_text": query.unlike_texts,
                "unlike": query.unlike_images,
            },
            relevant=relevant,
            missed=missed,
        )
    return known


def _judged(texts: Sequence[str], like: Sequence[str], unlike: Sequence[str]) -> "JudgedQuery":
    """Make the query by the rules of the service."""
    from pydantic import ValidationError

    from app.edge.http.field_errors import sentence
    from app.feedback.schemas import SearchedQuery

    liked = [{"text": text} for text in texts] + [{"id": name} for name in like]
    try:
        query = SearchedQuery.model_validate({"like": liked, "unlike": [{"id": name} for name in unlike]})
    except ValidationError as error:
        raise typer.BadParameter(f"this query cannot be judged: {sentence(error.errors()[0])}") from None
    return query.judged()


@feedback.command("list")
def list_feedback(home: Home = None) -> None:
    """Count the judgements of each collection."""
    from app.settings import load_settings
    from index.feedback import count_feedback

    table = Table("Collection", "Relevant", "Not relevant", "Queries", "Latest")
    with indexed(load_settings(home=home)) as engine, engine.home.catalogue.read() as session:
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
    file: Annotated[
        Path, typer.Argument(help="The file to be written, one JSON object a line; - for standard output.")
    ],
    home: Home = None,
) -> None:
    """Write the judgements of a collection into a file, the oldest first."""
    from app.audit.trail import record_command
    from app.settings import load_settings
    from index.feedback import judged_images, judgements
    from training.common.atomic import atomic_file

    count, settings = 0, load_settings(home=home)
    with (
        indexed(settings) as engine,
        engine.home.catalogue.read() as session,
        nullcontext() if str(file) == "-" else atomic_file(file) as written,
    ):
        for judgement in judgements(session, collection):
            record = {
                "query": judgement.query.as_json(),
                "image": judgement.image,
                "relevant": judgement.relevant,
                "verdict": judgement.verdict,
                "model": judgement.model,
                "created": judgement.created,
                "user": None if judgement.user is None else judgement.user._asdict(),
            }
            line = json.dumps(record, ensure_ascii=False) + "\n"
            if written is None:
                sys.stdout.write(line)
            else:
                written.write(line.encode())
            count += 1
        record_command(
            settings,
            engine.home.catalogue,
            "export",
            "feedback export",
            collection=collection,
            objects=judged_images(session, collection),
            count=count,
        )
    typer.echo(f"Wrote {count:,} judgements to {file}.", err=True)


@feedback.command()
def clear(collection: Collection, home: Home = None) -> None:
    """Forget all judgements of a collection; export them before to keep them."""
    from app.audit.trail import record_command
    from app.settings import load_settings
    from index.feedback import clear_feedback

    settings = load_settings(home=home)
    with indexed(settings) as engine:
        with engine.home.catalogue.write() as session:
            count = clear_feedback(session, collection)
        record_command(
            settings, engine.home.catalogue, "delete", "feedback clear", collection=collection, count=count
        )
    typer.echo(f"{collection}: {count:,} judgements are forgotten.")
