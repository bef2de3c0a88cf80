"""A collection brought up to date with an image archive, again and again from where it was."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Final

from sqlalchemy.orm import Session

from app.decoding.films import FilmReader, Reading
from app.radiology.archive import Archive, ArchiveError, OutsideHoursError
from app.radiology.listing import (
    ListedInstance,
    ListedStudy,
    OrthancFeed,
    Selection,
    StudyList,
    list_instances,
)
from app.radiology.reports import ReportIntake, Taken
from app.radiology.sync_report import QuarantineList, SyncReport
from index.catalogue.collections import require_collection
from index.catalogue.studies import (
    Followed,
    KnownStudy,
    Outcome,
    Position,
    forget_study,
    images_of_study,
    note_study,
    read_position,
    read_studies,
    study_uids,
    write_position,
)
from index.errors import StaleWriteError
from index.files.stale import remove_stale
from index.reports import with_stored_texts
from index.writes.images import Outcome as WriteOutcome
from index.writes.intake import Prepared, compare, embed_pictures, prefetch
from index.writes.live import put_images, read_known_images, remove_images
from training.clinical.pseudonyms import keyed_hash
from training.clinical.reports.structured import SOP_CLASSES, parse_structured
from training.clinical.reports.study_report import NoReportError, ReportError, StudyReport, deidentified
from training.common.errors import ImageError, RecoquestError
from training.common.progress import ProgressBar, progress_bar
from training.imaging.images import decode_whole
from training.imaging.processes.pool import DecodingError

_THREADS: Final = 4
_STUDIES_AT_ONCE: Final = 16
# Without a feed of changes, a replaced instance is noticed within a day.
_RECHECK: Final = timedelta(hours=24)
# An archive that lists none of so many studies is closed to its user, or was restored empty.
_MANY: Final = 10
# Instances of a request and of a transaction: files wait in memory until they are written.
AT_ONCE: Final = 16
# Presentation states, waveforms, documents, segmentations, plans and reports that are no text.
_NO_PICTURE: Final = ("11.", "88.", "9.", "104.", "66", "481.3", "481.5", "481.8")
_STORAGE: Final = "1.2.840.10008.5.1.4.1.1."
_PIECES_AT_ONCE: Final = 4
# So many pieces of studies that the archive fails to give, one after another, end a pass.
_MOST_FAILURES: Final = 20
_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class _Fetched:
    """An instance that came.

    Attributes:
        films: Films to write; unchanged ones are left out.
        generation: Number of the generation that they were prepared for; None: none.
        report: The structured report that it is, without what identifies people; None: it is none.
    """

    outcome: Outcome
    reason: str = ""
    films: tuple[Prepared, ...] = ()
    generation: int | None = None
    report: StudyReport | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Some instances of a study that are fetched and written together.

    Attributes:
        outcomes: Outcomes, by UID, of instances that need not be fetched.
        gone: Hashes of instances that the archive no longer has; with the last piece alone.
        reports: Digests of the study's known reports, by the hash of their UID.
        is_last: Whether the study is done with this piece.
        instances: Those of `to_fetch` that arrived, by UID.
        error: Why the study could not be read, or its instances did not arrive; None if they did.
    """

    study: ListedStudy
    to_fetch: tuple[ListedInstance, ...] = ()
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    reports: Mapping[str, str] = field(default_factory=dict)
    is_last: bool = True
    instances: Mapping[str, _Fetched] = field(default_factory=dict)
    error: RecoquestError | OutsideHoursError | None = None


@dataclass
class Sync:
    """Brings a collection, that of `reports`, up to date with an archive.

    Every batch of instances is written in one transaction with what is known of their studies, so a run that
    was stopped or killed continues where it was.

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

    def __post_init__(self) -> None:
        self._engine = self.reports.engine
        self._catalogue = self._engine.home.catalogue
        self._collection = self.reports.collection
        self._changes = self.reports.changes
        self._studies = StudyList(self.archive, self.selection)
        self._report = SyncReport()
        self._failed_in_a_row = 0
        # A collection that cannot be searched takes no films.
        self._engine.active(self._collection)
        with self._catalogue.read() as session:
            collection_id = require_collection(session, self._collection).id
        self._followed = Followed(collection_id, self._hash("archive", self.archive.url))

    def _hash(self, kind: str, value: str) -> str:
        """Return the keyed hash of what identifies a study, by its kind: archive, study, sop or day."""
        return keyed_hash(self.reader.rules.key, kind, value)

    def run(self, named: Collection[str] = ()) -> SyncReport:
        """Do one pass.

        Args:
            named: UIDs of the only studies to sync; empty: everything new, changed or removed.

        Raises:
            ArchiveError: The archive does not answer, or fails again and again; what was written stays.
            RecoquestError: The catalogue or the disk cannot be used; what was written stays.
        """
        report = self._report = SyncReport()
        # A killed run may have left unfinished files.
        remove_stale(self._engine.home.store.unfinished())
        try:
            if named:
                self._pass_over(named)
            else:
                self._pass()
        except OutsideHoursError:
            report.waiting = True
        if report.has_changed:
            self._engine.save_snapshot(self._collection)
        return report

    @cached_property
    def _feed(self) -> OrthancFeed | None:
        return OrthancFeed.connect(self.archive)

    def _pass(self) -> None:
        report = self._report
        with self._catalogue.read() as session:
            known_studies = read_studies(session, self._followed)
            before = read_position(session, self._followed)
        touched, is_all, position = self._news(before)
        # Without a feed, or after deletions, which no feed has, everything is compared.
        studies = self._named(touched) if is_all else self._all()
        hashed = {self._hash("study", uid) for uid in studies}
        report.studies = len(known_studies.keys() | hashed) if is_all else len(studies)
        self._bring_over(studies, known_studies, touched)
        missing = {name: row for name, row in known_studies.items() if name not in hashed}
        if is_all:
            for row in missing.values():
                self._count_known(row.instances.values())
        else:
            self._remove_missing(missing, lists_none=not studies)
        if position is not None and not report.waiting and not report.failures:
            with self._catalogue.write() as session:
                write_position(session, self._followed, position)

    def _pass_over(self, uids: Collection[str]) -> None:
        """Import only some studies; the position in the feed of changes stays."""
        names = {uid: self._hash("study", uid) for uid in uids}
        with self._catalogue.read() as session:
            known_studies = read_studies(session, self._followed)
        studies = self._named(names)
        self._report.studies = len(studies)
        self._bring_over(studies, known_studies, dict.fromkeys(studies, ()))
        absent = [name for uid, name in names.items() if uid not in studies]
        removed = {name: known_studies[name] for name in absent if name in known_studies}
        self._report.absent = len(absent) - len(removed)
        self._remove_missing(removed, lists_none=False)

    def _news(self, before: Position | None) -> tuple[Mapping[str, Collection[str]], bool, Position | None]:
        """Return the changed studies, as `Changes`, whether that is all, and the position in the feed."""
        feed, selection = self._feed, self.selection.dated_digest
        if feed is None:
            return {}, False, None
        # The position is read first: instances that arrive from here on are new to the next pass.
        last, count = feed.last(), feed.count("CountInstances")
        if before is None or last < before.change or before.selection != selection:
            return {}, False, Position(last, count, selection)
        changes = feed.since(before.change)
        expected = before.instances + changes.arrived
        # With deletions, the archive has fewer instances than came in.
        is_all = count <= expected <= feed.count("CountInstances")
        return changes.studies, is_all, Position(changes.last, expected if is_all else count, selection)

    def _all(self) -> dict[str, ListedStudy]:
        """Return the studies that the archive lists, by UID; the report gets doubts whether these are all."""
        if self._feed is None or self.selection != Selection():
            listed = self._studies.all(date.today())
            self._report.doubts = list(self._studies.doubts)
            return listed
        count = self._feed.count("CountStudies")
        studies = self._studies.all(date.today(), count)
        if len(studies) < count:
            # The archive may cut its list, as of studies without a date, which cannot be listed apart.
            studies |= self._named([uid for uid in self._feed.study_uids() if uid not in studies])
        return studies

    def _named(self, uids: Collection[str]) -> dict[str, ListedStudy]:
        studies = {uid: self._studies.one(uid) for uid in uids}
        return {uid: study for uid, study in studies.items() if study is not None}

    def _bring_over(
        self,
        studies: Mapping[str, ListedStudy],
        known_studies: Mapping[str, KnownStudy],
        touched: Mapping[str, Collection[str]],
    ) -> None:
        self._failed_in_a_row = 0
        todo = []
        for study in studies.values():
            row = known_studies.get(self._hash("study", study.uid))
            if row is not None and study.uid not in touched and self._is_current(study, row):
                self._count_known(row.instances.values())
            else:
                todo.append((study, row, touched.get(study.uid, ())))
        with progress_bar(f"Syncing {self._collection}", len(todo), shown=bool(todo)) as bar:
            self._write_all(self._pieces(todo), bar)

    def _is_current(self, study: ListedStudy, row: KnownStudy) -> bool:
        """Return whether nothing of a study can have changed, as far as its listing shows."""
        if row.checked is None or row.selection != self.selection.digest:
            return False
        if study.count is None or study.count != len(row.instances):
            return False
        return self._feed is not None or datetime.now(UTC) - datetime.fromisoformat(row.checked) < _RECHECK

    def _pieces(
        self, todo: Sequence[tuple[ListedStudy, KnownStudy | None, Collection[str]]]
    ) -> Iterator[Piece]:
        examined = prefetch(
            todo, lambda item: self._examine(*item), _STUDIES_AT_ONCE, threads=_THREADS, prefetch_batches=1
        )
        for batch in examined:
            for _, (pieces, old_outcomes) in batch:
                self._count_known(old_outcomes)
                yield from pieces

    def _examine(
        self, study: ListedStudy, known_study: KnownStudy | None, again: Collection[str]
    ) -> tuple[list[Piece], list[Outcome]]:
        """Compare a study's instances with the known ones; errors of the archive are in the piece.

        `again`: UIDs of instances that arrived again, known or not. Also returns the outcomes of
        earlier passes for instances that still exist.
        """
        try:
            listed = list_instances(self.archive, study, with_attributes=self.selection.looks_inside)
        except (ArchiveError, OutsideHoursError) as error:
            return [Piece(study, error=error)], []
        seen = {} if known_study is None else known_study.instances
        before = dict(seen)
        if known_study is not None and known_study.selection != self.selection.digest:
            before = {name: outcome for name, outcome in before.items() if outcome != "left out"}
        for uid in again:
            before.pop(self._hash("sop", uid), None)
        hashed = {self._hash("sop", instance.sop): instance for instance in listed}
        new = [instance for name, instance in hashed.items() if name not in before]
        to_fetch = [instance for instance in new if self._wants(instance)]
        fetched = {instance.sop for instance in to_fetch}
        left_out: dict[str, Outcome] = {one.sop: "left out" for one in new if one.sop not in fetched}
        gone = frozenset(seen.keys() - hashed.keys())
        reports = {} if known_study is None else known_study.reports
        starts = range(0, max(1, len(to_fetch)), AT_ONCE)
        pieces = [
            Piece(study, tuple(to_fetch[start : start + AT_ONCE]), reports=reports, is_last=False)
            for start in starts
        ]
        pieces[-1] = replace(pieces[-1], outcomes=left_out, gone=gone, is_last=True)
        return pieces, [outcome for name, outcome in before.items() if name in hashed]

    def _wants(self, instance: ListedInstance) -> bool:
        if instance.sop_class in SOP_CLASSES:
            # Filters are about films, and reports belong to all films of their study.
            return True
        if instance.sop_class.removeprefix(_STORAGE).startswith(_NO_PICTURE):
            return False
        if instance.modality and not self.selection.takes_modality(instance.modality):
            return False
        if instance.attributes is None or not self.selection.looks_inside:
            return True
        return self.selection.takes(self.reader.rules.attributes(instance.attributes))

    def _remove_missing(self, missing: Mapping[str, KnownStudy], *, lists_none: bool) -> None:
        """Remove the films of studies that are no longer listed, after asking the archive again for each."""
        selection = self.selection
        if selection.is_dated:
            days = {self._hash("day", day) for day in selection.days(date.today())}
            missing = {name: row for name, row in missing.items() if row.day in days}
        missing = {name: row for name, row in missing.items() if row.selection == selection.digest}
        if not missing:
            return
        if lists_none and len(missing) >= _MANY:
            raise ArchiveError(
                f"The archive lists no study, where {len(missing):,} were known: nothing was removed. See "
                "whether the user may read them; if they are gone, `recoquest delete` removes their films."
            )
        with self._catalogue.read() as session:
            stored_uids = study_uids(session, self._followed.collection_id)
            uids = {self._hash("study", uid): uid for uid in stored_uids}
        for name, row in missing.items():
            uid = uids.get(name)
            if uid is not None:
                if self._studies.has(uid):
                    continue
                self._remove(uid, row.instances.keys())
            self._remove_reports(row.reports, row.reports.keys())
            with self._catalogue.write() as session:
                forget_study(session, self._followed, name)

    def _count_known(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self._report.count(outcome, known=True)

    def _write_all(self, pieces: Iterable[Piece], bar: ProgressBar) -> None:
        """Fetch and write pieces; those whose write was overtaken by another are fetched again at the end."""
        for attempt in range(_ATTEMPTS):
            overtaken: list[Piece] = []
            for batch in prefetch(pieces, self._fetch, _PIECES_AT_ONCE, threads=_THREADS, prefetch_batches=1):
                fetched = [result for _, result in batch]
                try:
                    self._write([item for item in fetched if not self._failed(item)])
                except StaleWriteError:
                    if attempt == _ATTEMPTS - 1:
                        raise
                    # Without their films, which would fill the memory.
                    overtaken += [piece for piece, item in batch if item.error is None]
                    continue
                remark = f"{self._report.refused:,} refused" if self._report.refused else ""
                bar.advance(sum(item.is_last for item in fetched), remark)
            if not overtaken:
                return
            pieces = overtaken

    def _remove(self, study: str, gone: Collection[str]) -> None:
        """Remove the images of instances of a study, by the hashes of their UIDs."""
        with self._catalogue.read() as session:
            images = images_of_study(session, self._followed.collection_id, study)
        ids = [name for sop, names in images.items() if self._hash("sop", sop) in gone for name in names]
        if ids:
            removed = remove_images(self._engine.home, self._collection, ids, self._changes.removed)
            self._report.removed += len(removed)

    def _remove_reports(self, digests_by_sop: Mapping[str, str], gone: Collection[str]) -> None:
        """Remove structured reports; `digests_by_sop` has those of a study, by the hashes of their UIDs."""
        digests = [digest for name, digest in digests_by_sop.items() if name in gone]
        if digests:
            self.reports.remove(digests)
            self._report.reports_removed += len(digests)

    def _fetch(self, piece: Piece) -> Piece:
        if piece.error is not None:
            return piece
        try:
            fetched_by_sop = {
                instance.sop: self._fetch_one(piece.study, instance) for instance in piece.to_fetch
            }
        except (ArchiveError, DecodingError, OutsideHoursError) as error:
            return replace(piece, error=error)
        came = {sop: fetched for sop, fetched in fetched_by_sop.items() if fetched is not None}
        return replace(piece, instances=came)

    def _fetch_one(self, study: ListedStudy, instance: ListedInstance) -> _Fetched | None:
        """Fetch and prepare an instance; None: the archive lists it and does not give it."""
        most = self.reader.limits.max_bytes
        path = f"studies/{study.uid}/series/{instance.series}/instances/{instance.sop}"
        try:
            content = self.archive.get_file(path, most)
        except ArchiveError as error:
            if error.status in (404, 410):
                return None
            raise
        if content is None:
            return _Fetched("refused", f"The file has over {most / 1e6:,.0f} MB.")
        if instance.sop_class in SOP_CLASSES:
            return self._read_report(study, content)
        reading = self.reader.read(content)
        if any(film.record.metadata.get("sop") != instance.sop for film in reading.films):
            return _Fetched("refused", reason="The archive gives another instance than it lists.")
        if any(not self.selection.takes(film.record.metadata) for film in reading.films):
            return _Fetched("left out", reason="The filters leave it out.")
        for _ in range(_ATTEMPTS - 1):
            with suppress(StaleWriteError):
                return self._prepare(reading)
        return self._prepare(reading)

    def _prepare(self, reading: Reading) -> _Fetched:
        if reading.outcome != "taken":
            return _Fetched(reading.outcome, reading.reason)
        model = self.reports.model()
        ready = []
        try:
            stored = read_known_images(
                self._engine.home, model.active, [film.record.id for film in reading.films]
            )
            with self._catalogue.read() as session:
                records = with_stored_texts(
                    session, self._collection, [film.record for film in reading.films]
                )
            for film, record in zip(reading.films, records, strict=True):
                # The file is de-identified: stored as it is.
                item = compare(stored, record, film.content, keep_metadata=True)
                if item.is_new:
                    decoded = decode_whole(item.content, self.reader.limits, model.encoder.min_image_side)
                    item.take_picture(decoded, model.encoder)
                if not item.is_same:
                    ready.append(item)
        except ImageError as error:
            return _Fetched("refused", str(error))
        return _Fetched("taken", "", tuple(ready), model.active.generation)

    def _read_report(self, study: ListedStudy, content: bytes) -> _Fetched:
        try:
            source = parse_structured(content)
            report = deidentified(source, self.reader.rules.key)
        except NoReportError as error:
            return _Fetched("left out", reason=f"Not a radiologist's report: {error}.")
        except ReportError as error:
            return _Fetched("refused", reason=f"A structured report: {error}.")
        if source.studies[:1] != (study.uid,):
            return _Fetched("refused", reason="The archive gives another instance than it lists.")
        return _Fetched("taken", report=report)

    def _failed(self, piece: Piece) -> bool:
        if piece.error is None:
            self._failed_in_a_row = 0
            return False
        if isinstance(piece.error, OutsideHoursError):
            self._report.waiting = True
            return True
        self._failed_in_a_row += 1
        is_refused = isinstance(piece.error, ArchiveError) and piece.error.status in (401, 403)
        if self._failed_in_a_row >= _MOST_FAILURES or is_refused:
            raise piece.error
        self._report.failures += 1
        self._report.count("refused", str(piece.error), number=max(1, len(piece.to_fetch)))
        return True

    def _write(self, batch: Sequence[Piece]) -> None:
        if not batch:
            return
        if self.quarantined is not None:
            # First, as an instance whose outcome is noted is not fetched again.
            self.quarantined.append(
                (item.study.uid, instance.series, instance.sop, fetched.reason)
                for item in batch
                for instance in item.to_fetch
                if (fetched := item.instances.get(instance.sop)) and fetched.outcome == "quarantined"
            )
        for item in batch:
            if item.gone:
                self._remove(item.study.uid, item.gone)
            # A report that is sent again may have become unusable.
            refused = {self._hash("sop", sop) for sop, one in item.instances.items() if one.report is None}
            self._remove_reports(item.reports, refused | item.gone)

        def also(session: Session, outcomes: Mapping[str, str]) -> None:
            if outcomes:
                self._changes.written(session, outcomes)
            for item in batch:
                fetched = {sop: one.outcome for sop, one in item.instances.items() if one.report is None}
                noted = {**item.outcomes, **fetched}
                hashed = {self._hash("sop", sop): outcome for sop, outcome in noted.items()}
                self._note(session, item, hashed, {})

        self._put([fetched for item in batch for fetched in item.instances.values() if fetched.films], also)
        self._take_reports(batch)
        for item in batch:
            for outcome in item.outcomes.values():
                self._report.count(outcome)
            for ready in item.instances.values():
                if ready.report is None:
                    self._report.count(ready.outcome, ready.reason)
            # An instance was deleted meanwhile or is there twice; the next comparison asks again.
            lacking = len(item.to_fetch) - len(item.instances)
            self._report.count("refused", "The archive lists it and does not return it.", number=lacking)

    def _put(
        self,
        instances: Sequence[_Fetched],
        also: Callable[[Session, Mapping[str, WriteOutcome]], None],
    ) -> None:
        """Embed and commit the films of instances, and do something else in the same transaction."""
        if not instances:
            # A pass that finds nothing new loads no encoder.
            with self._catalogue.write() as session:
                also(session, {})
            return
        model = self.reports.model()
        if any(instance.generation != model.active.generation for instance in instances):
            raise StaleWriteError("The collection is searched with another model by now: try again.")
        films = {item.record.id: item for one in instances for item in one.films}
        embed_pictures(model.embedder, films.values())
        put_images(self._engine.home, model.active, [item.write({}) for item in films.values()], also)

    def _take_reports(self, batch: Sequence[Piece]) -> None:
        """Bring structured reports, and those of earlier passes, to the images of their studies.

        Their outcomes are noted at the end: where this is stopped, the next pass fetches them again.
        """
        sent = [
            (item, self._hash("sop", sop), ready.report)
            for item in batch
            for sop, ready in item.instances.items()
            if ready.report is not None
        ]
        taken = self.reports.take([report for _, _, report in sent]) if sent else Taken()
        for index, (item, name, report) in enumerate(sent):
            digest, before = report.digest, item.reports.get(name)
            if index in taken.differing:
                # Its patient is another one.
                digest = ""
            if before is not None and before != digest:
                # The object was sent again with another content.
                self.reports.remove([before])
            with self._catalogue.write() as session:
                self._note(
                    session, item, {} if digest else {name: "refused"}, {name: digest} if digest else {}
                )
            if digest:
                bare = "A structured report no part of which describes the image."
                self._report.count("taken", bare if index in taken.without_text else "")
                self._report.reports += 1
            else:
                self._report.count("refused", f"A structured report: {report.mismatch}.")
        with_films = [item for item in batch if any(ready.films for ready in item.instances.values())]
        self.reports.take_again(dict.fromkeys(item.study.uid for item in with_films))

    def _note(
        self, session: Session, piece: Piece, outcomes: Mapping[str, Outcome], reports: Mapping[str, str]
    ) -> None:
        seen = KnownStudy(
            self._hash("day", piece.study.day),
            self.selection.digest,
            datetime.now(UTC).isoformat(timespec="seconds") if piece.is_last else None,
            outcomes,
            reports,
        )
        note_study(session, self._followed, self._hash("study", piece.study.uid), seen, gone=piece.gone)
