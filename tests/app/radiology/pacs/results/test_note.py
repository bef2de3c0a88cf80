"""Notes of similar studies of other patients, written into a study by the job that indexes it."""

from collections.abc import Sequence
from typing import Final

import pydicom
import pytest

from app.radiology.archive import Archive, ArchiveError
from app.radiology.result_objects import ChosenCases
from app.radiology.write_back import note_forms, write_note
from app.settings import Settings
from tests.app.radiology.pacs.conftest import COLLECTION, Home
from tests.app.radiology.pacs.results.conftest import FILMS, PRIOR, QUERY
from tests.app.radiology.pacs.small_archive import SmallArchive, serve
from tests.dicom_films import MARKER, make_film, uid
from tests.orthanc import OrthancServer

STUDY: Final = uid("study", 1)
FORMS: Final = ("capture", "report")
LATER: Final = [make_film(7, study=1, patient=1, view="LL")]


class Recorded:
    """Cases and objects of the notes that were sent."""

    def __init__(self) -> None:
        self.notes: list[tuple[ChosenCases, Sequence[str]]] = []

    def __call__(self, cases: ChosenCases, sops: Sequence[str]) -> None:
        self.notes.append((cases, sops))


def test_a_note_has_the_most_similar_studies_of_other_patients_and_is_there_once(
    followed: Home, orthanc: OrthancServer
) -> None:
    archive, recorded = Archive(orthanc.dicom_web), Recorded()
    source = f"/dicom-web/studies/{STUDY}/series/{FILMS[0].SeriesInstanceUID}/instances"
    before, series = orthanc.instances(), orthanc.http.get(source).json()
    said = write_note(followed.engine, archive, COLLECTION, STUDY, ["report"], recorded)
    assert said == "Note written: 3 of the most similar studies of other patients."
    ((cases, sops),) = recorded.notes
    assert cases.query.id == uid("film", QUERY)
    assert [hit.same_patient for hit in cases.hits] == [False] * 3
    assert uid("film", PRIOR) not in {hit.sop for hit in cases.hits}
    assert [hit.score for hit in cases.hits] == sorted((hit.score for hit in cases.hits), reverse=True)
    assert orthanc.instances() - before == set(sops)
    # A missing part is added, in a series of its own.
    write_note(followed.engine, archive, COLLECTION, STUDY, FORMS, recorded)
    there = orthanc.instances()
    assert len(there) == len(before) + 2
    assert orthanc.http.get(source).json() == series
    for sop in there - before:
        found = _metadata(orthanc, sop)
        assert found.StudyInstanceUID == STUDY
        assert found.PatientID == FILMS[0].PatientID
        assert f"{MARKER}P3" not in found.to_json()
    for _ in range(2):
        said = write_note(followed.engine, archive, COLLECTION, STUDY, FORMS, recorded)
        assert said == "The study has its note already."
    assert (len(recorded.notes), orthanc.instances()) == (2, there)


def test_a_study_without_films_or_others_like_it_gets_no_note(films: Home, orthanc: OrthancServer) -> None:
    archive, recorded = Archive(orthanc.dicom_web), Recorded()
    # Both are of one patient.
    orthanc.store(FILMS[:2])
    films.sync(archive).run()
    for study in (STUDY, uid("study", 9)):
        said = write_note(films.engine, archive, COLLECTION, study, FORMS, recorded)
        assert said.startswith("No note: "), said
    assert recorded.notes == []
    assert orthanc.instances() == {uid("film", QUERY), uid("film", PRIOR)}


def test_films_that_come_to_a_study_bring_another_note_and_other_studies_none(
    films: Home, orthanc: OrthancServer
) -> None:
    archive, recorded = Archive(orthanc.dicom_web), Recorded()
    for coming, said in ((FILMS[:3], "Note written"), (FILMS[3:], "already"), (LATER, "Note written")):
        orthanc.store(coming)
        films.sync(archive).run()
        assert said in write_note(films.engine, archive, COLLECTION, STUDY, ["report"], recorded)
    assert len({sop for _, sops in recorded.notes for sop in sops}) == 2


def test_a_note_that_the_archive_refuses_is_an_error_after_its_event(followed: Home) -> None:
    recorded, small = Recorded(), SmallArchive([*FILMS], store_answers=[(413, {}, b"")])
    with serve(small), pytest.raises(ArchiveError, match="status 413"):
        write_note(followed.engine, Archive(small.url), COLLECTION, STUDY, ["report"], recorded)
    assert len(recorded.notes) == len(small.stored) == 1


def test_notes_have_the_forms_that_are_stored() -> None:
    assert note_forms(Settings(pacs_url="http://h/x", pacs_write_back=("selection", "report"))) == ["report"]
    assert note_forms(Settings(pacs_url="http://h/x", pacs_write_back=("selection",))) == []


def _metadata(orthanc: OrthancServer, sop: str) -> pydicom.Dataset:
    (found,) = orthanc.http.get("/dicom-web/instances", params={"SOPInstanceUID": sop}).json()
    place = (found[tag]["Value"][0] for tag in ("0020000D", "0020000E", "00080018"))
    study, series, instance = place
    path = f"/dicom-web/studies/{study}/series/{series}/instances/{instance}/metadata"
    return pydicom.Dataset.from_json(orthanc.http.get(path).json()[0])
