"""Studies of an archive beside what is known of them: fetched, read, decoded and written."""

import csv
import errno
import io
import os
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from sqlalchemy.orm import Session

from app.decoding.films import FilmReader, Reading
from app.radiology.archive import Archive, ArchiveError, OutsideHoursError
from app.radiology.listing import ListedInstance, ListedStudy, Selection, list_instances
from app.radiology.reports import ReportIntake, Taken
from index.catalogue.studies import Followed, KnownStudy, Outcome, images_of_study, note_study
from index.errors import StaleWriteError
from index.writes.images import Outcome as WriteOutcome
from index.writes.intake import Compared, Prepared, compare, prefetch
from index.writes.live import Upload, known_now, put_images, remove_images
from index.writes.vectors import ImageEncoder
from training.clinical.pseudonyms import keyed_hash
from training.clinical.reports.structured import SOP_CLASSES, parse_structured
from training.clinical.reports.study_report import NoReportError, ReportError, StudyReport, deidentified
from training.common.errors import DataError, ImageError, RecoquestError
from training.common.progress import ProgressBar
from training.imaging.images import decode_whole
from training.imaging.processes.errors import DecodingError

_SHOWN: Final = 8
COLUMNS: Final = ("time", "study", "series", "sop", "reason")
# Instances of a request and of a transaction: files wait in memory until they are written.
AT_ONCE: Final = 16
# Presentation states, waveforms, documents, segmentations, plans and reports that are no text.
_NO_PICTURE: Final = ("11.", "88.", "9.", "104.", "66", "481.3", "481.5", "481.8")
_STORAGE: Final = "1.2.840.10008.5.1.4.1.1."
_THREADS: Final = 4
_AT_ONCE: Final = 4
# So many pieces of studies that the archive fails to give, one after another, end a pass.
_MOST_FAILURES: Final = 20
_ATTEMPTS: Final = 3


@dataclass(slots=True)
class SyncReport:
    """Counts of instances, by outcome.

    Attributes:
        refused: Instances that cannot be used, or that the archive did not give.
        left_out: Instances that the filters leave out, and those that are no images.
        removed: Images of instances that the archive no longer has, and that were removed.
        reports: Structured reports among those that this pass brought over.
        reports_removed: Structured reports that the archive no longer has, and that were removed.
        absent: Named studies that the archive does not have within the filters, and that were not known.
        failures: Pieces of studies that the archive failed to give; they are tried again by the next pass.
        waiting: Whether the hours ended before everything was looked at.
        doubts: Sentences on studies that the archive may have and does not list.
        reasons: Number of instances by the reason why they were not taken in this pass.
    """

    taken: int = 0
    up_to_date: int = 0
    refused: int = 0
    left_out: int = 0
    quarantined: int = 0
    removed: int = 0
    reports: int = 0
    reports_removed: int = 0
    studies: int = 0
    absent: int = 0
    failures: int = 0
    waiting: bool = False
    doubts: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def found(self) -> int:
        """Instances that the archive has within the filters of studies."""
        return self.taken + self.up_to_date + self.refused + self.left_out + self.quarantined

    @property
    def has_changed(self) -> bool:
        """True if the pass changed the collection."""
        return bool(self.taken or self.removed or self.reports_removed)

    def count(self, outcome: Outcome, reason: str = "", *, known: bool = False) -> None:
        """Count an instance; `known`: that is its outcome of an earlier pass."""
        name = "up_to_date" if known and outcome == "taken" else outcome.replace(" ", "_")
        setattr(self, name, getattr(self, name) + 1)
        if reason:
            self.reasons[f"{outcome}: {reason.rstrip('.')}"] += 1

    def line(self, collection: str) -> str:
        """Return the result in one line."""
        parts = (
            (self.taken, "taken"),
            (self.up_to_date, "up to date"),
            (self.refused, "refused"),
            (self.left_out, "left out"),
            (self.quarantined, "quarantined"),
        )
        counted = " + ".join(f"{count:,} {name}" for count, name in parts)
        removed = f" Removed: {self.removed:,}." if self.removed else ""
        of_reports = f" Reports: {self.reports:,} taken, {self.reports_removed:,} removed."
        reports = of_reports if self.reports or self.reports_removed else ""
        more = " or more" if self.doubts else ""
        line = f"{collection}: {self.studies:,} studies{more}; {self.found:,} instances found = {counted}."
        return f"{line}{removed}{reports}"

    def sentences(self) -> list[str]:
        """Return the doubts, and the commonest reasons why instances were not taken, with their numbers."""
        return self.doubts + [f"{count:,} {reason}." for reason, count in self.reasons.most_common(_SHOWN)]


class QuarantinedFilm(NamedTuple):
    """An instance that may show a name."""

    study: str
    series: str
    sop: str
    reason: str


@dataclass(frozen=True, slots=True)
class QuarantineList:
    """A CSV file that grows by a line for each film; several processes may append to it.

    Attributes:
        file: The same, open, without a buffer.
    """

    path: Path
    file: BinaryIO

    def append(self, films: Iterable[QuarantinedFilm]) -> None:
        """Write films to the disk, with the time in UTC.

        Raises:
            DataError: They cannot be written.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        lines = _lines((now, *film) for film in films)
        if not lines:
            return
        with _naming(self.path):
            if self.file.write(lines) < len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self.file.fileno())


@contextmanager
def quarantine_list(path: Path | None) -> Iterator[QuarantineList | None]:
    """Open the list, readable by its owner alone if it is new; without a path there is none.

    Raises:
        DataError: It cannot be written, or is another file.
    """
    if path is None:
        yield None
        return
    with ExitStack() as opened:
        with _naming(path):
            # A pipe that nobody reads would never open.
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
            file = opened.enter_context(os.fdopen(os.open(path, flags, 0o600), "ab+", buffering=0))
            _begin(file)
        yield QuarantineList(path, file)


def _begin(file: BinaryIO) -> None:
    """Write the header of a new file; end a line that was cut."""
    header = _lines([COLUMNS])
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        raise OSError(errno.EINVAL, "it is no file")
    if file.seek(0, os.SEEK_END) == 0:
        file.write(header)
        return
    file.seek(0)
    if file.read(len(header)) != header:
        raise OSError(errno.EINVAL, "it is not such a list")
    file.seek(-1, os.SEEK_END)
    if file.read(1) != b"\n":
        file.write(b"\n")


def _lines(rows: Iterable[tuple[str, ...]]) -> bytes:
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(rows)
    return table.getvalue().encode()


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Say which file cannot be used, and why."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"The list of quarantined films {path} cannot be written ({error.strerror}): give --quarantined "
            "another file."
        ) from error


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """What a pass brings over, and into which collection: that of `reports`.

    Attributes:
        reader: Reads and de-identifies files.
        reports: Takes structured reports.
        quarantined: List of the films that are quarantined; None: there is none.
    """

    archive: Archive
    selection: Selection
    reader: FilmReader
    reports: ReportIntake
    quarantined: QuarantineList | None = None

    def hash(self, kind: str, value: str) -> str:
        """Return the keyed hash of what identifies a study, by its kind: archive, study, sop or day."""
        return keyed_hash(self.reader.rules.key, kind, value)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some instances of a study that are fetched and written together.

    Attributes:
        outcomes: Outcomes, by UID, of instances that need not be fetched.
        gone: Hashes of instances that the archive no longer has; with the last piece alone.
        reports: Digests of the study's known reports, by the hash of their UID.
        is_last: Whether the study is done with this piece.
        error: Why the study could not be looked at; None: it was.
    """

    study: ListedStudy
    wanted: tuple[ListedInstance, ...] = ()
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    reports: Mapping[str, str] = field(default_factory=dict)
    is_last: bool = True
    error: ArchiveError | OutsideHoursError | None = None


def examine(
    plan: SyncPlan, study: ListedStudy, known: KnownStudy | None, again: Collection[str] = ()
) -> tuple[list[Piece], list[Outcome]]:
    """Compare a study's instances with what is known of it; errors of the archive are in the piece.

    `again`: UIDs of instances that came in anew, whatever is known of them. Also returns the outcomes of
    earlier passes of instances that are still there.
    """
    try:
        listed = list_instances(plan.archive, study, with_attributes=plan.selection.looks_inside)
    except (ArchiveError, OutsideHoursError) as error:
        return [Piece(study, error=error)], []
    before = {} if known is None else dict(known.instances)
    if known is not None and known.selection != plan.selection.digest:
        before = {name: outcome for name, outcome in before.items() if outcome != "left out"}
    for uid in again:
        before.pop(plan.hash("sop", uid), None)
    hashed = {plan.hash("sop", instance.sop): instance for instance in listed}
    new = [instance for name, instance in hashed.items() if name not in before]
    left_out: dict[str, Outcome] = {
        instance.sop: "left out" for instance in new if not _is_wanted(plan, instance)
    }
    wanted = [instance for instance in new if instance.sop not in left_out]
    gone = frozenset((set() if known is None else known.instances.keys()) - hashed.keys())
    reports = {} if known is None else known.reports
    pieces = []
    for start in range(0, max(1, len(wanted)), AT_ONCE):
        part = tuple(wanted[start : start + AT_ONCE])
        if start + AT_ONCE < len(wanted):
            pieces.append(Piece(study, part, reports=reports, is_last=False))
        else:
            pieces.append(Piece(study, part, left_out, gone, reports))
    return pieces, [outcome for name, outcome in before.items() if name in hashed]


def _is_wanted(plan: SyncPlan, instance: ListedInstance) -> bool:
    if instance.sop_class in SOP_CLASSES:
        # Filters are about films, and reports belong to all films of their study.
        return True
    if instance.sop_class.removeprefix(_STORAGE).startswith(_NO_PICTURE):
        return False
    if instance.modality and not plan.selection.takes_modality(instance.modality):
        return False
    if instance.attributes is None or not plan.selection.looks_inside:
        return True
    return plan.selection.takes(plan.reader.rules.attributes(instance.attributes))


@dataclass(frozen=True, slots=True)
class _Fetched:
    """An instance that came.

    Attributes:
        films: Films to write, with their files; unchanged ones are left out.
        generation: Number of the generation that they were prepared for; None: none.
        report: The structured report that it is, without what identifies people; None: it is none.
    """

    outcome: Outcome
    reason: str = ""
    films: tuple[tuple[Prepared, bytes], ...] = ()
    generation: int | None = None
    report: StudyReport | None = None


@dataclass(frozen=True, slots=True)
class _Result:
    """A piece with the instances that came, by UID; an error where they did not come or could not be read."""

    piece: Piece
    instances: Mapping[str, _Fetched] = field(default_factory=dict)
    error: RecoquestError | OutsideHoursError | None = None


class Run:
    """Brings over the pieces of a pass by the model that the collection is searched with.

    Every batch is one transaction with what is known of its studies.
    """

    def __init__(self, plan: SyncPlan, followed: Followed, report: SyncReport) -> None:
        self._plan = plan
        self._home = plan.reports.engine.home
        self._followed = followed
        self._report = report
        self._hash = plan.hash
        self._failed_in_a_row = 0
        self._changes = plan.reports.changes

    def write_all(self, pieces: Iterable[Piece], bar: ProgressBar) -> None:
        """Fetch and write pieces; those whose write was overtaken by another are fetched again at the end.

        Raises:
            ArchiveError: The archive fails again and again.
            StaleWriteError: Others write the same images all the time.
            RecoquestError: The catalogue or the disk cannot be used.
        """
        for attempt in range(_ATTEMPTS):
            overtaken: list[Piece] = []
            for batch in prefetch(pieces, self._fetch, _AT_ONCE, threads=_THREADS, prefetch_batches=1):
                fetched = [result for _, result in batch]
                try:
                    self._write([item for item in fetched if not self._failed(item)])
                except StaleWriteError:
                    if attempt == _ATTEMPTS - 1:
                        raise
                    overtaken += [item.piece for item in fetched if item.error is None]
                    continue
                remark = f"{self._report.refused:,} refused" if self._report.refused else ""
                bar.advance(sum(item.piece.is_last for item in fetched), remark)
            if not overtaken:
                return
            pieces = overtaken

    def remove(self, study: str, gone: Collection[str]) -> None:
        """Remove the images of instances of a study, by the hashes of their UIDs."""
        with self._home.catalogue.read() as session:
            images = images_of_study(session, self._followed.collection_id, study)
        ids = [name for sop, names in images.items() if self._hash("sop", sop) in gone for name in names]
        if ids:
            removed = remove_images(self._home, self._plan.reports.collection, ids, self._changes.removed)
            self._report.removed += len(removed)

    def remove_reports(self, known: Mapping[str, str], gone: Collection[str]) -> None:
        """Remove structured reports.

        `known`: digests of a study's reports, by the hashes of their UIDs.
        """
        digests = [digest for name, digest in known.items() if name in gone]
        if digests:
            self._plan.reports.remove(digests)
            self._report.reports_removed += len(digests)

    def _fetch(self, piece: Piece) -> _Result:
        if piece.error is not None:
            return _Result(piece, error=piece.error)
        try:
            found = {instance.sop: self._fetch_one(piece.study, instance) for instance in piece.wanted}
        except (ArchiveError, DecodingError, OutsideHoursError) as error:
            return _Result(piece, error=error)
        return _Result(piece, {sop: fetched for sop, fetched in found.items() if fetched is not None})

    def _fetch_one(self, study: ListedStudy, instance: ListedInstance) -> _Fetched | None:
        """Fetch and prepare an instance; None: the archive lists it and does not give it."""
        most = self._plan.reader.limits.max_bytes
        path = f"studies/{study.uid}/series/{instance.series}/instances/{instance.sop}"
        try:
            content = self._plan.archive.get_file(path, most)
        except ArchiveError as error:
            if error.status in (404, 410):
                return None
            raise
        if content is None:
            return _Fetched("refused", f"The file has over {most / 1e6:,.0f} MB.")
        if instance.sop_class in SOP_CLASSES:
            return self._read_report(study, content)
        reading = self._plan.reader.read(content)
        if any(film.record.metadata.get("sop") != instance.sop for film in reading.films):
            return _Fetched("refused", reason="The archive gives another instance than it lists.")
        if any(not self._plan.selection.takes(film.record.metadata) for film in reading.films):
            return _Fetched("left out", reason="The filters leave it out.")
        for _ in range(_ATTEMPTS - 1):
            with suppress(StaleWriteError):
                return self._prepare(reading)
        return self._prepare(reading)

    def _prepare(self, reading: Reading) -> _Fetched:
        """Decode what is new of an instance.

        Raises:
            StaleWriteError: The collection is searched with another model by now.
        """
        if reading.outcome != "taken":
            return _Fetched(reading.outcome, reading.reason)
        model = self._plan.reports.model()
        ready = []
        try:
            known = known_now(self._home, model.active, [film.record.id for film in reading.films])
            for film in reading.films:
                # The file is de-identified: stored as it is.
                compared = compare(known, film.record, film.content, keep_metadata=True)
                prepared = self._decoded(compared, model.encoder) if compared.is_new else compared.prepared
                if prepared is not None:
                    ready.append((prepared, compared.content))
        except ImageError as error:
            return _Fetched("refused", str(error))
        return _Fetched("taken", "", tuple(ready), model.active.generation)

    def _decoded(self, compared: Compared, encoder: ImageEncoder) -> Prepared:
        decoded = decode_whole(compared.content, self._plan.reader.limits, encoder.min_image_side)
        pixels = encoder.prepare_image(decoded.pixels)
        return compared.with_picture(
            decoded.header.media_type, decoded.width, decoded.height, pixels, decoded.flags
        )

    def _read_report(self, study: ListedStudy, content: bytes) -> _Fetched:
        try:
            source = parse_structured(content)
            report = deidentified(source, self._plan.reader.rules.key)
        except NoReportError as error:
            return _Fetched("left out", reason=f"Not a radiologist's report: {error}.")
        except ReportError as error:
            return _Fetched("refused", reason=f"A structured report: {error}.")
        if source.studies[:1] != (study.uid,):
            return _Fetched("refused", reason="The archive gives another instance than it lists.")
        return _Fetched("taken", report=report)

    def _failed(self, fetched: _Result) -> bool:
        """Count a piece that did not come."""
        if fetched.error is None:
            self._failed_in_a_row = 0
            return False
        if isinstance(fetched.error, OutsideHoursError):
            self._report.waiting = True
            return True
        self._failed_in_a_row += 1
        is_refused = isinstance(fetched.error, ArchiveError) and fetched.error.status in (401, 403)
        if self._failed_in_a_row >= _MOST_FAILURES or is_refused:
            raise fetched.error
        self._report.failures += 1
        for _ in range(max(1, len(fetched.piece.wanted))):
            self._report.count("refused", str(fetched.error))
        return True

    def _write(self, batch: Sequence[_Result]) -> None:
        if not batch:
            return
        if self._plan.quarantined is not None:
            # First, as an instance whose outcome is noted is not fetched again.
            self._plan.quarantined.append(
                QuarantinedFilm(item.piece.study.uid, wanted.series, wanted.sop, fetched.reason)
                for item in batch
                for wanted in item.piece.wanted
                if (fetched := item.instances.get(wanted.sop)) and fetched.outcome == "quarantined"
            )
        for item in batch:
            if item.piece.gone:
                self.remove(item.piece.study.uid, item.piece.gone)
            # Sent again, a report may have become one that cannot be taken.
            refused = {self._hash("sop", sop) for sop, one in item.instances.items() if one.report is None}
            self.remove_reports(item.piece.reports, refused | item.piece.gone)

        def also(session: Session, outcomes: Mapping[str, str]) -> None:
            if outcomes:
                self._changes.written(session, outcomes)
            for item in batch:
                fetched = {sop: one.outcome for sop, one in item.instances.items() if one.report is None}
                noted = {**item.piece.outcomes, **fetched}
                hashed = {self._hash("sop", sop): outcome for sop, outcome in noted.items()}
                self._note(session, item.piece, hashed, {})

        self._put([fetched for item in batch for fetched in item.instances.values() if fetched.films], also)
        self._take_reports(batch)
        for item in batch:
            for outcome in item.piece.outcomes.values():
                self._report.count(outcome)
            for ready in item.instances.values():
                if ready.report is None:
                    self._report.count(ready.outcome, ready.reason)
            for _ in range(len(item.piece.wanted) - len(item.instances)):
                # An instance was deleted meanwhile or is there twice; the next comparison asks again.
                self._report.count("refused", "The archive lists it and does not give it.")

    def _put(
        self,
        instances: Sequence[_Fetched],
        also: Callable[[Session, Mapping[str, WriteOutcome]], None],
    ) -> None:
        """Embed and commit the films of instances, and do something else in the same transaction.

        Raises:
            StaleWriteError: The collection is searched with another model by now, or somebody else wrote the
                same image; nothing is written.
        """
        if not instances:
            # A pass that finds nothing new loads no encoder.
            with self._home.catalogue.write() as session:
                also(session, {})
            return
        model = self._plan.reports.model()
        if any(instance.generation != model.active.generation for instance in instances):
            raise StaleWriteError("The collection is searched with another model by now: try again.")
        films = {item.record.id: (item, content) for one in instances for item, content in one.films}
        pixels = [item.pixels for item, _ in films.values() if item.pixels is not None]
        vectors = iter(model.embedder.images(pixels))
        uploads = [Upload(item.write(vectors, {}), content) for item, content in films.values()]
        put_images(self._home, model.active, uploads, also)

    def _take_reports(self, batch: Sequence[_Result]) -> None:
        """Bring structured reports, and those of earlier passes, to the images of their studies.

        Their outcomes are noted at the end: where this is stopped, the next pass fetches them again.
        """
        found = [(item, sop, ready.report) for item in batch for sop, ready in item.instances.items()]
        sent = [(item, sop, report) for item, sop, report in found if report is not None]
        taken = self._plan.reports.take([report for _, _, report in sent]) if sent else Taken()
        for place, (item, sop, report) in enumerate(sent):
            name, before = self._hash("sop", sop), item.piece.reports.get(self._hash("sop", sop))
            digest = None if place in taken.differing else report.digest
            if before is not None and before != digest:
                # The object was sent again with another content.
                self._plan.reports.remove([before])
            bare = "A structured report no part of which describes the image."
            remark = bare if place in taken.without_text else ""
            self._note_report(item.piece, name, digest, report.mismatch if digest is None else remark)
        with_films = [item for item in batch if any(ready.films for ready in item.instances.values())]
        self._plan.reports.take_again(dict.fromkeys(item.piece.study.uid for item in with_films))

    def _note_report(self, piece: Piece, name: str, digest: str | None, remark: str) -> None:
        """Note a report, by the hash of its UID; without a digest, its patient is another one."""
        with self._home.catalogue.write() as session:
            if digest is None:
                self._note(session, piece, {name: "refused"}, {})
            else:
                self._note(session, piece, {}, {name: digest})
        if digest is None:
            self._report.count("refused", f"A structured report: {remark}.")
        else:
            self._report.count("taken", remark)
            self._report.reports += 1

    def _note(
        self, session: Session, piece: Piece, outcomes: Mapping[str, Outcome], reports: Mapping[str, str]
    ) -> None:
        seen = KnownStudy(
            self._hash("day", piece.study.day),
            self._plan.selection.digest,
            datetime.now(UTC).isoformat(timespec="seconds") if piece.is_last else None,
            outcomes,
            reports,
        )
        note_study(session, self._followed, self._hash("study", piece.study.uid), seen, gone=piece.gone)
