"""A collection follows an archive: what is new comes, what is gone goes, the quarantined is listed."""

import csv
import os
import stat
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from app.radiology import sync as running
from app.radiology.archive import Archive, ArchiveError
from app.radiology.listing import Selection
from app.radiology.sync_report import COLUMNS, quarantine_list
from index.errors import CatalogueError
from tests.app.radiology.pacs.conftest import Home, sops
from tests.app.radiology.pacs.small_archive import SmallArchive, archive_of, serve
from tests.dicom_films import make_film, uid
from tests.orthanc import OrthancPrograms, OrthancServer, serve_orthanc
from training.common.errors import DataError


def test_films_come_once_and_later_passes_bring_what_is_new(films: Home, orthanc: OrthancServer) -> None:
    orthanc.store([make_film(1), make_film(2, view="LL", study=1), make_film(3)])
    sync = films.sync(Archive(orthanc.dicom_web))
    first = sync.run()
    assert (first.studies, first.found, first.taken, first.up_to_date) == (2, 3, 3, 0)
    assert films.ids() == sops(1, 2, 3)

    again = sync.run()
    assert (again.studies, again.found, again.taken, again.up_to_date) == (2, 3, 0, 3)

    orthanc.store([make_film(4), make_film(5, study=1, view="AP")])
    grown = films.sync(Archive(orthanc.dicom_web)).run()
    assert (grown.studies, grown.found, grown.taken, grown.up_to_date) == (3, 5, 2, 3)
    assert films.ids() == sops(1, 2, 3, 4, 5)


def test_a_film_of_a_patient_with_several_ids_comes_with_all_of_them(
    films: Home, orthanc: OrthancServer
) -> None:
    film = make_film(1, OtherPatientIDs=["Q7", "Q8"])
    orthanc.store([film])
    assert films.sync(Archive(orthanc.dicom_web)).run().taken == 1
    kept = films.engine.image("films", uid("film", 1)).metadata
    expected = films.reader.rules.attributes(film)["other_patients"]
    assert len(expected) == 2
    assert kept["other_patients"] == expected


def test_what_the_archive_deletes_vanishes(films: Home, orthanc: OrthancServer) -> None:
    orthanc.store([make_film(1), make_film(2, study=1), make_film(3), make_film(4)])
    sync = films.sync(Archive(orthanc.dicom_web))
    sync.run()
    orthanc.delete(uid("film", 2))
    orthanc.delete(uid("study", 3))
    report = sync.run()
    assert (report.removed, report.found, report.up_to_date) == (2, 2, 2)
    assert films.ids() == sops(1, 4)


def test_named_studies_come_alone_and_the_rest_with_the_next_pass(
    films: Home, orthanc: OrthancServer
) -> None:
    orthanc.store([make_film(1), make_film(2, view="LL", study=1), make_film(3), make_film(4)])
    sync = films.sync(Archive(orthanc.dicom_web))
    named = sync.run([uid("study", 1), uid("study", 9)])
    assert (named.studies, named.taken, named.absent) == (1, 2, 1)
    assert films.ids() == sops(1, 2)
    orthanc.delete(uid("film", 2))
    orthanc.delete(uid("study", 4))
    again = sync.run([uid("study", 1)])
    assert (again.taken, again.up_to_date, again.removed) == (0, 1, 1)
    assert films.ids() == sops(1)
    assert sync.run().studies == 2
    assert films.ids() == sops(1, 3)


def test_a_named_study_that_is_gone_vanishes_and_one_outside_the_filters_is_absent(
    films: Home, orthanc: OrthancServer
) -> None:
    orthanc.store([make_film(1), make_film(2), make_film(3, Modality="CR")])
    films.sync(Archive(orthanc.dicom_web)).run()
    orthanc.delete(uid("study", 1))
    gone = films.sync(Archive(orthanc.dicom_web)).run([uid("study", 1)])
    assert (gone.removed, gone.absent) == (1, 0)
    assert films.ids() == sops(2, 3)
    orthanc.store([make_film(4, Modality="CR")])
    narrow = films.sync(Archive(orthanc.dicom_web), Selection(("DX",)))
    assert narrow.run([uid("study", 4)]).absent == 1
    assert films.ids() == sops(2, 3)


@pytest.mark.slow
def test_an_archive_that_lists_none_of_many_studies_removes_nothing(
    films: Home, orthanc: OrthancServer
) -> None:
    orthanc.store([make_film(number) for number in range(10)])
    sync = films.sync(Archive(orthanc.dicom_web))
    sync.run()
    for number in range(10):
        orthanc.delete(uid("study", number))
    for _ in range(2):
        with pytest.raises(ArchiveError, match="lists no study, where 10 were known: nothing was removed"):
            sync.run()
    assert films.ids() == sops(*range(10))


def test_a_film_in_the_place_of_another_is_seen(films: Home, orthanc: OrthancServer) -> None:
    orthanc.store([make_film(1), make_film(2, study=1)])
    sync = films.sync(Archive(orthanc.dicom_web))
    sync.run()
    orthanc.delete(uid("film", 2))
    orthanc.store([make_film(3, study=1)])
    report = sync.run()
    assert (report.removed, report.taken, report.up_to_date) == (1, 1, 1)
    assert films.ids() == sops(1, 3)


def test_a_film_that_is_sent_again_is_read_again(films: Home, orthanc: OrthancServer) -> None:
    orthanc.store([make_film(1)])
    sync = films.sync(Archive(orthanc.dicom_web))
    sync.run()
    before = films.engine.overview("films")
    orthanc.store([make_film(1, ViewPosition="AP")])
    assert sync.run().taken == 1
    assert films.ids() == sops(1)
    assert films.engine.overview("films") != before


def test_an_archive_without_a_feed_is_compared(
    films: Home, orthanc: OrthancServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.radiology.sync.OrthancFeed.of", lambda _: None)
    orthanc.store([make_film(1), make_film(2, study=1), make_film(3), make_film(4)])
    sync = films.sync(Archive(orthanc.dicom_web))
    assert sync.run().taken == 4
    orthanc.delete(uid("film", 2))
    orthanc.delete(uid("study", 3))
    orthanc.store([make_film(5)])
    report = sync.run()
    assert (report.removed, report.taken, report.found) == (2, 1, 3)
    assert films.ids() == sops(1, 4, 5)


def test_filters_leave_out_and_a_wider_one_brings_the_rest(films: Home, orthanc: OrthancServer) -> None:
    orthanc.store(
        [
            make_film(1, StudyDate="20240110"),
            make_film(2, view="LL", study=1, StudyDate="20240110"),
            make_film(3, StudyDate="20240301"),
            make_film(4, Modality="CR", StudyDate="20240110"),
            make_film(5, study=4, Modality="DX", view="AP", StudyDate="20240110"),
            make_film(6, BodyPartExamined="HAND", StudyDate="20240110"),
        ]
    )
    narrow = Selection(("DX",), ("CHEST",), ("PA", "AP"), date(2024, 1, 1), date(2024, 1, 31))
    report = films.sync(Archive(orthanc.dicom_web), narrow).run()
    assert (report.studies, report.taken, report.left_out) == (3, 2, 3)
    assert films.ids() == sops(1, 5)

    wide = films.sync(Archive(orthanc.dicom_web)).run()
    assert (wide.taken, wide.up_to_date, wide.left_out) == (4, 2, 0)
    assert films.ids() == sops(1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize(
    ("views", "body_parts", "taken"),
    [
        (("AP",), (), {1, 2}),
        (("AP SUPINE",), (), {2}),
        (("SUPINE AP",), (), {2}),
        (("PA", "AP SUPINE"), (), {2, 3}),
        (("A",), (), set[int]()),
        ((), ("CHEST",), {1, 2, 3}),
        ((), ("LUNG",), {3}),
    ],
)
def test_a_filter_is_passed_by_a_value_that_has_all_its_words(
    views: tuple[str, ...], body_parts: tuple[str, ...], taken: set[int]
) -> None:
    films = {
        1: {"view": "AP", "body_part": "CHEST"},
        2: {"view": "AP SUPINE", "body_part": "CHEST"},
        3: {"view": "PA ERECT", "body_part": "CHEST LUNG"},
        4: {"modality": "DX"},
    }
    selection = Selection((), body_parts, views)
    assert {number for number, metadata in films.items() if selection.takes(metadata)} == taken


@pytest.mark.slow
def test_nothing_is_missing_where_the_archive_cuts_its_answers(
    films: Home, orthanc_programs: OrthancPrograms
) -> None:
    with serve_orthanc(orthanc_programs, {"LimitFindResults": 7, "LimitFindInstances": 7}) as orthanc:
        orthanc.store(make_film(n, StudyDate=f"2024{1 + n % 3:02}{1 + n % 5:02}") for n in range(30))
        orthanc.store(make_film(n, study=99, StudyDate="20240115") for n in range(100, 112))
        orthanc.store([make_film(200, StudyDate=""), make_film(201, StudyDate=None)])
        report = films.sync(Archive(orthanc.dicom_web)).run()
        assert (report.studies, report.taken) == (33, 44)
        assert films.ids() == orthanc.instances()


HEADER = "time,study,series,sop,reason\n"
FILM = ("1.2", "1.2.3", "1.2.3.4", "modality OT, SC, DOC")


def _lines(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_what_a_pass_quarantines_is_listed_once(films: Home, tmp_path: Path) -> None:
    path = tmp_path / "quarantined.csv"
    burnt = [make_film(n, study=7, BurnedInAnnotation="YES") for n in (1, 2)]
    archive = SmallArchive([make_film(0, study=7), *burnt])
    before = datetime.now(UTC).replace(microsecond=0)
    with serve(archive):
        for taken, quarantined in ((1, 2), (0, 2), (0, 3)):
            with quarantine_list(path) as listed:
                report = films.sync(archive_of(archive), quarantined=listed).run()
            assert (report.taken, report.quarantined) == (taken, quarantined)
            if not taken and quarantined == 2:
                archive.films.append(make_film(3, BurnedInAnnotation="YES"))
    lines = _lines(path)
    assert all(before <= datetime.fromisoformat(line.pop("time")) <= datetime.now(UTC) for line in lines)
    assert lines == [
        {
            "study": uid("study", study),
            "series": uid("series", study, "PA"),
            "sop": uid("film", number),
            "reason": "BurnedInAnnotation is YES",
        }
        for number, study in ((1, 7), (2, 7), (3, 3))
    ]
    assert path.read_text().startswith(HEADER)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_film_is_listed_before_the_catalogue_notes_it(
    films: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "quarantined.csv"
    archive = SmallArchive([make_film(1, BurnedInAnnotation="YES")])

    def stopped(*_: object, **__: object) -> None:
        assert [line["sop"] for line in _lines(path)] == [uid("film", 1)]
        raise CatalogueError("stopped")

    with serve(archive), quarantine_list(path) as listed:
        sync = films.sync(archive_of(archive), quarantined=listed)
        with monkeypatch.context() as stopping:
            stopping.setattr(running, "note_study", stopped)
            with pytest.raises(CatalogueError, match="stopped"):
                sync.run()
        assert sync.run().quarantined == 1
    assert [line["sop"] for line in _lines(path)] == [uid("film", 1)] * 2


@pytest.mark.parametrize(
    ("before", "after"), [("", ""), (HEADER, ""), (f"{HEADER}2026-01-01,1,2", "2026-01-01,1,2\n")]
)
def test_lines_are_added_to_those_of_earlier_passes(before: str, after: str, tmp_path: Path) -> None:
    path = tmp_path / "quarantined.csv"
    path.write_text(before)
    with quarantine_list(path) as first, quarantine_list(path) as second:
        assert first is not None
        assert second is not None
        first.append([FILM])
        second.append([FILM])
        first.append([])
    text = path.read_text()
    assert text.startswith(HEADER + after)
    assert [tuple(line.values())[1:] for line in _lines(path)[-2:]] == [FILM, FILM]
    assert text.count("\n") == 3 + bool(after)
    assert ",".join(COLUMNS) + "\n" == HEADER


def test_another_file_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    other, pipe = tmp_path / "looked-at.csv", tmp_path / "pipe"
    other.write_text("sop,reason\n1.2.3,secondary capture\n")
    os.mkfifo(pipe)
    for path, said in (
        (other, "it is not such a list"),
        (pipe, "it is no file"),
        (tmp_path / "none" / "a.csv", "No such file"),
        (tmp_path, "Is a directory"),
    ):
        with (
            pytest.raises(DataError, match=said),
            quarantine_list(path),
        ):
            pass
    assert other.read_text() == "sop,reason\n1.2.3,secondary capture\n"
