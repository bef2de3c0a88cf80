"""`recoquest pacs sync`: bring a collection up to date with an image archive."""

import time
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from app.cli.errors import stoppable
from app.cli.options import Device, Home

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from app.archive_settings import ResultForm
    from app.decoding.films import FilmReader
    from app.radiology.pacs.dicomweb.archive import Archive
    from app.radiology.pacs.dicomweb.pace import Pace
    from app.radiology.pacs.quarantine import QuarantineList
    from app.radiology.pacs.report import SyncReport
    from app.radiology.pacs.results.cases import ChosenCases
    from app.radiology.pacs.selection import Selection
    from app.radiology.pacs.sync import Sync
    from app.radiology.reports.intake import ReportIntake
    from app.settings import Settings
    from index.engine import SearchEngine

_COMMAND: Final = "pacs sync"
_STOPPED: Final = "Stopped. What is written is kept; the same command goes on from there."

pacs = typer.Typer(name="pacs", no_args_is_help=True, help="Take films over from an image archive (PACS).")
pacs.callback()(lambda: None)


@pacs.command()
def sync(
    collection: Annotated[str, typer.Argument(help="Name of the collection; --bundle makes a new one.")],
    url: Annotated[
        str | None,
        typer.Option("--url", help="Root of the archive's DICOMweb [RECOQUEST_PACS_URL]."),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            help="User of the archive [RECOQUEST_PACS_USER]; the setting RECOQUEST_PACS_PASSWORD has the "
            "password, or RECOQUEST_PACS_TOKEN a bearer token.",
        ),
    ] = None,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", help="Folder of the encoder, for a new collection.")
    ] = None,
    modality: Annotated[
        list[str] | None, typer.Option("--modality", help="Only films of it, such as DX; repeatable.")
    ] = None,
    body_part: Annotated[
        list[str] | None, typer.Option("--body-part", help="Only films of it, such as CHEST; repeatable.")
    ] = None,
    view: Annotated[
        list[str] | None, typer.Option("--view", help="Only films of it, such as PA; repeatable.")
    ] = None,
    first: Annotated[
        str | None, typer.Option("--from", help="First date of the studies, such as 2024-01-31.")
    ] = None,
    last: Annotated[str | None, typer.Option("--to", help="Last date of the studies.")] = None,
    study: Annotated[
        list[str] | None,
        typer.Option("--study", help="Only the study of this Study Instance UID; repeatable."),
    ] = None,
    note: Annotated[
        bool,
        typer.Option(
            "--note",
            help="With --study: then write its most similar cases of other patients into the study, in the "
            "forms that RECOQUEST_PACS_WRITE_BACK allows.",
        ),
    ] = False,
    quarantined: Annotated[
        Path | None,
        typer.Option(
            "--quarantined", help="CSV file to which films that are quarantined are added, by their UIDs."
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.01, help="Most requests to the archive a second.")
    ] = None,
    hours: Annotated[
        str | None,
        typer.Option("--hours", help="Ask only from one full hour to another, local time, such as 20-06."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="One pass, as without --every.")] = False,
    every: Annotated[
        float | None, typer.Option("--every", min=1, help="Go on, with a pass every so many seconds.")
    ] = None,
    home: Home = None,
    device: Device = None,
) -> None:
    """Take over new films of an archive and remove those that it no longer has; run again, it goes on."""
    from app.decoding.films import film_reader
    from app.engine import open_engine
    from app.radiology.pacs.quarantine import quarantine_list
    from app.radiology.reports.intake import ReportIntake
    from app.settings import load_settings

    if once and every is not None:
        raise typer.BadParameter("give one of --once and --every, not both.")
    studies = _studies(study, every)
    selection = _selection(modality, body_part, view, first, last)
    pace = _pace(rate, hours, waits=every is not None)
    settings = load_settings(home=home, device=device, pacs_url=url, pacs_user=user)
    archive = _archive(settings, pace)
    forms = _note_forms(settings, studies) if note else []
    with (
        stoppable(_STOPPED),
        quarantine_list(quarantined) as listed,
        closing(open_engine(settings)) as engine,
    ):
        _prepare(engine, settings, collection, bundle)
        with film_reader(settings, selection.modalities) as reader:
            intake = ReportIntake(engine, settings, collection, _COMMAND)
            syncing = _sync(engine, settings, archive, selection, reader, intake, listed)
            if studies:
                has_all = _bring_named(syncing, intake, studies)
                if forms and has_all:
                    _write_notes(engine, settings, archive, collection, studies, forms)
            else:
                _follow(syncing, intake, every)


def _selection(
    modality: list[str] | None,
    body_part: list[str] | None,
    view: list[str] | None,
    first: str | None,
    last: str | None,
) -> "Selection":
    from app.radiology.pacs.selection import Selection

    words = [tuple(word.strip().upper() for word in given or ()) for given in (modality, body_part, view)]
    selection = Selection(words[0], words[1], words[2], _day(first, "--from"), _day(last, "--to"))
    if selection.first is not None and selection.last is not None and selection.first > selection.last:
        raise typer.BadParameter("--from is after --to.")
    return selection


def _day(text: str | None, option: str) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a date such as 2024-01-31.", param_hint=option) from None


def _studies(given: list[str] | None, every: float | None) -> list[str]:
    from training.clinical.reports.study_report import is_uid

    studies = list(dict.fromkeys(uid.strip() for uid in given or ()))
    if any(not is_uid(uid) for uid in studies):
        raise typer.BadParameter("give a Study Instance UID, such as 1.2.840.11.5.", param_hint="--study")
    if studies and every is not None:
        raise typer.BadParameter("give one of --study and --every, not both.")
    return studies


def _note_forms(settings: "Settings", studies: "Collection[str]") -> "list[ResultForm]":
    from app.radiology.pacs.results.note import NOTES_OFF, note_forms

    if not studies:
        raise typer.BadParameter("give --study, too: notes are of single studies.", param_hint="--note")
    forms = note_forms(settings)
    if not forms:
        raise typer.BadParameter(NOTES_OFF, param_hint="--note")
    return forms


def _pace(rate: float | None, hours: str | None, *, waits: bool) -> "Pace":
    from app.radiology.pacs.dicomweb.pace import Hours, Pace

    try:
        return Pace(rate, None if hours is None else Hours.parse(hours), waits=waits)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.", param_hint="--hours") from None


def _archive(settings: "Settings", pace: "Pace") -> "Archive":
    from app.radiology.pacs.dicomweb.archive import Access, Archive

    if settings.pacs_url is None:
        raise typer.BadParameter("give the archive's address, or set RECOQUEST_PACS_URL.", param_hint="--url")
    return Archive(settings.pacs_url, Access.of(settings), pace)


def _prepare(engine: "SearchEngine", settings: "Settings", collection: str, bundle: Path | None) -> None:
    """Begin the collection by a bundle, if it is new."""
    if bundle is None or collection in engine.names():
        return
    from app.collections.names import refuse_gained_roles
    from index.files.bundles import installed_bundle, register_bundle
    from index.generations.models import create_collection
    from training.models.bundle import read_bundle

    with engine.home.catalogue.read() as session:
        refuse_gained_roles(settings, session, collection)
    with installed_bundle(read_bundle(bundle), engine.home.bundles_folder) as info:
        with engine.home.catalogue.write() as session:
            register_bundle(session, info)
        create_collection(engine.home, collection, model=info.digest)


def _sync(
    engine: "SearchEngine",
    settings: "Settings",
    archive: "Archive",
    selection: "Selection",
    reader: "FilmReader",
    intake: "ReportIntake",
    listed: "QuarantineList | None",
) -> "Sync":
    from app.audit.trail import removals_recorded, writes_recorded
    from app.generations.lifecycle.bulk_encoder import load_bulk_encoder
    from app.radiology.pacs.films import FilmWriter
    from app.radiology.pacs.run import SyncPlan
    from app.radiology.pacs.sync import Sync

    catalogue, collection = engine.home.catalogue, intake.collection

    plan = SyncPlan(
        collection,
        selection,
        reader.rules.key,
        reader.read,
        reader.rules.attributes,
        reader.limits.max_bytes,
        intake,
        writes_recorded(settings, catalogue, collection, _COMMAND),
        removals_recorded(settings, catalogue, collection, _COMMAND),
        listed,
    )
    writer = FilmWriter(
        engine,
        collection,
        lambda home, active: load_bulk_encoder(home, active.bundle, settings.device),
        reader.limits,
    )
    return Sync(engine, archive, writer, plan)


def _bring_named(syncing: "Sync", intake: "ReportIntake", studies: "Collection[str]") -> bool:
    """Bring studies over; tell whether the archive could be asked for all of them."""
    from app.radiology.pacs.dicomweb.archive import ArchiveError

    report = syncing.run(studies)
    _tell(report, intake.collection)
    _bring_waiting(intake)
    if report.absent:
        named = "The study is" if len(studies) == 1 else f"Of the studies, {report.absent:,} are"
        raise ArchiveError(f"{named} not in the archive, or left out by the filters.")
    return not report.waiting


def _follow(syncing: "Sync", intake: "ReportIntake", every: float | None) -> None:
    from app.radiology.pacs.dicomweb.archive import ArchiveError

    is_first = True
    while True:
        try:
            report = syncing.run()
        except ArchiveError as error:
            if every is None:
                raise
            typer.echo(f"{error} The next pass is in {every:g} seconds.", err=True)
        else:
            _tell(report, intake.collection, in_line=every is None or is_first or report.has_changed)
            is_first = False
            _bring_waiting(intake)
        if every is None:
            return
        time.sleep(every)


def _tell(report: "SyncReport", collection: str, *, in_line: bool = True) -> None:
    for sentence in report.sentences():
        typer.echo(sentence, err=True)
    if report.waiting:
        typer.echo("The hours are over: the next pass goes on with the rest.", err=True)
    if in_line:
        typer.echo(report.line(collection))


def _bring_waiting(intake: "ReportIntake") -> None:
    """Bring waiting reports to films that came."""
    films = sum(len(taken.changed) for taken in intake.take_waiting())
    if films:
        typer.echo(f"Reports that waited are at {films:,} films now.", err=True)


def _write_notes(
    engine: "SearchEngine",
    settings: "Settings",
    archive: "Archive",
    collection: str,
    studies: "Collection[str]",
    forms: "Sequence[ResultForm]",
) -> None:
    """Write a note into each study, with its event of the audit trail, and tell the outcome.

    Raises:
        ArchiveError: The archive does not answer, or does not store a note.
    """
    from app.audit.trail import record_command
    from app.radiology.pacs.dicomweb.pace import OutsideHoursError
    from app.radiology.pacs.results.note import write_note

    def record(cases: "ChosenCases", sops: "Sequence[str]") -> None:
        record_command(
            settings,
            engine.home.catalogue,
            "create",
            _COMMAND,
            collection=collection,
            objects=[cases.query.id, *(hit.id for hit in cases.hits), *sops],
            model=cases.active.digest,
            generation=cases.active.generation,
            cases=len(cases.hits),
            forms=",".join(forms),
        )

    for study in studies:
        try:
            typer.echo(write_note(engine, archive, collection, study, forms, record))
        except OutsideHoursError:
            typer.echo("The hours are over: no note is written.", err=True)
            return
