"""`recoquest feedback`: judgements of hits, added, removed, counted, exported and cleared."""

import json
from pathlib import Path
from typing import Annotated

import typer

from app.cli.options import Collection, Home, line_writer, opened, print_table, shown_time

Hit = Annotated[str, typer.Argument(help="Id of the image that was a hit.")]
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
    """Judge whether an image is relevant to a query; the last judgement of query and image counts."""
    _judge(collection, hit, relevant, texts, like, unlike, home, missed=missed)
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
    """Remove the judgement of an image for a query; repeating this changes nothing."""
    if _judge(collection, hit, None, texts, like, unlike, home):
        typer.echo(f"{collection}: the judgement of {hit} for this query is removed.")
    else:
        typer.echo(f"{collection}: there was no judgement of {hit} for this query.")


def _judge(
    collection: str,
    hit: str,
    relevant: bool | None,
    texts: Texts,
    like: Like,
    unlike: Unlike,
    home: Home,
    *,
    missed: bool = False,
) -> bool:
    """Record it, by the rules of the service; return whether there was a judgement before."""
    from pydantic import ValidationError

    from app.audit.trail import command_actor
    from app.edge.problems import sentence
    from app.feedback import NewJudgement
    from index.feedback import User

    liked = [{"text": text} for text in (texts or ())[1:]]
    query = {
        "text": texts[0] if texts else None,
        "like": [*liked, *({"id": name} for name in like or ())],
        "unlike": [{"id": name} for name in unlike or ()],
    }
    try:
        new = NewJudgement.model_validate(
            {"query": query, "hit": hit, "relevant": relevant, "missed": missed}
        )
    except ValidationError as error:
        raise typer.BadParameter(f"this query cannot be judged: {sentence(error.errors()[0])}") from None
    actor = command_actor()
    with opened(home=home) as installation:
        with installation.catalogue.write() as session:
            user = User(actor.id, actor.name)
            replaced = new.write(session, collection, user, installation.settings.max_feedback)
        installation.record(
            "judge",
            "feedback",
            collection=collection,
            objects=[hit],
            query=new.query.parts(),
            relevant=relevant,
            missed=missed,
        )
    return replaced


@feedback.command("list")
def list_feedback(home: Home = None) -> None:
    """Count the judgements of each collection."""
    from index.feedback import count_feedback

    rows = []
    with opened(home=home) as installation, installation.catalogue.read() as session:
        for name in installation.engine.names():
            counts = count_feedback(session, name)
            figures = (counts.relevant, counts.not_relevant, counts.queries)
            rows.append((name, *(f"{figure:,}" for figure in figures), shown_time(counts.latest)))
    print_table("Collection", "Relevant", "Not relevant", "Queries", "Latest", rows=rows, utc=True)


@feedback.command()
def export(
    collection: Collection,
    file: Annotated[
        Path, typer.Argument(help="The file to be written, one JSON object a line; - for standard output.")
    ],
    home: Home = None,
) -> None:
    """Write the judgements of a collection into a file, the oldest first."""
    from index.feedback import judged_images, judgements

    count = 0
    with (
        opened(home=home) as installation,
        installation.catalogue.read() as session,
        line_writer(file) as write,
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
            write(json.dumps(record, ensure_ascii=False))
            count += 1
        installation.record(
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
    from index.feedback import clear_feedback

    with opened(home=home) as installation:
        with installation.catalogue.write() as session:
            count = clear_feedback(session, collection)
        installation.record("delete", "feedback clear", collection=collection, count=count)
    typer.echo(f"{collection}: {count:,} judgements are forgotten.")
