"""A collection follows an archive: what is new comes, what is gone goes, and no failure loses a film."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Final

import pytest
from sqlalchemy.exc import ProgrammingError

from app.radiology import sync as syncing
from app.radiology.archive import Archive, ArchiveError, Hours, Pace
from app.radiology.listing import Selection
from index.audit.listing import Selection as EventSelection
from index.audit.listing import read_events
from index.errors import CatalogueError
from index.writes.live import change_image
from tests.app.radiology.conftest import FILMS, Home, sops
from tests.app.radiology.small_archive import Answer, SmallArchive, archive_of, serve
from tests.dicom_films import make_film, uid
from tests.index.audit.trails import taking_no_events
from tests.orthanc import OrthancPrograms, OrthancServer, serve_orthanc


def test_films_come_once_and_later_passes_bring_what_is_new(home: Home, orthanc: OrthancServer) -> None:
    sync, first = home.follow(orthanc, make_film(1), make_film(2, view="LL", study=1), make_film(3))
    assert (first.studies, first.found, first.taken, first.up_to_date) == (2, 3, 3, 0)
    assert home.ids() == sops(1, 2, 3)

    again = sync.run()
    assert (again.studies, again.found, again.taken, again.up_to_date) == (2, 3, 0, 3)

    _, grown = home.follow(orthanc, make_film(4), make_film(5, study=1, view="AP"))
    assert (grown.studies, grown.found, grown.taken, grown.up_to_date) == (3, 5, 2, 3)
    assert home.ids() == sops(1, 2, 3, 4, 5)


def test_a_film_of_a_patient_with_several_ids_comes_with_all_of_them(
    home: Home, orthanc: OrthancServer
) -> None:
    film = make_film(1, OtherPatientIDs=["Q7", "Q8"])
    assert home.follow(orthanc, film)[1].taken == 1
    kept = home.engine.image("films", uid("film", 1)).metadata
    expected = home.reader.rules.attributes(film)["other_patients"]
    assert len(expected) == 2
    assert kept["other_patients"] == expected


@pytest.mark.parametrize("feed", [True, False])
def test_what_the_archive_deletes_vanishes_with_its_feed_and_without_one(
    home: Home, orthanc: OrthancServer, monkeypatch: pytest.MonkeyPatch, feed: bool
) -> None:
    if not feed:
        monkeypatch.setattr("app.radiology.sync.OrthancFeed.connect", lambda _: None)
    sync, first = home.follow(orthanc, make_film(1), make_film(2, study=1), make_film(3), make_film(4))
    assert first.taken == 4
    orthanc.delete(uid("film", 2))
    orthanc.delete(uid("study", 3))
    report = sync.run()
    assert (report.removed, report.found, report.up_to_date) == (2, 2, 2)
    orthanc.store([make_film(5)])
    report = sync.run()
    assert (report.removed, report.taken, report.found) == (0, 1, 3)
    assert home.ids() == sops(1, 4, 5)


def test_named_studies_come_alone_and_the_rest_with_the_next_pass(home: Home, orthanc: OrthancServer) -> None:
    orthanc.store([make_film(1), make_film(2, view="LL", study=1), make_film(3), make_film(4)])
    sync = home.sync(Archive(orthanc.dicom_web))
    named = sync.run([uid("study", 1), uid("study", 9)])
    assert (named.studies, named.taken, named.absent) == (1, 2, 1)
    assert home.ids() == sops(1, 2)
    orthanc.delete(uid("film", 2))
    orthanc.delete(uid("study", 4))
    again = sync.run([uid("study", 1)])
    assert (again.taken, again.up_to_date, again.removed) == (0, 1, 1)
    assert home.ids() == sops(1)
    assert sync.run().studies == 2
    assert home.ids() == sops(1, 3)


def test_a_named_study_that_is_gone_vanishes_and_one_outside_the_filters_is_absent(
    home: Home, orthanc: OrthancServer
) -> None:
    sync, _ = home.follow(orthanc, make_film(1), make_film(2), make_film(3, Modality="CR"))
    orthanc.delete(uid("study", 1))
    gone = sync.run([uid("study", 1)])
    assert (gone.removed, gone.absent) == (1, 0)
    assert home.ids() == sops(2, 3)
    orthanc.store([make_film(4, Modality="CR")])
    narrow = home.sync(Archive(orthanc.dicom_web), Selection(("DX",)))
    assert narrow.run([uid("study", 4)]).absent == 1
    assert home.ids() == sops(2, 3)


@pytest.mark.slow
def test_an_archive_that_lists_none_of_many_studies_removes_nothing(
    home: Home, orthanc: OrthancServer
) -> None:
    sync, _ = home.follow(orthanc, *map(make_film, range(10)))
    for number in range(10):
        orthanc.delete(uid("study", number))
    for _ in range(2):
        with pytest.raises(ArchiveError, match="lists no study, where 10 were known: nothing was removed"):
            sync.run()
    assert home.ids() == sops(*range(10))


def test_a_film_in_the_place_of_another_is_seen(home: Home, orthanc: OrthancServer) -> None:
    sync, _ = home.follow(orthanc, make_film(1), make_film(2, study=1))
    orthanc.delete(uid("film", 2))
    orthanc.store([make_film(3, study=1)])
    report = sync.run()
    assert (report.removed, report.taken, report.up_to_date) == (1, 1, 1)
    assert home.ids() == sops(1, 3)


def test_a_film_that_is_sent_again_is_read_again(home: Home, orthanc: OrthancServer) -> None:
    sync, _ = home.follow(orthanc, make_film(1))
    before = home.engine.overview("films")
    orthanc.store([make_film(1, ViewPosition="AP")])
    assert sync.run().taken == 1
    assert home.ids() == sops(1)
    assert home.engine.overview("films") != before


def test_a_film_that_is_sent_again_keeps_what_an_import_has_said_of_it(
    home: Home, orthanc: OrthancServer
) -> None:
    sync, _ = home.follow(orthanc, make_film(1))
    (name,) = home.ids()
    texts, report = ("A small effusion.",), "A small effusion on the left."
    active = home.engine.active(FILMS)
    change_image(home.engine.home, active, name, lambda old: replace(old, texts=texts, report=report), {})
    orthanc.store([make_film(1, ViewPosition="AP")])
    assert sync.run().taken == 1
    kept = home.engine.image(FILMS, name)
    assert (kept.texts, kept.report) == (texts, report)


def test_filters_leave_out_and_a_wider_one_brings_the_rest(home: Home, orthanc: OrthancServer) -> None:
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
    report = home.sync(Archive(orthanc.dicom_web), narrow).run()
    assert (report.studies, report.taken, report.left_out) == (3, 2, 3)
    assert home.ids() == sops(1, 5)

    wide = home.sync(Archive(orthanc.dicom_web)).run()
    assert (wide.taken, wide.up_to_date, wide.left_out) == (4, 2, 0)
    assert home.ids() == sops(1, 2, 3, 4, 5, 6)


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
    home = {
        1: {"view": "AP", "body_part": "CHEST"},
        2: {"view": "AP SUPINE", "body_part": "CHEST"},
        3: {"view": "PA ERECT", "body_part": "CHEST LUNG"},
        4: {"modality": "DX"},
    }
    selection = Selection((), body_parts, views)
    assert {number for number, metadata in home.items() if selection.takes(metadata)} == taken


@pytest.mark.slow
def test_nothing_is_missing_where_the_archive_cuts_its_answers(
    home: Home, orthanc_programs: OrthancPrograms
) -> None:
    with serve_orthanc(orthanc_programs, {"LimitFindResults": 7, "LimitFindInstances": 7}) as orthanc:
        orthanc.store(make_film(n, StudyDate=f"2024{1 + n % 3:02}{1 + n % 5:02}") for n in range(30))
        orthanc.store(make_film(n, study=99, StudyDate="20240115") for n in range(100, 112))
        orthanc.store([make_film(200, StudyDate=""), make_film(201, StudyDate=None)])
        report = home.sync(Archive(orthanc.dicom_web)).run()
        assert (report.studies, report.taken) == (33, 44)
        assert home.ids() == orthanc.instances()


BROKEN: Final[Answer] = (500, {}, b"")


def test_a_film_that_the_archive_fails_to_give_comes_with_the_next_pass(home: Home) -> None:
    archive = SmallArchive([make_film(n) for n in range(3)])
    answer, broken = archive.answer, [uid("film", 1)]
    archive.answer = lambda target, headers: (  # type: ignore[method-assign]
        BROKEN if any(name in target for name in broken) else answer(target, headers)
    )
    with serve(archive):
        sync = home.sync(archive_of(archive))
        first = sync.run()
        assert (first.found, first.taken, first.refused, first.failures) == (3, 2, 1, 1)
        assert dict(first.reasons) == {"refused: The archive fails with status 500": 1}
        broken.clear()
        second = sync.run()
        assert (second.found, second.taken, second.up_to_date) == (3, 1, 2)
    assert home.ids() == sops(0, 1, 2)


def test_what_a_list_lacks_stays_as_long_as_the_archive_has_it(home: Home) -> None:
    archive = SmallArchive([make_film(n) for n in range(6)])
    with serve(archive):
        sync = home.sync(archive_of(archive))
        assert sync.run().taken == 6
        answer, hidden = archive.answer, archive.films
        # A list without studies; asked for one, the archive has it.
        archive.answer = lambda target, headers: (  # type: ignore[method-assign]
            answer(target, headers) if "StudyInstanceUID=" in target else (204, {}, b"")
        )
        assert sync.run().removed == 0
        assert home.ids() == sops(*range(6))
        archive.answer = answer  # type: ignore[method-assign]
        archive.films = hidden[2:]
        assert sync.run().removed == 2
    assert home.ids() == sops(2, 3, 4, 5)


def test_films_go_with_the_event_that_tells_of_it_or_stay(home: Home) -> None:
    archive = SmallArchive([make_film(n) for n in range(3)])
    catalogue = home.engine.home.catalogue
    with serve(archive):
        sync = home.sync(archive_of(archive))
        sync.run()
        archive.films = archive.films[1:]
        with taking_no_events(catalogue), pytest.raises((CatalogueError, ProgrammingError)):
            sync.run()
        assert home.ids() == sops(0, 1, 2)
        assert sync.run().removed == 1
    assert home.ids() == sops(1, 2)
    with catalogue.read() as session:
        (event,) = read_events(session, EventSelection(action="delete"), limit=10)
    assert event.ids == (uid("film", 0),)
    assert event.record["details"] == {"operation": "pacs sync"}


def test_another_film_in_a_study_of_the_same_size_is_seen_within_a_day(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = SmallArchive([make_film(0, study=7), make_film(1, study=7)])
    with serve(archive):
        sync = home.sync(archive_of(archive))
        sync.run()
        archive.films = [make_film(0, study=7), make_film(2, study=7)]
        assert sync.run().taken == 0
        monkeypatch.setattr(syncing, "_RECHECK", timedelta(0))
        report = sync.run()
        assert (report.taken, report.removed) == (1, 1)
    assert home.ids() == sops(0, 2)


@pytest.mark.slow
def test_an_archive_that_stops_answering_ends_the_pass_and_what_came_stays(home: Home) -> None:
    archive = SmallArchive([make_film(n) for n in range(60)])
    with serve(archive):
        sync = home.sync(archive_of(archive))
        answer, given = archive.answer, []

        def dying(target: str, headers: Mapping[str, str]) -> Answer:
            given.append("/instances/" in target)
            return BROKEN if given[-1] and sum(given) > 30 else answer(target, headers)

        archive.answer = dying  # type: ignore[method-assign]
        with pytest.raises(ArchiveError, match="fails with status 500"):
            sync.run()
        before = home.ids()
        assert 0 < len(before) < 60
        archive.answer = answer  # type: ignore[method-assign]
        report = home.sync(archive_of(archive)).run()
        assert (report.found, report.up_to_date) == (60, len(before))
    assert home.ids() == sops(*range(60))


@pytest.mark.slow
def test_where_the_hours_end_the_next_run_goes_on(home: Home) -> None:
    archive = SmallArchive([make_film(n) for n in range(30)])
    clock = [datetime(2026, 1, 1, 5, 59)]
    answer = archive.answer

    def until_six(target: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        if len(archive.requests) == 40:
            clock[0] = datetime(2026, 1, 1, 6)
        return answer(target, headers)  # type: ignore[return-value]

    archive.answer = until_six  # type: ignore[assignment, method-assign]
    with serve(archive):
        night = Pace(hours=Hours.parse("20-06"), now=lambda: clock[0])
        report = home.sync(archive_of(archive, night)).run()
        assert report.waiting
        assert 0 <= len(home.ids()) < 30
        clock[0] = datetime(2026, 1, 1, 20)
        rest = home.sync(archive_of(archive, night)).run()
        assert not rest.waiting
        assert rest.found == 30
    assert home.ids() == sops(*range(30))


def test_an_instance_that_is_another_than_was_asked_for_is_not_taken(home: Home) -> None:
    archive = SmallArchive([make_film(0), make_film(1)])
    answer = archive.answer
    archive.answer = lambda target, headers: answer(  # type: ignore[method-assign]
        target.replace(uid("film", 0), uid("film", 1)).replace(uid("study", 0), uid("study", 1))
        if "/instances/" in target
        else target,
        headers,
    )
    with serve(archive):
        report = home.sync(archive_of(archive)).run()
    assert (report.taken, report.refused) == (1, 1)
    assert home.ids() == sops(1)
