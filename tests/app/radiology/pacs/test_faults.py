"""Archives that fail in between, lie about what they have, or may not be asked now: nothing is lost."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import pytest
from sqlalchemy.exc import ProgrammingError

from app.radiology import sync as syncing
from app.radiology.archive import ArchiveError, Hours, Pace
from index.audit.listing import Selection as EventSelection
from index.audit.listing import read_events
from index.errors import CatalogueError
from tests.app.radiology.pacs.conftest import Home, sops
from tests.app.radiology.pacs.small_archive import Answer, SmallArchive, archive_of, serve
from tests.dicom_films import make_film, uid
from tests.index.audit.trails import taking_no_events

BROKEN: Final[Answer] = (500, {}, b"")


def test_a_film_that_the_archive_fails_to_give_comes_with_the_next_pass(films: Home) -> None:
    archive = SmallArchive([make_film(n) for n in range(3)])
    answer, broken = archive.answer, [uid("film", 1)]
    archive.answer = lambda target, headers: (  # type: ignore[method-assign]
        BROKEN if any(name in target for name in broken) else answer(target, headers)
    )
    with serve(archive):
        sync = films.sync(archive_of(archive))
        first = sync.run()
        assert (first.found, first.taken, first.refused, first.failures) == (3, 2, 1, 1)
        assert dict(first.reasons) == {"refused: The archive fails with status 500": 1}
        broken.clear()
        second = sync.run()
        assert (second.found, second.taken, second.up_to_date) == (3, 1, 2)
    assert films.ids() == sops(0, 1, 2)


def test_what_a_list_lacks_stays_as_long_as_the_archive_has_it(films: Home) -> None:
    archive = SmallArchive([make_film(n) for n in range(6)])
    with serve(archive):
        sync = films.sync(archive_of(archive))
        assert sync.run().taken == 6
        answer, hidden = archive.answer, archive.films
        # A list without studies; asked for one, the archive has it.
        archive.answer = lambda target, headers: (  # type: ignore[method-assign]
            answer(target, headers) if "StudyInstanceUID=" in target else (204, {}, b"")
        )
        assert sync.run().removed == 0
        assert films.ids() == sops(*range(6))
        archive.answer = answer  # type: ignore[method-assign]
        archive.films = hidden[2:]
        assert sync.run().removed == 2
    assert films.ids() == sops(2, 3, 4, 5)


def test_films_go_with_the_event_that_tells_of_it_or_stay(films: Home) -> None:
    archive = SmallArchive([make_film(n) for n in range(3)])
    catalogue = films.engine.home.catalogue
    with serve(archive):
        sync = films.sync(archive_of(archive))
        sync.run()
        archive.films = archive.films[1:]
        with taking_no_events(catalogue), pytest.raises((CatalogueError, ProgrammingError)):
            sync.run()
        assert films.ids() == sops(0, 1, 2)
        assert sync.run().removed == 1
    assert films.ids() == sops(1, 2)
    with catalogue.read() as session:
        (event,) = read_events(session, EventSelection(action="delete"), limit=10)
    assert event.ids == (uid("film", 0),)
    assert event.record["details"] == {"operation": "pacs sync"}


def test_another_film_in_a_study_of_the_same_size_is_seen_within_a_day(
    films: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = SmallArchive([make_film(0, study=7), make_film(1, study=7)])
    with serve(archive):
        sync = films.sync(archive_of(archive))
        sync.run()
        archive.films = [make_film(0, study=7), make_film(2, study=7)]
        assert sync.run().taken == 0
        monkeypatch.setattr(syncing, "_RECHECK", timedelta(0))
        report = sync.run()
        assert (report.taken, report.removed) == (1, 1)
    assert films.ids() == sops(0, 2)


@pytest.mark.slow
def test_an_archive_that_stops_answering_ends_the_pass_and_what_came_stays(films: Home) -> None:
    archive = SmallArchive([make_film(n) for n in range(60)])
    with serve(archive):
        sync = films.sync(archive_of(archive))
        answer, given = archive.answer, []

        def dying(target: str, headers: Mapping[str, str]) -> Answer:
            given.append("/instances/" in target)
            return BROKEN if given[-1] and sum(given) > 30 else answer(target, headers)

        archive.answer = dying  # type: ignore[method-assign]
        with pytest.raises(ArchiveError, match="fails with status 500"):
            sync.run()
        before = films.ids()
        assert 0 < len(before) < 60
        archive.answer = answer  # type: ignore[method-assign]
        report = films.sync(archive_of(archive)).run()
        assert (report.found, report.up_to_date) == (60, len(before))
    assert films.ids() == sops(*range(60))


def test_where_the_hours_end_the_next_run_goes_on(films: Home) -> None:
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
        report = films.sync(archive_of(archive, night)).run()
        assert report.waiting
        assert 0 <= len(films.ids()) < 30
        clock[0] = datetime(2026, 1, 1, 20)
        rest = films.sync(archive_of(archive, night)).run()
        assert not rest.waiting
        assert rest.found == 30
    assert films.ids() == sops(*range(30))


def test_an_instance_that_is_another_than_was_asked_for_is_not_taken(films: Home) -> None:
    archive = SmallArchive([make_film(0), make_film(1)])
    answer = archive.answer
    archive.answer = lambda target, headers: answer(  # type: ignore[method-assign]
        target.replace(uid("film", 0), uid("film", 1)).replace(uid("study", 0), uid("study", 1))
        if "/instances/" in target
        else target,
        headers,
    )
    with serve(archive):
        report = films.sync(archive_of(archive)).run()
    assert (report.taken, report.refused) == (1, 1)
    assert films.ids() == sops(1)
