"""Known studies of an archive: kept by collection and archive, merged, and gone with them."""

from index.catalogue import studies
from index.catalogue.collections import add_collection
from index.catalogue.studies import Followed, KnownStudy, Position
from index.catalogue.tables import ArchiveRow, ArchiveStudyRow
from index.engine import SearchEngine
from tests.index.homes import count_rows, remove_collection

_FIRST = KnownStudy("day", "selection", None, {"one": "taken", "two": "refused"})


def _followed(engine: SearchEngine) -> tuple[Followed, Followed]:
    """Two archives of a collection."""
    with engine.home.catalogue.write() as session:
        key = add_collection(session, "films").id
    return Followed(key, "first"), Followed(key, "second")


def test_outcomes_of_a_study_are_added_to_those_before_and_others_go(engine: SearchEngine) -> None:
    first, second = _followed(engine)
    later = KnownStudy("day", "wider", "2026-11-27T10:00:00+00:00", {"two": "taken", "three": "quarantined"})
    with engine.home.catalogue.write() as session:
        studies.note_study(session, first, "study", _FIRST)
        studies.note_study(session, second, "study", _FIRST)
        studies.note_study(session, first, "study", later, gone=["one"])
    with engine.home.catalogue.read() as session:
        assert studies.read_studies(session, first) == {
            "study": KnownStudy("day", "wider", later.checked, {"two": "taken", "three": "quarantined"})
        }
        assert studies.read_studies(session, second) == {"study": _FIRST}
    with engine.home.catalogue.write() as session:
        studies.forget_study(session, first, "study")
        assert studies.read_studies(session, first) == {}
        assert studies.read_studies(session, second) == {"study": _FIRST}


def test_the_place_in_a_feed_is_that_of_one_archive(engine: SearchEngine) -> None:
    first, second = _followed(engine)
    with engine.home.catalogue.write() as session:
        assert studies.read_position(session, first) is None
        studies.write_position(session, first, Position(3, 2, "filters"))
        studies.write_position(session, first, Position(2**40, 5, "filters"))
    with engine.home.catalogue.read() as session:
        assert studies.read_position(session, first) == Position(2**40, 5, "filters")
        assert studies.read_position(session, second) is None


def test_a_collection_takes_what_is_known_with_it(engine: SearchEngine) -> None:
    first, second = _followed(engine)
    with engine.home.catalogue.write() as session:
        for followed in (first, second):
            studies.note_study(session, followed, "study", _FIRST)
            studies.write_position(session, followed, Position(1, 1, ""))
    remove_collection(engine, "films")
    assert (count_rows(engine, ArchiveRow), count_rows(engine, ArchiveStudyRow)) == (0, 0)
