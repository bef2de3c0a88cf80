"""A collection brought up to date with an image archive, again and again from where it was."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Final

from app.radiology.archive import ArchiveError, OutsideHoursError
from app.radiology.listing import ListedStudy, OrthancFeed, Selection, StudyList
from app.radiology.transfer import Piece, Run, SyncPlan, SyncReport, examine
from index.catalogue.collections import require_collection
from index.catalogue.studies import (
    Followed,
    KnownStudy,
    Outcome,
    Position,
    forget_study,
    read_position,
    read_studies,
    study_uids,
    write_position,
)
from index.files.stale import remove_stale
from index.writes.intake import prefetch
from training.common.progress import progress_bar

_THREADS: Final = 4
_STUDIES_AT_ONCE: Final = 16
# Without a feed of changes, another instance in the place of one is seen within a day.
_RECHECK: Final = timedelta(hours=24)
# An archive that lists none of so many studies is closed to its user, or was restored empty.
_MANY: Final = 10


@dataclass(frozen=True, slots=True)
class _News:
    """News from the feed of an archive.

    Attributes:
        touched: UIDs of studies that changed, with those of the instances that came in.
        position: Place in the feed that is reached with it; None: there is no feed.
    """

    touched: Mapping[str, Collection[str]] = field(default_factory=dict)
    is_all: bool = False
    position: Position | None = None


class Sync:
    """Brings a collection up to date with an archive.

    Every batch of instances is written in one transaction with what is known of their studies, so a run that
    was stopped or killed goes on where it was.

    Raises:
        UnknownCollectionError: There is no such collection.
        ArchiveError: The archive does not answer.
    """

    def __init__(self, plan: SyncPlan) -> None:
        self._plan = plan
        self._engine = plan.reports.engine
        self._catalogue = self._engine.home.catalogue
        # A collection that cannot be searched takes no films.
        self._engine.active(plan.reports.collection)
        self._hash = plan.hash
        self._studies = StudyList(plan.archive, plan.selection)
        with self._catalogue.read() as session:
            collection_id = require_collection(session, plan.reports.collection).id
        self._followed = Followed(collection_id, self._hash("archive", plan.archive.url))

    def run(self, named: Collection[str] = ()) -> SyncReport:
        """Do one pass.

        Args:
            named: UIDs of the only studies that are looked at; empty: all that is new, changed or gone.

        Raises:
            ArchiveError: The archive does not answer, or fails again and again; what was written stays.
            RecoquestError: The catalogue or the disk cannot be used; what was written stays.
        """
        report = SyncReport()
        # A run that was killed may have left unfinished files.
        remove_stale(self._engine.home.store.unfinished())
        try:
            if named:
                self._pass_over(named, report)
            else:
                self._pass(report)
        except OutsideHoursError:
            report.waiting = True
        if report.has_changed:
            self._engine.save_snapshot(self._plan.reports.collection)
        return report

    @cached_property
    def _feed(self) -> OrthancFeed | None:
        return OrthancFeed.of(self._plan.archive)

    def _pass(self, report: SyncReport) -> None:
        with self._catalogue.read() as session:
            known = read_studies(session, self._followed)
            position = read_position(session, self._followed)
        news = _News() if self._feed is None else self._news(self._feed, position)
        # Without a feed, or after deletions, which no feed has, everything is compared.
        studies = self._named(news.touched) if news.is_all else self._all(report)
        hashed = {self._hash("study", uid) for uid in studies}
        report.studies = len(known.keys() | hashed) if news.is_all else len(studies)
        self._bring_over(studies, known, news.touched, report)
        missing = {name: row for name, row in known.items() if name not in hashed}
        if news.is_all:
            for row in missing.values():
                _count_known(row, report)
        else:
            self._remove_missing(missing, report, lists_none=not studies)
        if news.position is not None and not report.waiting and not report.failures:
            with self._catalogue.write() as session:
                write_position(session, self._followed, news.position)

    def _pass_over(self, uids: Collection[str], report: SyncReport) -> None:
        """Bring over some studies alone; the place in the feed of changes stays."""
        names = {uid: self._hash("study", uid) for uid in uids}
        with self._catalogue.read() as session:
            known = read_studies(session, self._followed)
        studies = self._named(names)
        report.studies = len(studies)
        self._bring_over(studies, known, dict.fromkeys(studies, ()), report)
        absent = [name for uid, name in names.items() if uid not in studies]
        gone = {name: known[name] for name in absent if name in known}
        report.absent = len(absent) - len(gone)
        self._remove_missing(gone, report, lists_none=False)

    def _news(self, feed: OrthancFeed, position: Position | None) -> _News:
        # The position is read first: instances that come in from here on are news to the next pass.
        last, before = feed.last(), feed.count("CountInstances")
        selection = self._plan.selection.dated_digest
        if position is None or last < position.change or position.selection != selection:
            return _News(position=Position(last, before, selection))
        changes = feed.since(position.change)
        expected = position.instances + changes.arrived
        # With deletions, the archive has fewer instances than came in.
        is_all = before <= expected <= feed.count("CountInstances")
        return _News(
            changes.studies, is_all, Position(changes.last, expected if is_all else before, selection)
        )

    def _all(self, report: SyncReport) -> dict[str, ListedStudy]:
        """Return the studies that the archive lists, by UID; the report gets doubts whether these are all."""
        if self._feed is None or self._plan.selection != Selection():
            listed = self._studies.all(date.today())
            report.doubts = list(self._studies.doubts)
            return listed
        count = self._feed.count("CountStudies")
        studies = self._studies.all(date.today(), count)
        if len(studies) < count:
            # The archive may cut its list, as of studies without a date, which cannot be listed apart.
            studies |= self._named([uid for uid in self._feed.study_uids() if uid not in studies])
        return studies

    def _named(self, uids: Collection[str]) -> dict[str, ListedStudy]:
        found = {uid: self._studies.one(uid) for uid in uids}
        return {uid: study for uid, study in found.items() if study is not None}

    def _bring_over(
        self,
        studies: Mapping[str, ListedStudy],
        known: Mapping[str, KnownStudy],
        touched: Mapping[str, Collection[str]],
        report: SyncReport,
    ) -> None:
        todo = []
        for study in studies.values():
            row = known.get(self._hash("study", study.uid))
            if row is not None and study.uid not in touched and self._is_current(study, row):
                _count_known(row, report)
            else:
                todo.append((study, row, touched.get(study.uid, ())))
        run = Run(self._plan, self._followed, report)
        with progress_bar(f"Syncing {self._plan.reports.collection}", len(todo), shown=bool(todo)) as bar:
            run.write_all(self._pieces(todo, report), bar)

    def _is_current(self, study: ListedStudy, row: KnownStudy) -> bool:
        """Tell whether nothing of a study can have changed, as far as its listing shows."""
        if row.checked is None or row.selection != self._plan.selection.digest:
            return False
        if study.count is None or study.count != len(row.instances):
            return False
        return self._feed is not None or datetime.now(UTC) - datetime.fromisoformat(row.checked) < _RECHECK

    def _pieces(
        self,
        todo: Sequence[tuple[ListedStudy, KnownStudy | None, Collection[str]]],
        report: SyncReport,
    ) -> Iterator[Piece]:
        def compare(
            item: tuple[ListedStudy, KnownStudy | None, Collection[str]],
        ) -> tuple[list[Piece], list[Outcome]]:
            return examine(self._plan, *item)

        for batch in prefetch(todo, compare, _STUDIES_AT_ONCE, threads=_THREADS, prefetch_batches=1):
            for _, (pieces, known) in batch:
                for outcome in known:
                    report.count(outcome, known=True)
                yield from pieces

    def _remove_missing(
        self, missing: Mapping[str, KnownStudy], report: SyncReport, *, lists_none: bool
    ) -> None:
        """Remove the films of studies that are not listed any more; the archive is asked again for each."""
        selection = self._plan.selection
        if selection.is_dated:
            days = {self._hash("day", day) for day in selection.days(date.today())}
            missing = {name: row for name, row in missing.items() if row.day in days}
        filters = (selection.digest, selection.former_digest)
        missing = {name: row for name, row in missing.items() if row.selection in filters}
        if not missing:
            return
        if lists_none and len(missing) >= _MANY:
            raise ArchiveError(
                f"The archive lists no study, where {len(missing):,} were known: nothing was removed. See "
                "whether the user may read them; if they are gone, `recoquest delete` removes their films."
            )
        with self._catalogue.read() as session:
            found = study_uids(session, self._followed.collection_id)
            uids = {self._hash("study", uid): uid for uid in found}
        run = Run(self._plan, self._followed, report)
        for name, row in missing.items():
            uid = uids.get(name)
            if uid is not None:
                if self._studies.has(uid):
                    continue
                run.remove(uid, row.instances.keys())
            run.remove_reports(row.reports, row.reports.keys())
            with self._catalogue.write() as session:
                forget_study(session, self._followed, name)


def _count_known(row: KnownStudy, report: SyncReport) -> None:
    for outcome in row.instances.values():
        report.count(outcome, known=True)
