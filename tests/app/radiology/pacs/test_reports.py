"""Structured reports of an archive: at the films of their studies, changed and gone as in the archive."""

from pathlib import Path
from typing import Any

import pytest
from pydicom import Dataset
from pydicom.sequence import Sequence

from app.radiology.archive import Archive, ArchiveError
from app.radiology.listing import Selection
from app.radiology.reports import ReportIntake, Taken
from index.catalogue.collections import require_collection
from index.catalogue.images import require_image
from index.reports import count_waiting
from tests.app.radiology.pacs.conftest import COLLECTION, Home
from tests.dicom_films import MARKER, make_film, uid
from tests.orthanc import OrthancServer
from tests.training.clinical.reports.documents import MARKERS, code, container, structured_report


def make_report(number: int, film: Dataset, *sentences: str, **more: Any) -> Dataset:
    """A structured report in the study of a film, with people in its header."""
    of_film = ("StudyInstanceUID", "AccessionNumber", "PatientID", "PatientName", "StudyDate", "StudyTime")
    own = {
        "SOPInstanceUID": uid("report", number),
        "SeriesInstanceUID": uid("series", film.StudyInstanceUID, "SR"),
        **{name: film[name].value for name in of_film},
    }
    report = structured_report([container("121070", "Findings", *sentences)], **{**own, **more})
    report.file_meta.MediaStorageSOPInstanceUID = report.SOPInstanceUID
    return report


def predecessor(number: int, study: int) -> Sequence:
    """The reference of a later version of a report to the one before."""
    image, series, whole = Dataset(), Dataset(), Dataset()
    image.ReferencedSOPClassUID = structured_report().SOPClassUID
    image.ReferencedSOPInstanceUID = uid("report", number)
    series.SeriesInstanceUID = uid("series", study, "SR")
    series.ReferencedSOPSequence = Sequence([image])
    whole.StudyInstanceUID = uid("study", study)
    whole.ReferencedSeriesSequence = Sequence([series])
    return Sequence([whole])


def _report_of(films: Home, film: int) -> str | None:
    with films.engine.home.catalogue.read() as session:
        return require_image(session, COLLECTION, uid("film", film)).report


def test_a_report_is_at_all_films_of_its_study_also_those_that_come_later(
    films: Home, orthanc: OrthancServer
) -> None:
    orthanc.store([make_film(1), make_film(2, study=1, view="LL"), make_film(3)])
    orthanc.store([make_report(1, make_film(1), "Small left effusion.")])
    sync = films.sync(Archive(orthanc.dicom_web))
    first = sync.run()
    assert (first.found, first.taken, first.reports, first.left_out) == (4, 4, 1, 0)
    assert [_report_of(films, film) for film in (1, 2, 3)] == ["FINDINGS: Small left effusion."] * 2 + [None]
    orthanc.store([make_film(4, study=1, view="AP")])
    grown = sync.run()
    assert (grown.taken, grown.up_to_date, grown.reports) == (1, 4, 0)
    assert _report_of(films, 4) == "FINDINGS: Small left effusion."


def test_a_report_waits_for_films_that_the_filters_let_in(films: Home, orthanc: OrthancServer) -> None:
    orthanc.store([make_film(1, Modality="CR"), make_report(1, make_film(1), "Small left effusion.")])
    orthanc.store([make_film(2, study=1, view="LL")])
    narrow = Selection(("DX",))
    done = films.sync(Archive(orthanc.dicom_web), narrow).run()
    assert (done.taken, done.left_out, done.reports) == (2, 1, 1)
    assert _report_of(films, 2) == "FINDINGS: Small left effusion."
    films.sync(Archive(orthanc.dicom_web)).run()
    assert _report_of(films, 1) == "FINDINGS: Small left effusion."


def test_a_later_version_counts_and_the_one_before_when_it_is_deleted(
    films: Home, orthanc: OrthancServer
) -> None:
    orthanc.store([make_film(1), make_report(1, make_film(1), "Small left effusion.")])
    sync = films.sync(Archive(orthanc.dicom_web))
    sync.run()
    orthanc.store(
        [
            make_report(
                2,
                make_film(1),
                "No effusion.",
                PredecessorDocumentsSequence=predecessor(1, 1),
                ContentDate="20240305",
            )
        ]
    )
    assert sync.run().reports == 1
    assert _report_of(films, 1) == "FINDINGS: No effusion."
    orthanc.delete(uid("report", 2))
    gone = sync.run()
    assert (gone.removed, gone.reports_removed, gone.found) == (0, 1, 2)
    assert _report_of(films, 1) == "FINDINGS: Small left effusion."
    orthanc.delete(uid("report", 1))
    assert sync.run().reports_removed == 1
    assert _report_of(films, 1) is None
    assert films.ids() == {uid("film", 1)}


def test_a_report_that_is_sent_again_is_read_again(films: Home, orthanc: OrthancServer) -> None:
    orthanc.store([make_film(1), make_report(1, make_film(1), "Small left effusion.")])
    sync = films.sync(Archive(orthanc.dicom_web))
    sync.run()
    orthanc.store([make_report(1, make_film(1), "Large left effusion.")])
    assert sync.run().reports == 1
    assert _report_of(films, 1) == "FINDINGS: Large left effusion."
    orthanc.store([make_report(1, make_film(1))])
    emptied = sync.run()
    assert (emptied.refused, emptied.reports, emptied.reports_removed) == (1, 0, 1)
    assert _report_of(films, 1) is None
    (reason,) = emptied.reasons
    assert "no clinical section" in reason


def test_what_stops_before_a_report_is_noted_takes_it_again(
    films: Home, orthanc: OrthancServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = ReportIntake.take

    def stop(intake: ReportIntake, reports: Any) -> Taken:
        take(intake, reports)
        raise ArchiveError("The archive is gone.")

    orthanc.store([make_film(1), make_report(1, make_film(1), "Small left effusion.")])
    with monkeypatch.context() as patch:
        patch.setattr(ReportIntake, "take", stop)
        with pytest.raises(ArchiveError):
            films.sync(Archive(orthanc.dicom_web)).run()
    again = films.sync(Archive(orthanc.dicom_web)).run()
    assert (again.found, again.reports) == (2, 1)
    assert _report_of(films, 1) == "FINDINGS: Small left effusion."
    orthanc.delete(uid("report", 1))
    assert films.sync(Archive(orthanc.dicom_web)).run().reports_removed == 1
    assert _report_of(films, 1) is None


def test_reports_go_with_their_study(films: Home, orthanc: OrthancServer) -> None:
    orthanc.store([make_film(1), make_report(1, make_film(1), "Small left effusion."), make_film(2)])
    orthanc.store([make_report(3, make_film(3), "A study without films.")])
    sync = films.sync(Archive(orthanc.dicom_web))
    assert sync.run().reports == 2
    assert _waiting(films) == 1
    orthanc.delete(uid("study", 1))
    orthanc.delete(uid("study", 3))
    gone = sync.run()
    assert (gone.removed, gone.studies, _waiting(films)) == (1, 1, 0)
    assert films.ids() == {uid("film", 2)}


def test_a_report_of_another_patient_is_refused(films: Home, orthanc: OrthancServer) -> None:
    orthanc.store([make_film(1)])
    films.sync(Archive(orthanc.dicom_web)).run()
    orthanc.store([make_report(1, make_film(1), "Small left effusion.", PatientID=f"{MARKER}P7")])
    done = films.sync(Archive(orthanc.dicom_web)).run()
    assert (done.refused, done.reports) == (1, 0)
    assert _report_of(films, 1) is None


def test_results_of_programs_are_left_out_and_counted(films: Home, orthanc: OrthancServer) -> None:
    orthanc.store([make_film(1), make_report(1, make_film(1), "No pneumothorax.")])
    title = Sequence([code("126000", "DCM", "Imaging Measurement Report")])
    orthanc.store(
        [make_report(2, make_film(1), "Pneumothorax.", ConceptNameCodeSequence=title, ContentDate="20250101")]
    )
    done = films.sync(Archive(orthanc.dicom_web)).run()
    assert (done.reports, done.left_out) == (1, 1)
    assert any("Imaging Measurement Report" in reason for reason in done.reasons)
    assert _report_of(films, 1) == "FINDINGS: No pneumothorax."


def test_no_name_of_a_report_is_kept(films: Home, orthanc: OrthancServer) -> None:
    orthanc.store([make_film(1), make_report(1, make_film(1), f"{MARKER} has a small left effusion.")])
    films.sync(Archive(orthanc.dicom_web)).run()
    assert _report_of(films, 1) == "FINDINGS: ___ has a small left effusion."
    for path in Path(films.settings.home).rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(marker.encode() in content for marker in (*MARKERS, MARKER, uid("report", 1)))


def _waiting(films: Home) -> int:
    with films.engine.home.catalogue.read() as session:
        return count_waiting(session, require_collection(session, COLLECTION).id)
