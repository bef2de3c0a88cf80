"""The import of films from DICOM files: de-identified copies, their manifest, and the quarantine."""

import csv
import io
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from training.clinical.dicom.attributes import MODALITIES, silence_pydicom
from training.common.atomic import atomic_file
from training.common.errors import DataError
from training.common.record import Record
from training.common.rejections import LeftOut, Rejection
from training.imaging.images import ImageLimits
from training.importing.dicom.examination import MOST_FRAMES, Examined, Rules, examine
from training.importing.dicom.places import Source, find_places
from training.importing.dicom.workers import examine_all
from training.importing.extraction import FOLDER
from training.importing.listing import Listing, write_listing
from training.importing.report import ImportReport

QUARANTINE_NAME: Final = "quarantine.csv"
_COLUMNS: Final = ("sop", "reason")
_SHOWN: Final = 8
# Names in a source may be those of patients.
_SOURCE: Final = Path("SOURCE")


def import_dicom(
    source: Path,
    out: Path,
    *,
    key: bytes,
    keep_dates: bool = False,
    modalities: frozenset[str] = frozenset(),
    looked_at: Path | None = None,
    limits: ImageLimits | None = None,
    max_rejected: float = 1.0,
) -> ImportReport:
    """Write de-identified films and their manifest; given again, a stopped import goes on.

    Args:
        source: A file, a folder, a zip archive, or a medium with a DICOMDIR.
        out: Folder of the manifest, outside of the source.
        key: Secret of the pseudonyms and of the shifts of dates.
        keep_dates: Keep dates as they are.
        modalities: Modalities that are taken beside those of films, such as CT.
        looked_at: File with SOP Instance UIDs, one a line or in the first column of a table: these are never
            quarantined.
        limits: What an image may cost.
        max_rejected: Largest share of files that may be refused, from 0 to 1.

    Raises:
        DataError: The source cannot be read, too much of it cannot be used, or `out` cannot be written.
    """
    silence_pydicom()
    unknown = sorted(modalities - MODALITIES)
    if unknown:
        raise DataError(f"{unknown[0]} is no modality of images; give one as DICOM writes it, such as CT.")
    places, folder = find_places(source), out / FOLDER
    if out.resolve().is_relative_to(source.resolve()):
        raise DataError("The films are written out: give a second folder for them outside of the source.")
    if not places.places and not places.refused:
        raise DataError("There is no file in the source of the import.")
    if folder.is_symlink():
        raise DataError(f"{folder} leads to images elsewhere; give another folder, or remove the link.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder} cannot be made: {error.strerror}.") from None
    known = frozenset() if looked_at is None else _read_uids(looked_at)
    rules = Rules(folder, key, keep_dates, modalities, known, limits or ImageLimits())
    total = len(places.places) + len(places.refused)
    run = _Import(places, rules, out, list(places.notes))
    listing = Listing(_SOURCE, folder, total, run.items(), "file", places.left_out, run.notes, decoded=True)
    return write_listing(listing, out, max_rejected=max_rejected)


@dataclass
class _Import:
    """The outcome of the files so far.

    Attributes:
        source: The files.
        rules: What is taken.
        out: Folder of the manifest.
        notes: Sentences on the source.
        counts: Number of what is said at the end, by its words.
        seen: Number and digest of each instance.
        quarantined: Reason for each instance.
        taken: Names of films.
        patients: Patients of each study.
    """

    source: Source
    rules: Rules
    out: Path
    notes: list[str]
    counts: Counter[str] = field(default_factory=Counter)
    seen: dict[str, tuple[int, str]] = field(default_factory=dict)
    quarantined: dict[str, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    patients: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def items(self) -> Iterator[Record | Rejection | LeftOut]:
        self._tidy()
        try:
            for refused in self.source.refused:
                yield self._refused(refused.line, refused.reason)
            with closing(examine_all(examine, self.source.places, self.rules)) as outcomes:
                for examined in outcomes:
                    yield from self._outcome(examined)
            self.notes += [f"{words}: {count:,}." for words, count in self.counts.items()]
            if self.quarantined:
                self.notes.append(
                    f"Review the films in {QUARANTINE_NAME}; --take-quarantined takes those that you list."
                )
            self.notes += self._mixed()
            self._write_quarantine()
            os.sync()
        finally:
            self._tidy()

    def _tidy(self) -> None:
        for part in self.rules.folder.glob(".*.part"):
            part.unlink(missing_ok=True)

    def _outcome(self, examined: Examined) -> Iterator[Record | Rejection | LeftOut]:
        number, sop = examined.number, examined.sop
        if examined.refused:
            yield self._refused(number, examined.refused)
        elif examined.left_out:
            yield LeftOut(examined.left_out)
        elif examined.quarantined:
            self.quarantined.setdefault(sop, examined.quarantined)
            yield LeftOut(f"quarantined: {examined.quarantined}")
        elif sop in self.seen:
            before, digest = self.seen[sop]
            if digest == examined.digest:
                yield LeftOut("copies of instances that came before")
            else:
                yield self._refused(number, f"another instance {sop} came before, as file {before}")
        else:
            self.seen[sop] = number, examined.digest
            yield from self._taken(examined)

    def _refused(self, number: int, reason: str) -> Rejection:
        order = f"File numbers are places in: {self.source.order}."
        if order not in self.notes:
            self.notes.append(order)
        return Rejection(number, reason)

    def _taken(self, examined: Examined) -> Iterator[Record]:
        for words, count in (
            (f"Frames left out, above the first {MOST_FRAMES} of a file", examined.frames_left_out),
            (
                "New films read without their window or lookup table, which shows nothing of the picture",
                examined.unfit,
            ),
            ("Files without a SOP Instance UID, with ids made of their content", examined.without_uid),
            ("Files without a Study Instance UID, which are in no study", "study" not in examined.metadata),
        ):
            if count:
                self.counts[words] += count
        patient, study = examined.metadata.get("patient"), examined.metadata.get("study")
        if patient and study:
            self.patients[str(study)].add(str(patient))
        for frame, name in enumerate(examined.films, 1):
            if name in examined.aside:
                examined.aside[name].replace(self.rules.folder / name)
            self.taken.add(name)
            several = len(examined.films) > 1
            yield Record(
                id=name.removesuffix(".dcm"),
                image=name,
                group=examined.group,
                metadata={**examined.metadata, **({"frame": frame} if several else {})},
                line=examined.number,
                # All frames come from one file.
                rows=1 if frame == 1 else 0,
            )

    def _mixed(self) -> Iterator[str]:
        """Give a sentence on each of the first studies with films of several patients."""
        mixed = [study for study, patients in self.patients.items() if len(patients) > 1]
        for study in mixed[:_SHOWN]:
            count = len(self.patients[study])
            yield f"Study {study} has films of {count} patients; each gets only reports that name its own."
        if len(mixed) > _SHOWN:
            yield f"{len(mixed) - _SHOWN:,} more studies have films of several patients."

    def _write_quarantine(self) -> None:
        """Write the table of what a person has to look at; films of these that an earlier import took go."""
        path = self.out / QUARANTINE_NAME
        table = io.StringIO()
        csv.writer(table, lineterminator="\n").writerows([_COLUMNS, *self.quarantined.items()])
        if self.quarantined or path.exists():
            with atomic_file(path) as file:
                file.write(table.getvalue().encode())
        for sop in self.quarantined:
            frames = (f"{sop}.{frame}.dcm" for frame in range(1, MOST_FRAMES + 1))
            # A UID may go on where another one ends.
            for name in {f"{sop}.dcm", *frames} - self.taken:
                (self.rules.folder / name).unlink(missing_ok=True)


def _read_uids(path: Path) -> frozenset[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return frozenset(row[0].strip() for row in csv.reader(file) if row)
    except (OSError, UnicodeDecodeError, csv.Error):
        raise DataError(
            f"{path} cannot be read; give a text file with SOP Instance UIDs, one a line."
        ) from None
