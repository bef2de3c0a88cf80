"""`recoquest collections`, `aliases`, `models`, `duplicates`, `delete` and `erase`: what can be searched."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from app.cli.errors import stoppable
from app.cli.options import FILTER_OPTION, AsJson, Collection, Home, opened, print_table, shown_time
from index.errors import NoErasureError, UnknownImageError

if TYPE_CHECKING:
    from app.generations.schemas import ModelCard
    from index.generations.names import Alias

_Before = TypeVar("_Before", bound="Alias | None")
AliasName = Annotated[str, typer.Argument(metavar="ALIAS", help="The alias.")]

_SHOWN_METRICS: Final = ("rsum", "precision_at_10")

aliases = typer.Typer(name="aliases", no_args_is_help=True, help="Other names of collections.")
models = typer.Typer(
    name="models", no_args_is_help=True, help="The encoders that collections can be embedded with."
)


def collections(home: Home = None) -> None:
    """List what can be searched."""
    with opened(home=home) as installation:
        rows = [
            (
                one.name,
                f"{one.count:,}",
                "none yet" if one.generation is None else str(one.generation),
                one.model or "",
                (one.digest or "")[:12],
            )
            for one in installation.engine.collections()
        ]
    print_table("Collection", "Images", "Generation", "Model", "Digest", rows=rows)


@aliases.command("list")
def show_aliases(as_json: AsJson = False, home: Home = None) -> None:
    """List all aliases with their collections."""
    from index.generations.names import list_aliases

    with opened(home=home) as installation, installation.catalogue.read() as session:
        aliases = {one.name: one.collection for one in list_aliases(session)}
    if as_json:
        typer.echo(json.dumps(aliases, indent=2))
    else:
        print_table("Alias", "Collection", rows=aliases.items())


@aliases.command("set")
def set_alias(
    alias: AliasName,
    collection: Annotated[str, typer.Argument(help="The collection's own name.")],
    home: Home = None,
) -> None:
    """Point an alias at a collection, a new one or one that led elsewhere; services follow at once."""
    from index.generations.names import put_alias

    before = _change_alias(home, "aliases set", put_alias, alias, collection)
    led = "" if before is None or before.collection == collection else f", and no more to {before.collection}"
    typer.echo(f"{alias} leads to {collection}{led}.")


@aliases.command("swap")
def swap_alias(
    alias: AliasName,
    old: Annotated[str, typer.Argument(metavar="FROM", help="The collection that it must lead to now.")],
    new: Annotated[str, typer.Argument(metavar="TO", help="The collection that it is to lead to.")],
    home: Home = None,
) -> None:
    """Point an alias from one collection at another, unless somebody else has changed it."""
    from index.generations import names

    _change_alias(home, "aliases swap", names.swap_alias, alias, old, new)
    typer.echo(f"{alias} leads to {new}, and no more to {old}.")


@aliases.command("delete")
def delete_alias(alias: AliasName, home: Home = None) -> None:
    """Delete an alias; its collection stays."""
    from index.generations.names import remove_alias

    removed = _change_alias(home, "aliases delete", remove_alias, alias)
    typer.echo(f"{alias} is no alias any more; {removed.collection} stays.")


def _change_alias(
    home: Path | None, command: str, change: Callable[..., _Before], alias: str, *collections: str
) -> _Before:
    """Change an alias, and write the event in the same transaction; return the alias before.

    The last of the collections is its current target; without any, the alias is deleted.
    """
    with opened(home=home) as installation, installation.catalogue.write() as session:
        before = change(session, alias, *collections)
        led_to = None if before is None else before.collection
        installation.record(
            "change" if collections else "delete",
            command,
            session=session,
            collection=collections[-1] if collections else led_to,
            alias=alias,
            further={"led_to": led_to} if collections else {},
        )
    return before


@models.command("list")
def list_models(as_json: AsJson = False, home: Home = None) -> None:
    """List the registered models, the latest first."""
    from app.generations.schemas import ModelSummary

    with opened(home=home) as installation:
        models = installation.engine.models()
    if as_json:
        shown = [ModelSummary.from_info(info, loaded=False).model_dump(exclude={"loaded"}) for info in models]
        typer.echo(json.dumps(shown, indent=2))
        return
    rows = [
        (
            info.name,
            info.digest[:12],
            str(info.dim),
            ", ".join(f"{name} {info.metrics[name]:.4g}" for name in _SHOWN_METRICS if name in info.metrics),
            ", ".join(info.collections),
            shown_time(info.created),
        )
        for info in models
    ]
    print_table("Model", "Digest", "Vectors", "Measured", "Searched with it", "Made", rows=rows, utc=True)


@models.command("show")
def show_model(
    model: Annotated[str, typer.Argument(help="Digest, its first 12 digits or more, or a name.")],
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Show where a model comes from, how good it is, and where it is used."""
    from app.generations.schemas import model_card
    from index.generations.models import find_model

    with opened(home=home) as installation:
        with installation.catalogue.read() as session:
            digest = find_model(session, model).digest
        card = model_card(installation.engine, digest, loaded=False)
    if as_json:
        typer.echo(card.model_dump_json(indent=2, exclude={"loaded"}))
    else:
        _print_card(card)


def _print_card(card: "ModelCard") -> None:
    training, retraining = card.training, card.retraining
    for name, value in (
        ("Model", card.name),
        ("Digest", card.digest),
        ("Made", f"{shown_time(card.created)} UTC"),
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
        figures = [(metric, f"{figure:.4g}") for metric, figure in sorted(card.metrics.items())]
        print_table("Measured", "Value", rows=figures)
    if card.generations:
        rows = (
            (one.collection, str(one.number), one.state, f"{one.images:,}", f"{one.missing:,}")
            for one in card.generations
        )
        print_table("Collection", "Generation", "State", "Images", "Missing", rows=rows)


@models.command()
def register(
    bundle: Annotated[Path, typer.Argument(help="Folder of the trained encoder.")], home: Home = None
) -> None:
    """Copy a bundle into the home folder, so that collections can be begun or embedded with it."""
    from index.generations.models import register_model

    with opened(create=True, home=home) as installation:
        info = register_model(installation.engine.home, bundle)
    typer.echo(info.digest)
    typer.echo(f"To embed a collection: recoquest reindex COLLECTION --model {info.digest[:12]}", err=True)


def duplicates(
    collection: Annotated[str, typer.Argument(help="A collection; see `recoquest collections`.")],
    print_json: AsJson = False,
    out: Annotated[
        Path | None, typer.Option(help="Write the groups as JSON into this folder instead.")
    ] = None,
    home: Home = None,
) -> None:
    """List images that show the same picture, in files that may differ by size, tone or a cropped edge."""
    from index.duplicates import as_json, find_duplicates, write_groups

    with opened(home=home) as installation, stoppable("Stopped. Nothing was changed."):
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        result = find_duplicates(installation.engine.home, collection)
    if out is not None:
        write_groups(result, out)
        typer.echo(f"Groups of near-duplicates: {len(result.groups):,}, in {out / 'groups.json'}.")
    elif print_json:
        typer.echo(json.dumps(as_json(result), indent=2, ensure_ascii=False))
        return
    elif result.groups:
        rows = (
            (", ".join(group.ids), "the same" if group.same_file else "different") for group in result.groups
        )
        print_table("Images", "Files", rows=rows)
    else:
        typer.echo("There are no near-duplicates.")
    if result.unread:
        typer.echo(f"The files of these could not be read: {', '.join(result.unread)}.", err=True)


def delete(
    collection: Collection,
    condition: Annotated[dict[str, Any], FILTER_OPTION],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the images, and delete none.")] = False,
    expected: Annotated[
        int | None, typer.Option("--expected-count", min=0, help="Delete only if there are as many images.")
    ] = None,
    home: Home = None,
) -> None:
    """Delete the images that pass a filter, some at a time; searches and other writers continue."""
    from app.audit.trail import command_actor
    from app.images.deletion import Deletion
    from index.catalogue import PAUSE_SECONDS
    from index.catalogue.lookup import parts

    if not condition:
        raise typer.BadParameter("an empty filter would delete every image.", param_hint="--filter")
    with opened(home=home) as installation:
        deletion = Deletion(
            installation.settings,
            installation.engine.home,
            collection,
            condition,
            command_actor(),
            operation="delete",
            expected=expected,
        )
        matched = len(deletion.matching.keys)
        if dry_run:
            more = ", ..." if matched > len(deletion.ids) else ""
            which = f": {', '.join(deletion.ids)}{more}" if matched else ""
            typer.echo(f"{collection}: {matched:,} images pass the filter{which}. Nothing was deleted.")
            return
        with stoppable(
            lambda: f"Stopped. {deletion.deleted:,} images are deleted; the same command continues."
        ):
            for keys in parts(deletion.matching.keys):
                deletion.delete(keys)
                time.sleep(PAUSE_SECONDS)
        typer.echo(f"{collection}: {deletion.deleted:,} of {matched:,} images are deleted.")
        if remaining := deletion.remaining():
            typer.echo(
                f"{remaining:,} images pass the filter now, changed or added meanwhile: repeat the command.",
                err=True,
            )


def erase(
    collection: Collection,
    ids: Annotated[
        list[str] | None, typer.Argument(help="Ids of the images; none: continue an interrupted erasure.")
    ] = None,
    patient: Annotated[
        str | None, typer.Option(help="Patient ID or its keyed hash: all images and reports of the patient.")
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(help="Study Instance UID, accession number or its keyed hash, likewise of a study."),
    ] = None,
    home: Home = None,
) -> None:
    """Take images and reports out of catalogue, files, jobs and feedback; name backups that hold them."""
    from app.audit.trail import command_actor
    from app.images.deletion import erase as erase_all

    with opened(home=home) as installation:
        erasure = erase_all(
            installation.settings,
            installation.engine.home,
            collection,
            ids or [],
            command_actor(),
            patient=patient,
            study=study,
            operation="erase",
        )
    erased = erasure.erased
    by_person = patient is not None or study is not None
    if by_person and not erasure.ids and not erased.reports:
        raise NoErasureError(f"{collection} has no image and no report of this patient or study.")
    if by_person:
        typer.echo(
            f"{collection}: {len(erasure.ids):,} images and {erased.reports:,} waiting reports are erased."
        )
    elif not ids:
        typer.echo(f"{collection}: the interrupted erasure is complete; images erased: {len(erasure.ids):,}.")
    for image in ids or []:
        outcome = "is erased" if image in erasure.ids else "was not in the collection"
        typer.echo(f"{collection}: {image} {outcome}.")
    for image in erasure.later:
        typer.echo(f"{collection}: {image} is erased, which had one of these ids before it was moved.")
    if erased.reports and not by_person:
        typer.echo(f"Reports that waited for them: {erased.reports:,}, erased.")
    if erased.judgements:
        typer.echo(f"Judgements for queries that named them: {erased.judgements:,}, erased.")
    if erasure.jobs:
        typer.echo(f"Removed from job {', '.join(map(str, erasure.jobs))}.")
    for digest in erased.shared:
        typer.echo(f"The file {digest} stays: another image is the same file.")
    for path in erasure.left:
        typer.echo(f"{path} still names one of them and cannot be rewritten: remove it.")
    for path in erasure.unfinished:
        typer.echo(f"{path} is unfinished and may contain one of them: run this again later, or remove it.")
    if erasure.retrainings:
        numbers = ", ".join(map(str, erasure.retrainings))
        typer.echo(f"Models that may have learned from them: those of job {numbers}.")
    for backup in erased.backups:
        path_text = backup.path if backup.is_there else f"{backup.path} (not there any more)"
        typer.echo(f"Still in the backup {path_text} of {shown_time(backup.created)} UTC.")
    if not erasure.log_is_empty:
        typer.echo("The database's log keeps them until its readers end: run the command again after that.")
    if ids and not erasure.ids and not erased.backups and set(erasure.unknown) == set(ids):
        raise UnknownImageError(collection, ids[0])
