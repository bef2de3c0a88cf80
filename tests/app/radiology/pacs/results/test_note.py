"""Notes of similar studies, written by the job that indexes a study; what is drawn on their page."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pydicom
import pytest
from PIL import Image

from app.radiology.archive import Archive, ArchiveError
from app.radiology.capture import HEIGHT, NO_LETTERS, WIDTH, SheetFilm, draw_sheet
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


WHITE = Image.new("L", (40, 50), 255)


def _drawn(*cases: SheetFilm) -> np.ndarray:
    page = draw_sheet("Not for diagnosis", "about", SheetFilm(WHITE, "", []), cases)
    assert page.size == (WIDTH, HEIGHT)
    return np.asarray(page)


def _case(sentence: str = "", *facts: str, picture: Image.Image = WHITE) -> SheetFilm:
    return SheetFilm(picture, "", facts, sentence)


def test_films_keep_their_form_and_every_case_has_its_place() -> None:
    page = _drawn(*[_case()] * 6)
    # Columns and rows of white films, 40:50 in squares of 300.
    for row in (0, 1):
        for column in range(3):
            left, top = 628 + column * 322, 96 + row * 540 + 33
            place = page[top : top + 300, left : left + 300]
            assert (place[150] == 255).sum() == 240
            assert (place[:, 150] == 255).sum() == 300
    assert (page[129:689, 24:584] == 255).sum() == 560 * 448


@pytest.mark.parametrize("sentence", ["右側に少量の胸水", "انصباب جنبي", "𝔉\u0001"])
def test_a_sentence_that_cannot_be_drawn_is_named_so(sentence: str) -> None:
    np.testing.assert_array_equal(_drawn(_case(sentence)), _drawn(_case(NO_LETTERS)))
    np.testing.assert_array_equal(_drawn(_case("", sentence, "DX")), _drawn(_case("", "DX")))


@pytest.mark.parametrize("sentence", ["Größer als zuvor.", "Выпот слева", "Ούτε πνευμοθώρακας"])
def test_letters_of_europe_are_drawn(sentence: str) -> None:
    page = _drawn(_case(sentence))
    assert (page != _drawn(_case())).any()
    assert (page != _drawn(_case(NO_LETTERS))).any()


@pytest.mark.parametrize("sentence", ["word " * 300, "x" * 4000])
def test_a_long_sentence_stays_in_its_cell(sentence: str) -> None:
    page, other = _drawn(_case(sentence)), _drawn(_case())
    rows, columns = np.nonzero(page != other)
    assert rows.min() > 96 + 330
    assert rows.max() < 96 + 540
    assert (columns.min(), columns.max() < 628 + 322) == (pytest.approx(630, abs=3), True)


def test_a_page_has_colours_where_a_film_has_them() -> None:
    red = Image.new("RGB", (40, 40), "red")
    page = _drawn(_case(picture=red))
    assert page.shape == (HEIGHT, WIDTH, 3)
    assert (page[96 + 33 + 150, 628 + 150] == (255, 0, 0)).all()
    assert _drawn(_case()).shape == (HEIGHT, WIDTH)


def test_the_setting_names_known_forms_and_needs_an_archive() -> None:
    chosen = Settings.model_validate({"pacs_url": "http://pacs/x", "pacs_write_back": "capture, report"})
    assert chosen.pacs_write_back == ("capture", "report")
    assert Settings().pacs_write_back == ()
    with pytest.raises(ValueError, match="RECOQUEST_PACS_URL"):
        Settings.model_validate({"pacs_write_back": "capture"})
    with pytest.raises(ValueError, match="selection"):
        Settings.model_validate({"pacs_url": "http://pacs/x", "pacs_write_back": "paper"})
