"""`recoquest delete` and `recoquest erase`: images out of a collection, or out of all that the home holds."""

import time
from typing import Annotated

import typer

from app.cli.options import Home, indexed, parse_filter_option


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
    from app.images.deletion import Deletion
    from app.settings import load_settings
    from index.catalogue import PAUSE_SECONDS
    from index.catalogue.lookup import parts

    parsed = parse_filter_option(condition)
    if not parsed:
        raise typer.BadParameter("an empty filter would delete every image.", param_hint="--filter")
    settings = load_settings(home=home)
    with indexed(settings) as engine:
        deletion = Deletion(
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
    from app.images.deletion import erase as erase_all
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
