"""The instances of a pass: fetched, read and decoded ahead, written in batches."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final

from sqlalchemy.orm import Session

from app.radiology.pacs.dicomweb.archive import Archive, ArchiveError
from app.radiology.pacs.dicomweb.listing import ListedInstance, ListedStudy
from app.radiology.pacs.dicomweb.pace import OutsideHoursError
from app.radiology.pacs.examine import Hash, Piece, ReadAttributes
from app.radiology.pacs.films import FilmWriter, ReadInstance, ReadyInstance
from app.radiology.pacs.quarantine import QuarantinedFilm, QuarantineList
from app.radiology.pacs.report import SyncReport
from app.radiology.pacs.selection import Selection
from app.radiology.reports.intake import ReportIntake, Taken
from index.catalogue.studies import Followed, KnownStudy, Outcome, images_of_study, note_study
from index.engine import SearchEngine
from index.errors import StaleWriteError
from index.writes.live import remove_images
from index.writes.prefetch import prefetch
from training.clinical.dicom.pseudonyms import keyed_hash
from training.clinical.reports.structured import SOP_CLASSES, parse_structured
from training.clinical.reports.study_report import NoReportError, ReportError, deidentified
from training.common.errors import RecoquestError
from training.common.progress import ProgressBar
from training.imaging.processes.errors import DecodingError

_THREADS: Final = 4
_AT_ONCE: Final = 4
# So many pieces of studies that the archive fails to give, one after another, end a pass.
_MOST_FAILURES: Final = 20
_ATTEMPTS: Final = 3

RecordWrites = Callable[[Session, Mapping[str, str]], None]
RecordRemoved = Callable[[Session, Sequence[str]], None]


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """Films that a pass brings over, and how their files are read.

    Attributes:
        collection: Name of the collection.
        selection: Films that are wanted.
        key: Secret of the keyed hashes.
        read: Reads and de-identifies a file.
        attributes: Metadata of an instance by its DICOM attributes, as `read` gives them.
        max_bytes: Largest file.
        reports: Takes structured reports.
        record: Writes the event of a batch of images in its transaction; None: there is no audit trail.
        record_removed: Writes the event of removed images in their transaction; None: there is none.
        quarantined: List of the films that are quarantined; None: there is none.
    """

    collection: str
    selection: Selection
    key: bytes
    read: ReadInstance
    attributes: ReadAttributes
    max_bytes: int
    reports: ReportIntake
    record: RecordWrites | None = None
    record_removed: RecordRemoved | None = None
    quarantined: QuarantineList | None = None


@dataclass(frozen=True, slots=True)
class _Fetched:
    """A piece with the instances that came, by UID; an error where they did not come or could not be read."""

    piece: Piece
    instances: Mapping[str, ReadyInstance] = field(default_factory=dict)
    error: RecoquestError | OutsideHoursError | None = None

    def quarantined(self) -> Iterator[QuarantinedFilm]:
        study, series = self.piece.study.uid, {one.sop: one.series for one in self.piece.wanted}
        for sop, ready in self.instances.items():
            if ready.outcome == "quarantined":
                yield QuarantinedFilm(study, series[sop], sop, ready.reason)


class Run:
    """Brings over the pieces of a pass.

    Every batch is one transaction with what is known of its studies.

    Args:
        engine: Engine of the home.
        archive: The archive.
        writer: Writes the films.
        plan: What is brought over.
        followed: The collection and the archive.
        report: Counts the outcomes.
    """

    def __init__(
        self,
        engine: SearchEngine,
        archive: Archive,
        writer: FilmWriter,
        plan: SyncPlan,
        followed: Followed,
        report: SyncReport,
    ) -> None:
        self._engine = engine
        self._archive = archive
        self._writer = writer
        self._plan = plan
        self._followed = followed
        self._report = report
        self._hash: Hash = partial(keyed_hash, plan.key)
        self._failed_in_a_row = 0

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
                    self._writer.renew()
                    overtaken += [item.piece for item in fetched if item.error is None]
                    continue
                bar.advance(sum(item.piece.is_last for item in fetched), self._remark())
            if not overtaken:
                return
            pieces = overtaken

    def remove(self, study: str, gone: Collection[str]) -> None:
        """Remove the images of instances of a study, by the hashes of their UIDs."""
        home = self._engine.home
        with home.catalogue.read() as session:
            images = images_of_study(session, self._followed.collection_id, study)
        ids = [name for sop, names in images.items() if self._hash("sop", sop) in gone for name in names]
        removed = remove_images(home, self._plan.collection, ids, self._plan.record_removed) if ids else []
        self._report.removed += len(removed)

    def remove_reports(self, known: Mapping[str, str], gone: Collection[str]) -> None:
        """Remove structured reports.

        Args:
            known: Digests of a study's reports, by the hashes of their UIDs.
            gone: Hashes of the UIDs of those that go.
        """
        digests = [digest for name, digest in known.items() if name in gone]
        if digests:
            self._plan.reports.remove(digests)
            self._report.reports_removed += len(digests)

    def _fetch(self, piece: Piece) -> _Fetched:
        if piece.error is not None:
            return _Fetched(piece, error=piece.error)
        instances = {}
        try:
            for instance in piece.wanted:
                ready = self._fetch_one(piece.study, instance)
                if ready is not None:
                    instances[instance.sop] = ready
        except (ArchiveError, DecodingError, OutsideHoursError) as error:
            return _Fetched(piece, error=error)
        return _Fetched(piece, instances)

    def _fetch_one(self, study: ListedStudy, instance: ListedInstance) -> ReadyInstance | None:
        """Fetch and prepare an instance; None: the archive lists it and does not give it."""
        path = f"studies/{study.uid}/series/{instance.series}/instances/{instance.sop}"
        try:
            content = self._archive.get_file(path, self._plan.max_bytes)
        except ArchiveError as error:
            if error.status in (404, 410):
                return None
            raise
        if content is None:
            return ReadyInstance("refused", reason=f"The file has over {self._plan.max_bytes / 1e6:,.0f} MB.")
        if instance.sop_class in SOP_CLASSES:
            return self._read_report(study, content)
        reading = self._plan.read(content)
        if any(film.record.metadata.get("sop") != instance.sop for film in reading.films):
            return ReadyInstance("refused", reason="The archive gives another instance than it lists.")
        if any(not self._plan.selection.takes(film.record.metadata) for film in reading.films):
            return ReadyInstance("left out", reason="The filters leave it out.")
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._writer.prepare(reading)
            except StaleWriteError:
                self._writer.renew()
        return self._writer.prepare(reading)

    def _read_report(self, study: ListedStudy, content: bytes) -> ReadyInstance:
        try:
            source = parse_structured(content)
            report = deidentified(source, self._plan.key)
        except NoReportError as error:
            return ReadyInstance("left out", reason=f"Not a radiologist's report: {error}.")
        except ReportError as error:
            return ReadyInstance("refused", reason=f"A structured report: {error}.")
        if source.studies[:1] != (study.uid,):
            return ReadyInstance("refused", reason="The archive gives another instance than it lists.")
        return ReadyInstance("taken", report=report)

    def _failed(self, fetched: _Fetched) -> bool:
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

    def _write(self, batch: Sequence[_Fetched]) -> None:
        if not batch:
            return
        if self._plan.quarantined is not None:
            # First, as an instance whose outcome is noted is not fetched again.
            self._plan.quarantined.append(film for item in batch for film in item.quarantined())
        instances = [ready for item in batch for ready in item.instances.values()]
        for item in batch:
            if item.piece.gone:
                self.remove(item.piece.study.uid, item.piece.gone)
            # Sent again, a report may have become one that cannot be taken.
            refused = {self._hash("sop", sop) for sop, one in item.instances.items() if one.report is None}
            self.remove_reports(item.piece.reports, refused | item.piece.gone)

        def also(session: Session, outcomes: Mapping[str, str]) -> None:
            if outcomes and self._plan.record is not None:
                self._plan.record(session, outcomes)
            for item in batch:
                self._note_piece(session, item)

        if any(instance.films for instance in instances):
            self._writer.write(instances, also)
        else:
            with self._engine.home.catalogue.write() as session:
                also(session, {})
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

    def _take_reports(self, batch: Sequence[_Fetched]) -> None:
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
        with self._engine.home.catalogue.write() as session:
            if digest is None:
                self._note(session, piece, {name: "refused"}, {})
            else:
                self._note(session, piece, {}, {name: digest})
        if digest is None:
            self._report.count("refused", f"A structured report: {remark}.")
        else:
            self._report.count("taken", remark)
            self._report.reports += 1

    def _note_piece(self, session: Session, item: _Fetched) -> None:
        fetched = {sop: ready.outcome for sop, ready in item.instances.items() if ready.report is None}
        outcomes = {**item.piece.outcomes, **fetched}
        self._note(session, item.piece, {self._hash("sop", sop): one for sop, one in outcomes.items()}, {})

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

    def _remark(self) -> str:
        refused = self._report.refused
        return f"{refused:,} refused" if refused else ""
