"""`recoquest collections`, `aliases`, `models`, `duplicates`, `delete` and `erase`: what can be searched."""

import json
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.table import Table

from app.cli.errors import stoppable
from app.cli.options import AsJson, Home, indexed, parse_filter_option
from app.edge.observability.console import console

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy.orm import Session

    from app.generations.model_schemas import ModelCard
    from index.audit.event import Action, Detail
    from index.generations.names import Alias


_Before = TypeVar("_Before", bound="Alias | None")
Name = Annotated[str, typer.Argument(metavar="ALIAS", help="The alias.")]

aliases = typer.Typer(
    name="aliases", no_args_is_help=True, help="Other names of collections; see docs/writing.md."
)


@aliases.command("list")
def show_aliases(as_json: AsJson = False, home: Home = None) -> None:
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

    before = _change_alias(
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

    _change_alias(
        home, "change", "aliases swap", alias, new, lambda session: swap_alias(session, alias, old, new)
    )
    typer.echo(f"{alias} leads to {new}, and no more to {old}.")


@aliases.command("delete")
def delete_alias(alias: Name, home: Home = None) -> None:
    """Delete an alias; its collection stays."""
    from index.generations.names import remove_alias

    removed = _change_alias(
        home, "delete", "aliases delete", alias, None, lambda session: remove_alias(session, alias)
    )
    typer.echo(f"{alias} is no alias any more; {removed.collection} stays.")


def _change_alias(
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


_SHOWN_METRICS = ("rsum", "precision_at_10")

models = typer.Typer(
    name="models", no_args_is_help=True, help="The encoders that collections can be embedded with."
)


@models.command("list")
def list_models(as_json: AsJson = False, home: Home = None) -> None:
    """List the registered models, the latest first."""
    from app.generations.model_schemas import ModelSummary
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
        _print_card(card)


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


def _print_card(card: "ModelCard") -> None:
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
    from index.duplicates.find import find_duplicates

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
    from app.images.delete_matching import Deletion
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


def erase(
    collection: Annotated[str, typer.Argument(help="Name of the collection.")],
    ids: Annotated[
        list[str] | None, typer.Argument(help="Ids of the images; none: go on with what was stopped.")
    ] = None,
    patient: Annotated[
        str | None,
        typer.Option(
            "--patient", help="Patient ID or its keyed hash: all images and reports of the patient."
        ),
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(
            "--study", help="Study Instance UID, accession number or its keyed hash, likewise of a study."
        ),
    ] = None,
    home: Home = None,
) -> None:
    """Take images and reports out of catalogue, files, jobs and feedback; name backups that hold them."""
    from app.audit.trail import command_actor
    from app.images.erase import erase as erase_all
    from app.settings import load_settings
    from index.errors import NoErasureError, UnknownImageError

    settings = load_settings(home=home)
    with indexed(settings) as engine:
        found = erase_all(
            settings,
            engine.home,
            collection,
            ids or [],
            command_actor(),
            patient=patient,
            study=study,
            operation="erase",
        )
    erased, jobs = found.erased, found.jobs
    of_people = patient is not None or study is not None
    if of_people and not found.ids and not erased.reports:
        raise NoErasureError(f"{collection} has no image and no report of this patient or study.")
    if of_people:
        typer.echo(
            f"{collection}: {len(found.ids):,} images and {erased.reports:,} waiting reports are erased."
        )
    elif not ids:
        typer.echo(f"{collection}: what was stopped is done; images erased: {len(found.ids):,}.")
    for image in ids or []:
        said = "is erased" if image in found.ids else "was not in the collection"
        typer.echo(f"{collection}: {image} {said}.")
    for image in found.later:
        typer.echo(f"{collection}: {image} is erased, which had one of these ids before it was moved.")
    if erased.reports and not of_people:
        typer.echo(f"Reports that waited for them: {erased.reports:,}, erased.")
    if erased.judgements:
        typer.echo(f"Judgements for queries that named them: {erased.judgements:,}, erased.")
    if jobs.jobs:
        typer.echo(f"Removed from job {', '.join(map(str, jobs.jobs))}.")
    for digest in erased.shared:
        typer.echo(f"The file {digest} stays: another image is the same file.")
    for path in jobs.left:
        typer.echo(f"{path} still names one of them and cannot be rewritten: remove it.")
    for path in found.unfinished:
        typer.echo(f"{path} is unfinished and may hold one of them: run this again later, or remove it.")
    if jobs.retrainings:
        numbers = ", ".join(map(str, jobs.retrainings))
        typer.echo(f"Models that may have learned from them: those of job {numbers}.")
    for backup in erased.backups:
        place = backup.path if backup.is_there else f"{backup.path} (not there any more)"
        typer.echo(f"Still in the backup {place} of {backup.created[:19].replace('T', ' ')} UTC.")
    if not found.log_is_empty:
        typer.echo("The database's log keeps them until its readers end: run the command again after that.")
    if ids and not found.ids and not erased.backups and set(found.unknown) == set(ids):
        raise UnknownImageError(collection, ids[0])
