"""`recoquest reports` and `recoquest hl7`: bring reports to the images of their studies, or receive them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from app.cli.operate.serve import bind
from app.cli.options import Device, EnvFile, Home, indexed, query_device
from training.common.errors import RecoquestError

if TYPE_CHECKING:
    from app.radiology.reports.intake import ReportIntake
    from training.clinical.reports.study_report import StudyReport

_AT_ONCE: Final = 64
_SHOWN: Final = 20
ChosenFormat = Literal["auto", "text", "csv", "fhir", "hl7", "sr"]


class OpenListenerError(RecoquestError):
    """A listener that other machines would reach."""


@dataclass
class _Tally:
    """Counts of a run: found is the sum of matched, waiting, refused (differing ones too) and left out."""

    matched: int = 0
    waiting: int = 0
    changed: int = 0
    differing: int = 0
    without_text: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def sentences(self, collection: str) -> Iterator[str]:
        from training.importing.attach_reports import remarks

        left = sum(self.left_out.values())
        found = self.matched + self.waiting + len(self.refused) + left
        yield (
            f"{collection}: {found:,} found = {self.matched:,} matched + {self.waiting:,} waiting + "
            f"{len(self.refused):,} refused + {left:,} left out; {self.changed:,} images changed."
        )
        yield from remarks(self.left_out, self.differing, self.without_text)
        if self.waiting:
            yield "`recoquest reports COLLECTION` brings those that wait to images indexed since."


def reports(
    collection: Annotated[str, typer.Argument(help="Name of the collection.")],
    source: Annotated[
        Path | None,
        typer.Argument(
            help="File or folder of reports; without one, reports that wait are brought to new images."
        ),
    ] = None,
    format: Annotated[
        ChosenFormat,
        typer.Option(
            "--format",
            help="Format of all files: text, csv, fhir, hl7 (v2) or sr (DICOM); auto: by each file.",
        ),
    ] = "auto",
    encoding: Annotated[
        str | None, typer.Option("--encoding", help="Encoding of texts and tables that are not UTF-8.")
    ] = None,
    drop_waiting: Annotated[
        bool, typer.Option("--drop-waiting", help="Forget the reports whose studies have no image.")
    ] = False,
    home: Home = None,
    device: Device = None,
) -> None:
    """Bring reports to indexed images, by study or accession number; run again, it goes on."""
    from app.cli.errors import stoppable
    from app.radiology.reports.intake import ReportIntake
    from app.settings import load_settings

    if drop_waiting and source is not None:
        raise typer.BadParameter("it goes without a source.", param_hint="--drop-waiting")
    settings = load_settings(home=home, device=device)
    settings = settings.model_copy(update={"device": query_device(settings)})
    with (
        indexed(settings) as engine,
        stoppable("Stopped. What is written is kept; the same command goes on."),
    ):
        intake = ReportIntake(engine, settings, collection, "reports")
        if drop_waiting:
            typer.echo(f"{collection}: {intake.drop_waiting():,} reports that waited are forgotten.")
        elif source is None:
            _bring_kept(intake)
        else:
            _bring(intake, source, settings.home, format, encoding)


def _bring_kept(intake: "ReportIntake") -> None:
    matched = changed = 0
    for taken in intake.take_waiting(all_again=True):
        matched += taken.matched
        changed += len(taken.changed)
    typer.echo(
        f"{intake.collection}: {matched:,} reports matched, {intake.waiting():,} waiting; "
        f"{changed:,} images changed."
    )


def _bring(
    intake: "ReportIntake", source: Path, home: Path, format: ChosenFormat, encoding: str | None
) -> None:
    from index.keys.home_secret import patient_key
    from training.clinical.reports.study_report import ReportError
    from training.importing.report_files import LeftOutFile, read_reports

    tally = _Tally()
    part: list[tuple[str, StudyReport]] = []
    for read in read_reports(source, patient_key(home), None if format == "auto" else format, encoding):
        if isinstance(read, LeftOutFile):
            tally.left_out[read.reason] += 1
        elif isinstance(read.report, ReportError):
            tally.refused.append(f"{read.place}: {read.report}.")
        else:
            part.append((read.place, read.report))
        if len(part) == _AT_ONCE:
            _take(intake, part, tally)
            part = []
    _take(intake, part, tally)
    say_refused(tally.refused, in_folder=source.is_dir())
    for sentence in tally.sentences(intake.collection):
        typer.echo(sentence)


def _take(intake: "ReportIntake", part: "Sequence[tuple[str, StudyReport]]", tally: _Tally) -> None:
    if not part:
        return
    taken = intake.take([report for _, report in part])
    tally.matched += taken.matched
    tally.waiting += taken.waiting
    tally.changed += len(taken.changed)
    tally.differing += len(taken.differing)
    tally.refused += (f"{part[place][0]}: {part[place][1].mismatch}." for place in taken.differing)
    tally.without_text += (part[place][0] for place in taken.without_text)


def say_refused(refused: Sequence[str], *, in_folder: bool) -> None:
    """Name reports that were refused."""
    from training.importing.report_files import ORDER

    for sentence in refused[:_SHOWN]:
        typer.echo(f"Refused: {sentence}", err=True)
    if len(refused) > _SHOWN:
        typer.echo(f"Refused: and {len(refused) - _SHOWN:,} more.", err=True)
    if refused and in_folder:
        typer.echo(f"File numbers are places in: {ORDER}.", err=True)


def hl7(
    collection: Annotated[str, typer.Argument(help="Name of the collection whose images get the reports.")],
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")] = 2575,
    allow_network: Annotated[
        bool,
        typer.Option(
            "--allow-network", help="Listen on an address that other machines reach; MLLP asks for no key."
        ),
    ] = False,
    home: Home = None,
    device: Device = None,
    env_file: EnvFile = None,
) -> None:
    """Take reports (ORU^R01) over MLLP, each acknowledged once it is written; Ctrl-C ends it."""
    import asyncio
    import signal
    from collections.abc import Callable

    from app.access.hosts import is_loopback
    from app.edge.observability.logging import configure_logging
    from app.radiology.reports.intake import ReportIntake
    from app.radiology.reports.listener import Listener, run_listener
    from app.settings import load_settings
    from index.keys.home_secret import patient_key

    def stop_by_signals(stop: Callable[[], None]) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop)

    settings = load_settings(env_file, home=home, device=device)
    settings = settings.model_copy(update={"device": query_device(settings)})
    with indexed(settings) as engine, bind(host, port) as taken:
        address, number = taken.getsockname()[:2]
        if not allow_network and not is_loopback(address):
            raise OpenListenerError(
                f"Everybody who reaches {address} could write reports: MLLP asks for no key. Listen on "
                "127.0.0.1 behind a tunnel or an interface engine, or give --allow-network."
            )
        engine.active(collection)
        configure_logging(settings.log_level)
        typer.echo(f"Listening for HL7 on {address}:{number}, for {collection}.", err=True)
        intake = ReportIntake(engine, settings, collection, "hl7")
        run_listener(Listener(intake, patient_key(settings.home)), taken, stop_by_signals)
