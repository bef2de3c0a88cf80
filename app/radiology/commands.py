"""`recoquest pacs`, `reports`, `hl7`, `findings` and `viewer`: archives, reports and studies."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import date
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, NoReturn

import typer

from app.cli.errors import stoppable
from app.cli.options import (
    Collection,
    Device,
    EnvFile,
    Home,
    Installation,
    opened,
    print_table,
    radiology_settings,
    read_text,
    say_refused,
)
from app.cli.serve import bind
from index.keys.home_secret import patient_key
from training.common.errors import RecoquestError

if TYPE_CHECKING:
    from app.radiology.archive import Archive
    from app.radiology.reports import ReportIntake
    from app.radiology.result_objects import ChosenCases
    from app.radiology.settings import ResultForm
    from app.radiology.sync import Sync
    from app.radiology.sync_report import SyncReport
    from training.clinical.reports.study_report import StudyReport

_COMMAND: Final = "pacs sync"
_AT_ONCE: Final = 64
ChosenFormat = Literal["auto", "text", "csv", "fhir", "hl7", "sr"]

pacs = typer.Typer(name="pacs", no_args_is_help=True, help="Take films over from an image archive (PACS).")
viewer = typer.Typer(name="viewer", no_args_is_help=True, help="The viewer of studies in the browser.")
# Typer keeps the name of the only command on the command line.
pacs.callback()(lambda: None)
viewer.callback()(lambda: None)


@pacs.command()
def sync(
    collection: Annotated[str, typer.Argument(help="Name of the collection; --bundle makes a new one.")],
    url: Annotated[
        str | None, typer.Option(help="Root of the archive's DICOMweb [RECOQUEST_PACS_URL].")
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            help="User of the archive [RECOQUEST_PACS_USER]; the setting RECOQUEST_PACS_PASSWORD has the "
            "password, or RECOQUEST_PACS_TOKEN a bearer token."
        ),
    ] = None,
    bundle: Annotated[Path | None, typer.Option(help="Folder of the encoder, for a new collection.")] = None,
    modality: Annotated[
        list[str] | None, typer.Option(help="Only films of it, such as DX; repeatable.")
    ] = None,
    body_part: Annotated[
        list[str] | None, typer.Option(help="Only films of it, such as CHEST; repeatable.")
    ] = None,
    view: Annotated[list[str] | None, typer.Option(help="Only films of it, such as PA; repeatable.")] = None,
    first: Annotated[
        str | None, typer.Option("--from", help="First date of the studies, such as 2024-01-31.")
    ] = None,
    last: Annotated[str | None, typer.Option("--to", help="Last date of the studies.")] = None,
    study: Annotated[
        list[str] | None, typer.Option(help="Only the study of this Study Instance UID; repeatable.")
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
        typer.Option(help="CSV file to which films that are quarantined are added, by their UIDs."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.01, help="Most requests to the archive a second.")
    ] = None,
    hours: Annotated[
        str | None, typer.Option(help="Ask only from one full hour to another, local time, such as 20-06.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="One pass, as without --every.")] = False,
    every: Annotated[
        float | None, typer.Option(min=1, help="Go on, with a pass every so many seconds.")
    ] = None,
    home: Home = None,
    device: Device = None,
) -> None:
    """Import new films of an archive and remove those that it no longer has; run it again to continue."""
    if once and every is not None:
        raise typer.BadParameter("give one of --once and --every, not both.")
    settings = radiology_settings(home=home, device=device, pacs_url=url, pacs_user=user)
    from app.decoding.films import film_reader
    from app.engine import open_engine
    from app.radiology.archive import Archive, ArchiveError, Hours, Pace
    from app.radiology.listing import Selection
    from app.radiology.reports import ReportIntake
    from app.radiology.sync import Sync
    from app.radiology.sync_report import quarantine_list
    from app.radiology.write_back import NOTES_OFF, note_forms
    from training.clinical.reports.study_report import is_uid

    studies = list(dict.fromkeys(uid.strip() for uid in study or ()))
    if any(not is_uid(uid) for uid in studies):
        raise typer.BadParameter("give a Study Instance UID, such as 1.2.840.11.5.", param_hint="--study")
    if studies and every is not None:
        raise typer.BadParameter("give one of --study and --every, not both.")
    words = [
        tuple(word.strip().upper() for word in words_given or ())
        for words_given in (modality, body_part, view)
    ]
    selection = Selection(words[0], words[1], words[2], _day(first, "--from"), _day(last, "--to"))
    if selection.first is not None and selection.last is not None and selection.first > selection.last:
        raise typer.BadParameter("--from is after --to.")
    try:
        pace = Pace(rate, None if hours is None else Hours.parse(hours), waits=every is not None)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.", param_hint="--hours") from None
    if settings.pacs_url is None:
        raise typer.BadParameter("give the archive's address, or set RECOQUEST_PACS_URL.", param_hint="--url")
    archive = Archive(settings.pacs_url, settings, pace)
    forms = note_forms(settings) if note else []
    if note and not studies:
        raise typer.BadParameter("give --study as well: notes are of single studies.", param_hint="--note")
    if note and not forms:
        raise typer.BadParameter(NOTES_OFF, param_hint="--note")
    with (
        stoppable("Stopped. What is written is kept; the same command continues from there."),
        quarantine_list(quarantined) as listed,
        closing(open_engine(settings)) as engine,
    ):
        installation = Installation(settings, engine)
        if bundle is not None and collection not in engine.names():
            _begin(installation, collection, bundle)
        with film_reader(settings, selection.modalities) as reader:
            intake = ReportIntake(engine, settings, collection, _COMMAND)
            syncing = Sync(archive, selection, reader, intake, listed)
            if every is not None:
                _follow(syncing, intake, every)
            report = syncing.run(studies)
            _tell(report, intake)
            if report.absent:
                named = "The study is" if len(studies) == 1 else f"Of the studies, {report.absent:,} are"
                raise ArchiveError(f"{named} not in the archive, or left out by the filters.")
            if forms and not report.waiting:
                _write_notes(installation, archive, collection, studies, forms)


def _day(text: str | None, option: str) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a date such as 2024-01-31.", param_hint=option) from None


def _begin(installation: Installation, collection: str, bundle: Path) -> None:
    from app.collections.names import refuse_gained_roles
    from index.generations.models import create_collection, register_model

    home = installation.engine.home
    with installation.catalogue.read() as session:
        refuse_gained_roles(installation.settings, session, collection)
    create_collection(home, collection, model=register_model(home, bundle).digest)


def _follow(syncing: "Sync", intake: "ReportIntake", every: float) -> NoReturn:
    from app.radiology.archive import ArchiveError

    is_first = True
    while True:
        try:
            report = syncing.run()
        except ArchiveError as error:
            typer.echo(f"{error} The next pass is in {every:g} seconds.", err=True)
        else:
            _tell(report, intake, in_line=is_first or report.has_changed)
            is_first = False
        time.sleep(every)


def _tell(report: "SyncReport", intake: "ReportIntake", *, in_line: bool = True) -> None:
    """Say what a pass has done, and bring waiting reports to films that came."""
    for sentence in report.sentences():
        typer.echo(sentence, err=True)
    if report.waiting:
        typer.echo("The hours are over: the next pass continues with the rest.", err=True)
    if in_line:
        typer.echo(report.line(intake.collection))
    films = sum(len(taken.changed) for taken in intake.take_waiting())
    if films:
        typer.echo(f"Reports that waited are at {films:,} films now.", err=True)


def _write_notes(
    installation: Installation,
    archive: "Archive",
    collection: str,
    studies: Sequence[str],
    forms: "Sequence[ResultForm]",
) -> None:
    from app.radiology.archive import OutsideHoursError
    from app.radiology.write_back import write_note

    def record(cases: "ChosenCases", sops: Sequence[str]) -> None:
        installation.record(
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
            typer.echo(write_note(installation.engine, archive, collection, study, forms, record))
        except OutsideHoursError:
            typer.echo("The hours are over: no note is written.", err=True)
            return


def reports(
    collection: Collection,
    source: Annotated[
        Path | None,
        typer.Argument(
            help="File or folder of reports; without one, reports that wait are brought to new images."
        ),
    ] = None,
    format: Annotated[
        ChosenFormat,
        typer.Option(
            help="Format of all files: text, csv, fhir, hl7 (v2) or sr (DICOM); auto: by each file."
        ),
    ] = "auto",
    encoding: Annotated[
        str | None, typer.Option(help="Encoding of texts and tables that are not UTF-8.")
    ] = None,
    drop_waiting: Annotated[
        bool, typer.Option("--drop-waiting", help="Forget the reports whose studies have no image.")
    ] = False,
    home: Home = None,
    device: Device = None,
) -> None:
    """Attach reports to indexed images, by study or accession number; run it again to continue."""
    if drop_waiting and source is not None:
        raise typer.BadParameter("it goes without a source.", param_hint="--drop-waiting")
    with (
        opened(for_queries=True, radiology=True, home=home, device=device) as installation,
        stoppable("Stopped. What is written is kept; the same command continues."),
    ):
        from app.radiology.reports import ReportIntake

        settings = installation.settings
        intake = ReportIntake(installation.engine, settings, collection, "reports")
        if drop_waiting:
            typer.echo(f"{collection}: {intake.drop_waiting():,} reports that waited are forgotten.")
        elif source is None:
            matched = changed = 0
            for taken in intake.take_waiting(all_again=True):
                matched += taken.matched
                changed += len(taken.changed)
            typer.echo(
                f"{collection}: {matched:,} reports matched, {intake.waiting():,} waiting; "
                f"{changed:,} images changed."
            )
        else:
            _bring(intake, source, settings.home, format, encoding)


def _bring(
    intake: "ReportIntake", source: Path, home: Path, format: ChosenFormat, encoding: str | None
) -> None:
    from training.clinical.reports.study_report import ReportError
    from training.importing.reports import LeftOutFile, read_reports, remarks

    left_out: Counter[str] = Counter()
    refused: list[str] = []
    without_text: list[str] = []
    matched = waiting = changed = differing = 0

    def usable() -> "Iterator[tuple[str, StudyReport]]":
        for read in read_reports(source, patient_key(home), None if format == "auto" else format, encoding):
            if isinstance(read, LeftOutFile):
                left_out[read.reason] += 1
            elif isinstance(read.report, ReportError):
                refused.append(f"{read.location}: {read.report}.")
            else:
                yield read.location, read.report

    readable = usable()
    while part := list(islice(readable, _AT_ONCE)):
        taken = intake.take([report for _, report in part])
        matched += taken.matched
        waiting += taken.waiting
        changed += len(taken.changed)
        differing += len(taken.differing)
        refused += (f"{part[number][0]}: {part[number][1].mismatch}." for number in taken.differing)
        without_text += (part[number][0] for number in taken.without_text)
    say_refused(refused, in_folder=source.is_dir())
    left = left_out.total()
    typer.echo(
        f"{intake.collection}: {matched + waiting + len(refused) + left:,} found = {matched:,} matched + "
        f"{waiting:,} waiting + {len(refused):,} refused + {left:,} left out; {changed:,} images changed."
    )
    for sentence in remarks(left_out, differing, without_text):
        typer.echo(sentence)
    if waiting:
        typer.echo("`recoquest reports COLLECTION` brings those that wait to images indexed since.")


def hl7(
    collection: Annotated[str, typer.Argument(help="Name of the collection whose images get the reports.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 2575,
    allow_network: Annotated[
        bool,
        typer.Option(
            "--allow-network", help="Listen on an address that other machines can reach; MLLP has no keys."
        ),
    ] = False,
    home: Home = None,
    device: Device = None,
    env_file: EnvFile = None,
) -> None:
    """Take reports (ORU^R01) over MLLP, each acknowledged once it is written; Ctrl-C ends it."""
    import asyncio
    import signal

    from app.access.hosts import is_loopback
    from app.edge.logging import configure_logging

    def stop_by_signals(stop: Callable[[], None]) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop)

    with (
        opened(for_queries=True, radiology=True, env_file=env_file, home=home, device=device) as installation,
        bind(host, port) as taken,
    ):
        from app.radiology.reports import Listener, ReportIntake

        address, number = taken.getsockname()[:2]
        if not allow_network and not is_loopback(address):
            raise RecoquestError(
                f"Everybody who reaches {address} could write reports: MLLP has no keys. Listen on "
                "127.0.0.1 behind a tunnel or an interface engine, or give --allow-network."
            )
        settings, engine = installation.settings, installation.engine
        engine.active(collection)
        configure_logging(settings.log_level)
        typer.echo(f"Listening for HL7 on {address}:{number}, for {collection}.", err=True)
        intake = ReportIntake(engine, settings, collection, "hl7")
        Listener(intake, patient_key(settings.home)).run(taken, stop_by_signals)


def findings(
    text: Annotated[
        str | None, typer.Argument(help="Sentence or report; without one, the list of all findings.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="File of a report in UTF-8.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of JSON, with offsets.")] = False,
    labels: Annotated[
        bool, typer.Option("--labels", help="Print the fourteen labels of CheXpert with their states.")
    ] = False,
) -> None:
    """Print the findings of a report: present, absent or uncertain."""
    from rich.text import Text

    from training.clinical.findings import (
        CHEXPERT_LABELS,
        are_prior,
        chexpert_labels,
        find_findings,
        unread_words,
    )
    from training.clinical.text.language import is_read
    from training.clinical.text.vocabulary import FINDINGS

    if text is not None and file is not None:
        raise typer.BadParameter("give a text or a file, not both.", param_hint="--file")
    if file is not None:
        text = read_text(file)
    if text is None:
        names = CHEXPERT_LABELS if labels else FINDINGS
        typer.echo(json.dumps(names) if as_json else "\n".join(names))
        return
    if labels:
        states = chexpert_labels(text)
        if as_json:
            typer.echo(json.dumps(states))
        elif not states:
            typer.echo(
                "The text states nothing that is understood, or is neither English nor German: it has no "
                "labels."
            )
        else:
            rows = [(label, states.get(label, "")) for label in CHEXPERT_LABELS]
            print_table("Label", "State", rows=rows)
    else:
        stated = find_findings(text)
        # Those in sentences that compare with an earlier examination, or mention one.
        priors = are_prior(text, [finding.start for finding in stated])
        mentions = [(*finding, prior) for finding, prior in zip(stated, priors, strict=True)]
        if as_json:
            fields = ("finding", "state", "start", "end", "prior")
            shown = [dict(zip(fields, each, strict=True)) for each in mentions]
            typer.echo(json.dumps(shown, ensure_ascii=False))
        elif not is_read(text):
            typer.echo("The text seems to be neither English nor German: its findings are not read.")
        elif not mentions:
            typer.echo("No finding of the vocabulary is stated; `recoquest findings` lists it.")
        else:
            table = []
            for name, state, start, end, prior in mentions:
                words = Text(" ".join(text[start:end].split()))
                table.append((name, state, words, f"{start} to {end}", "yes" if prior else ""))
            print_table("Finding", "State", "Words", "Characters", "Compared", rows=table)
    # A text with words that no rule covers gets no label "No Finding".
    if not as_json and is_read(text) and (unread := unread_words(text)):
        typer.echo(f"Not understood: {', '.join(unread)}.")


@viewer.command("install")
def install(
    package: Annotated[
        Path | None, typer.Option(help="The package as a file, where this machine has no network.")
    ] = None,
    home: Home = None,
) -> None:
    """Bring OHIF into the home folder: its package of the npm registry, by version and checksum."""
    settings = radiology_settings(home=home)
    from app.radiology.viewer import PACKAGE, VERSION, install_viewer, viewer_folder

    if viewer_folder(settings.home).is_dir():
        typer.echo(f"OHIF {VERSION} is there already: {viewer_folder(settings.home)}")
        return
    typer.echo(f"Reading {package or PACKAGE} (50 MB)")
    folder = install_viewer(settings.home, package)
    typer.echo(f"OHIF {VERSION} is in {folder}. The service shows it at /reading, with RECOQUEST_DICOMWEB.")


def register(recoquest: typer.Typer) -> None:
    """Add the commands; where RECOQUEST_RADIOLOGY is off, they say so when they run."""
    panel = "Films, reports and archives"
    recoquest.add_typer(pacs, rich_help_panel=panel)
    recoquest.add_typer(viewer, rich_help_panel=panel)
    for command in (reports, findings, hl7):
        recoquest.command(rich_help_panel=panel)(command)
