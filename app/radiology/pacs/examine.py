"""A study beside what is known of it: the instances to fetch, those that are gone, and those left out."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydicom import Dataset

from app.radiology.pacs.dicomweb.archive import Archive, ArchiveError
from app.radiology.pacs.dicomweb.listing import ListedInstance, ListedStudy, list_instances
from app.radiology.pacs.dicomweb.pace import OutsideHoursError
from app.radiology.pacs.selection import Selection
from index.catalogue.studies import KnownStudy, Outcome
from training.clinical.reports.structured import SOP_CLASSES

# Instances of a request and of a transaction: files wait in memory until they are written.
AT_ONCE: Final = 16
# Presentation states, waveforms, documents, segmentations, plans and reports that are no text.
_NO_PICTURE: Final = ("11.", "88.", "9.", "104.", "66", "481.3", "481.5", "481.8")
_STORAGE: Final = "1.2.840.10008.5.1.4.1.1."

ReadAttributes = Callable[[Dataset], Mapping[str, Any]]
# Keyed hash of what identifies a study, by its kind: archive, study, sop or day.
Hash = Callable[[str, str], str]


@dataclass(frozen=True, slots=True)
class Piece:
    """Some instances of a study that are fetched and written together.

    Attributes:
        study: The study.
        wanted: The instances to fetch.
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


@dataclass(frozen=True, slots=True)
class Examined:
    """A study beside what was known of it.

    Attributes:
        pieces: What is to be done.
        known: Outcomes of earlier passes of instances that are still there.
    """

    pieces: tuple[Piece, ...]
    known: tuple[Outcome, ...] = ()


@dataclass(frozen=True, slots=True)
class Examiner:
    """Compares studies with what is known of them; threads may share it.

    Attributes:
        archive: The archive.
        selection: Films that are wanted.
        hash: Keyed hash of UIDs.
        attributes: Metadata of an instance by its DICOM attributes, as `Selection.takes` compares them.
    """

    archive: Archive
    selection: Selection
    hash: Hash
    attributes: ReadAttributes

    def examine(self, study: ListedStudy, known: KnownStudy | None, again: Collection[str] = ()) -> Examined:
        """Look at a study's instances; errors of the archive are in the piece.

        Args:
            study: The study as it is listed.
            known: What is known of it.
            again: UIDs of instances that came in anew, whatever is known of them.
        """
        try:
            listed = list_instances(self.archive, study, with_attributes=self.selection.looks_inside)
        except (ArchiveError, OutsideHoursError) as error:
            return Examined((Piece(study, error=error),))
        before = {} if known is None else dict(known.instances)
        if known is not None and known.selection != self.selection.digest:
            before = {name: outcome for name, outcome in before.items() if outcome != "left out"}
        for uid in again:
            before.pop(self.hash("sop", uid), None)
        hashed = {self.hash("sop", instance.sop): instance for instance in listed}
        new = [instance for name, instance in hashed.items() if name not in before]
        left_out: dict[str, Outcome] = {
            instance.sop: "left out" for instance in new if not self._is_wanted(instance)
        }
        wanted = [instance for instance in new if instance.sop not in left_out]
        gone = frozenset((set() if known is None else known.instances.keys()) - hashed.keys())
        reports = {} if known is None else known.reports
        pieces = tuple(_pieces(study, wanted, left_out, gone, reports))
        return Examined(pieces, tuple(outcome for name, outcome in before.items() if name in hashed))

    def _is_wanted(self, instance: ListedInstance) -> bool:
        if instance.sop_class in SOP_CLASSES:
            # Filters are about films, and reports belong to all films of their study.
            return True
        if not holds_picture(instance.sop_class):
            return False
        if instance.modality and not self.selection.takes_modality(instance.modality):
            return False
        if instance.attributes is None or not self.selection.looks_inside:
            return True
        return self.selection.takes(self.attributes(instance.attributes))


def holds_picture(sop_class: str) -> bool:
    """Tell whether instances of a SOP class may hold a picture; "" is a class that is not known."""
    return not sop_class.removeprefix(_STORAGE).startswith(_NO_PICTURE)


def _pieces(
    study: ListedStudy,
    wanted: Sequence[ListedInstance],
    left_out: Mapping[str, Outcome],
    gone: frozenset[str],
    reports: Mapping[str, str],
) -> Iterator[Piece]:
    for start in range(0, max(1, len(wanted)), AT_ONCE):
        part = tuple(wanted[start : start + AT_ONCE])
        if start + AT_ONCE < len(wanted):
            yield Piece(study, part, reports=reports, is_last=False)
        else:
            yield Piece(study, part, left_out, gone, reports)
