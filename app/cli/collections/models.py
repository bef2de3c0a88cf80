"""`recoquest models`: the registered encoders, seen one by one, and added to."""

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from app.cli.options import AsJson, Home, indexed
from app.edge.observability.console import console

if TYPE_CHECKING:
    from collections.abc import Mapping

    from app.generations.schemas import ModelCard

_SHOWN_METRICS = ("rsum", "precision_at_10")

models = typer.Typer(
    name="models", no_args_is_help=True, help="The encoders that collections can be embedded with."
)


@models.command("list")
def list_models(as_json: AsJson = False, home: Home = None) -> None:
    """List the registered models, the latest first."""
    from app.generations.schemas import ModelSummary
    from app.settings import load_settings

    with indexed(load_settings(home=home)) as engine:
        found = engine.models()
    if as_json:
        shown = [ModelSummary.of(info, loaded=False).model_dump(exclude={"loaded"}) for info in found]
        typer.echo(json.dumps(shown, indent=2))
        return
    table = Table("Model", "Digest", "Vectors", "Measured", "Searched with it", "Made")
    for info in found:
        made = info.created[:19].replace("T", " ")
        searched = ", ".join(info.collections)
        table.add_row(info.name, info.digest[:12], str(info.dim), _measured(info.metrics), searched, made)
    table.caption = "Times are in UTC"
    console().print(table)


@models.command()
def show(
    model: Annotated[str, typer.Argument(help="Digest, its first 12 digits or more, or a name.")],
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Show where a model comes from, how good it is, and where it is used."""
    from app.generations.model_card import model_card
    from app.settings import load_settings
    from index.generations.models import find_model

    with indexed(load_settings(home=home)) as engine:
        with engine.home.catalogue.read() as session:
            digest = find_model(session, model).digest
        card = model_card(engine, digest, loaded=False)
    if as_json:
        typer.echo(card.model_dump_json(indent=2, exclude={"loaded"}))
    else:
        _print(card)


@models.command()
def register(
    bundle: Annotated[Path, typer.Argument(help="Folder of the trained encoder.")], home: Home = None
) -> None:
    """Copy a bundle into the home folder, so that collections can be begun or embedded with it."""
    from app.engine import open_engine
    from app.settings import load_settings
    from index.generations.models import register_model

    with closing(open_engine(load_settings(home=home))) as engine:
        info = register_model(engine.home, bundle)
    typer.echo(info.digest)
    typer.echo(f"To embed a collection: recoquest reindex COLLECTION --model {info.digest[:12]}", err=True)


def _print(card: "ModelCard") -> None:
    training, retraining = card.training, card.retraining
    for name, value in (
        ("Model", card.name),
        ("Digest", card.digest),
        ("Made", f"{card.created[:19].replace('T', ' ')} UTC"),
        ("Vectors", f"{card.dim} numbers, {card.score_kind.replace('_', ' ')}"),
        ("Towers", card.towers and ", ".join(f"{kind}: {tower}" for kind, tower in card.towers.items())),
        ("Recipe", training and f"{training.recipe}, objective {training.objective}"),
        ("From", training and training.started_from),
        ("Retrained", retraining and f"job {retraining.job}, {retraining.collection}: {retraining.verdict}"),
        ("Searched", ", ".join(card.collections)),
    ):
        if value:
            typer.echo(f"{name + ':':12}{value}")
    if card.metrics:
        table = Table("Measured", "Value")
        for metric, figure in sorted(card.metrics.items()):
            table.add_row(metric, f"{figure:.4g}")
        console().print(table)
    if card.generations:
        table = Table("Collection", "Generation", "State", "Images", "Missing")
        for one in card.generations:
            table.add_row(one.collection, str(one.number), one.state, f"{one.images:,}", f"{one.missing:,}")
        console().print(table)


def _measured(metrics: "Mapping[str, float]") -> str:
    return ", ".join(f"{name} {metrics[name]:.4g}" for name in _SHOWN_METRICS if name in metrics)
