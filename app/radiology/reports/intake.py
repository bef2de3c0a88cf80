"""Reports brought to the images of their studies: stored, matched, and written as a change of an image is."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import partial
from typing import Final

from sqlalchemy.orm import Session

from app.audit.trail import record_command
from app.generations.lifecycle.bulk_encoder import load_bulk_encoder
from app.settings import Settings
from index.audit.event import Action, Detail
from index.catalogue.collections import get_generation, lock_collection, require_collection
from index.engine import SearchEngine
from index.errors import GenerationError, StaleWriteError, UnknownImageError
from index.reports import (
    add_reports,
    count_waiting,
    drop_waiting,
    find_study,
    images_of,
    received_for,
    remove_report,
    reports_after,
    set_study,
)
from index.search.results import ActiveGeneration
from index.writes.embedder import Embedder
from index.writes.live import change_image
from training.clinical.reports.current import NO_REPORT, CurrentReport, current_report
from training.clinical.reports.study_report import StudyReport, study_key
from training.importing.attach_reports import with_report

# Attempts: another writer, or a change of the model, may come between the read and the write.
_TRIES: Final = 3
_STUDIES_KEPT: Final = 64


@dataclass(frozen=True, slots=True)
class Taken:
    """Outcomes of some reports.

    Attributes:
        matched: Number of reports whose study has images.
        waiting: Number of reports whose study has none yet; they are kept.
        differing: Places, among the given ones, of reports whose study has images of another patient alone;
            they are not kept, and their `mismatch` says why.
        changed: Ids of the images that were changed.
        without_text: Places of matched reports that have no text which describes the image.
    """

    matched: int = 0
    waiting: int = 0
    differing: tuple[int, ...] = ()
    changed: tuple[str, ...] = ()
    without_text: tuple[int, ...] = ()


@dataclass
class ReportIntake:
    """Writes reports to one collection; opens its encoder where a text has to be embedded.

    Attributes:
        engine: The engine of the home.
        settings: Say which device computes, and whether there is an audit trail.
        collection: Name of the collection.
        command: Name of the command, for the audit trail.
    """

    engine: SearchEngine
    settings: Settings
    collection: str
    command: str
    _looked: date | None = field(default=None, init=False, repr=False)
    _embedder: Embedder | None = field(default=None, init=False, repr=False)
    _vectors: OrderedDict[str, dict[str, bytes]] = field(default_factory=OrderedDict, init=False, repr=False)

    def take(self, reports: Sequence[StudyReport]) -> Taken:
        """Keep reports, and bring them to the images of their studies; given again, they change nothing.

        All is in the catalogue when it returns.

        Raises:
            UnknownCollectionError: No collection has this name.
            NoActiveGenerationError: The collection has no active generation.
            CatalogueError: The catalogue cannot be used.
            DiskFullError: The disk has no space left.
        """
        # A collection that cannot be searched takes no reports.
        self.engine.active(self.collection)
        self.drop_late()
        studies: dict[str, None] = {}
        kept: list[StudyReport] = []
        differing: list[int] = []
        with self.engine.home.catalogue.write() as session:
            collection_id = require_collection(session, self.collection).id
            lock_collection(session, collection_id)
            found = [find_study(session, collection_id, report) for report in reports]
            for place, (report, (_, others)) in enumerate(zip(reports, found, strict=True)):
                if others:
                    differing.append(place)
                else:
                    kept.append(report)
            add_reports(session, collection_id, kept)
            for report, (study, _) in zip(reports, found, strict=True):
                if study is not None:
                    set_study(session, collection_id, report.digest, study)
                    studies[study] = None
        matched = sum(study is not None for study, _ in found)
        without_text = tuple(
            place for place, (study, _) in enumerate(found) if study and not reports[place].describes
        )
        changed = self._bring(studies)
        return Taken(matched, len(kept) - matched, tuple(differing), changed, without_text)

    def take_waiting(self, *, all_again: bool = False) -> Iterator[Taken]:
        """Bring kept reports to images that came after them, some at a time.

        Args:
            all_again: Also those that were brought to images before, which may have got others since.

        Raises:
            RecoquestError: The same errors as for `take`.
        """
        self.drop_late()
        after = 0
        while True:
            with self.engine.home.catalogue.read() as session:
                collection_id = require_collection(session, self.collection).id
                some = reports_after(session, collection_id, after, waiting=not all_again)
            if not some:
                return
            after = some[-1][0]
            yield self._match([report for _, report in some])

    def _match(self, reports: Sequence[StudyReport]) -> Taken:
        studies: dict[str, None] = {}
        matched = 0
        with self.engine.home.catalogue.write() as session:
            collection_id = require_collection(session, self.collection).id
            for report in reports:
                study, _ = find_study(session, collection_id, report)
                if study is not None:
                    set_study(session, collection_id, report.digest, study)
                    studies[study] = None
                    matched += 1
        return Taken(matched, len(reports) - matched, (), self._bring(studies))

    def take_again(self, uids: Iterable[str]) -> tuple[str, ...]:
        """Bring the reports of studies to their new images, and return the ids of changed images.

        Args:
            uids: Study Instance UIDs.

        Raises:
            RecoquestError: The same errors as for `take`.
        """
        return self._bring([study_key(uid) for uid in uids])

    def remove(self, digests: Iterable[str]) -> None:
        """Remove reports, also from the images of their studies.

        Images get what is left of the reports of their study.

        Raises:
            RecoquestError: The same errors as for `take`.
        """
        with self.engine.home.catalogue.write() as session:
            collection_id = require_collection(session, self.collection).id
            removed = [remove_report(session, collection_id, digest) for digest in digests]
        gone = list(filter(None, removed))
        self._bring(dict.fromkeys(study for study, _ in gone), [report for _, report in gone])

    def waiting(self) -> int:
        """Return the number of reports that wait for images."""
        with self.engine.home.catalogue.read() as session:
            return count_waiting(session, require_collection(session, self.collection).id)

    def drop_late(self) -> int:
        """Remove the reports that wait longer than the settings say, and return their number; once a day."""
        days, today = self.settings.keep_waiting_reports_days, datetime.now(UTC).date()
        if not days or self._looked == today:
            return 0
        self._looked = today
        return self.drop_waiting(days)

    def drop_waiting(self, days: int = 0) -> int:
        """Remove the reports that have waited for images for some days, and return their number."""
        with self.engine.home.catalogue.write() as session:
            count = drop_waiting(session, require_collection(session, self.collection).id, days)
            if count:
                self._record(session, action="delete", reports=count)
        return count

    def _bring(self, studies: Iterable[str], gone: Sequence[StudyReport] = ()) -> tuple[str, ...]:
        """Write the reports of studies that count to their images, and return the ids of changed ones.

        Args:
            studies: Keys of the studies.
            gone: Reports of these that were removed; images that had one and get no other have none.
        """
        changed: list[str] = []
        for study in studies:
            with self.engine.home.catalogue.read() as session:
                collection_id = require_collection(session, self.collection).id
                received = received_for(session, collection_id, study)
                images = images_of(session, collection_id, study)
            patients = set(images.values())
            for patient in patients:
                own = [report for report in received if report.may_be_of(patient, patients)]
                had = any(report.may_be_of(patient, patients) for report in gone)
                current = current_report(own) or (NO_REPORT if had else None)
                if current is not None:
                    of_patient = (image for image, one in images.items() if one == patient)
                    changed += (image for image in of_patient if self._change(image, current))
        return tuple(changed)

    def _change(self, image: str, current: CurrentReport) -> bool:
        for attempt in range(_TRIES):
            active = self.engine.active(self.collection)
            try:
                vectors = self._embedded(active, current.sentences)
                change = partial(with_report, current=current)
                record = partial(self._record, action="change", objects=[image])
                changed = change_image(self.engine.home, active, image, change, vectors, also=record)
                return changed.outcome != "unchanged"
            except UnknownImageError:
                # Removed meanwhile.
                return False
            except (StaleWriteError, GenerationError):
                if attempt == _TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    def _record(
        self, session: Session, *, action: Action, objects: Sequence[str] = (), **details: Detail
    ) -> None:
        """Write an event of the command in the transaction of its change."""
        record_command(
            self.settings,
            self.engine.home.catalogue,
            action,
            self.command,
            session=session,
            collection=self.collection,
            objects=objects,
            further=details,
        )

    def _embedded(self, active: ActiveGeneration, sentences: Sequence[str]) -> dict[str, bytes]:
        """Return vectors of sentences; those of the last studies are kept, whose images share them."""
        if not sentences:
            return {}
        if self._embedder is None or self._embedder.generation.id != active.generation:
            with self.engine.home.catalogue.read() as session:
                generation, _ = get_generation(session, active.generation)
            encoder = load_bulk_encoder(self.engine.home, active.bundle, self.settings.device)
            self._embedder = Embedder(generation, encoder)
            self._vectors.clear()
        key = "\0".join(sentences)
        if key not in self._vectors:
            self._vectors[key] = self._embedder.texts(sentences)
            while len(self._vectors) > _STUDIES_KEPT:
                self._vectors.popitem(last=False)
        return self._vectors[key]
