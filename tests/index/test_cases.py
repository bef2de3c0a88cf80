"""Case lists: order, notes and bounds of what is kept, and what goes with images and collections."""

from dataclasses import replace

import pytest

from index import cases as module
from index import errors
from index.cases import CaseList, case_lists, delete_list, put_list, read_list, remove_case, save_case
from index.catalogue.tables import CaseEntryRow, CaseListRow
from index.engine import SearchEngine
from index.feedback import User
from index.generations.names import rename_collection
from index.writes.live import remove_images
from tests.index.homes import count_rows, in_read, in_write, remove_collection
from tests.index.samples import ingest, make_manifest, make_picture
from training.common.manifest import Manifest
from training.models.encoder import Encoder


def put(engine: SearchEngine, list_id: str, name: str, collection: str = "c") -> tuple[CaseList, bool]:
    return in_write(engine, put_list, collection, list_id, name)


def save(
    engine: SearchEngine, image: int, note: str | None = "", *, list_id: str = "a", user: User | None = None
) -> tuple[str, bool]:
    with engine.home.catalogue.write() as session:
        entry, existing = save_case(session, "c", list_id, f"image-{image:03}", note, user)
        return entry.note, existing


def entries(engine: SearchEngine, list_id: str = "a", collection: str = "c") -> list[tuple[str, str]]:
    return [(one.image, one.note) for one in in_read(engine, read_list, collection, list_id)[1]]


def lists(engine: SearchEngine, collection: str = "c") -> list[tuple[str, str, int]]:
    return [(one.id, one.name, one.entries) for one in in_read(engine, case_lists, collection)]


def rows_left(engine: SearchEngine) -> tuple[int, int]:
    """Numbers of lists and entries of all collections."""
    return count_rows(engine, CaseListRow), count_rows(engine, CaseEntryRow)


def test_images_stay_in_the_order_in_which_they_came_with_the_last_note(indexed: SearchEngine) -> None:
    result, existing = put(indexed, "a", "Pneumothorax, teaching")
    assert (result.id, result.name, result.entries, existing) == ("a", "Pneumothorax, teaching", 0, False)
    reader = User("key:1", "Dr. A")
    for image in (3, 1, 2):
        assert save(indexed, image, f"note {image}", user=reader) == (f"note {image}", False)
    assert save(indexed, 3, "another") == ("another", True)
    assert save(indexed, 3, None, user=reader) == ("another", True)
    assert entries(indexed) == [("image-003", "another"), ("image-001", "note 1"), ("image-002", "note 2")]
    with indexed.home.catalogue.read() as session:
        result, shown = read_list(session, "c", "a", after=0, limit=1)
        (first,) = read_list(session, "c", "a", limit=1)[1]
    assert result.entries == 3
    assert [(one.image, one.user) for one in shown] == [("image-001", reader)]
    assert first.user is None
    assert first.saved > shown[0].saved
    with indexed.home.catalogue.write() as session:
        assert remove_case(session, "c", "a", "image-001") is True
        assert remove_case(session, "c", "a", "image-001") is False
    assert save(indexed, 1, None) == ("", False)
    assert [image for image, _ in entries(indexed)] == ["image-003", "image-002", "image-001"]


def test_a_list_is_renamed_and_removed_and_names_are_taken_once(indexed: SearchEngine) -> None:
    put(indexed, "a", "One")
    put(indexed, "b", "Another")
    save(indexed, 3)
    assert lists(indexed) == [("b", "Another", 0), ("a", "One", 1)]
    with pytest.raises(errors.CaseListExistsError, match="'One'"):
        put(indexed, "b", "One")
    assert put(indexed, "a", "One")[1] is True
    assert put(indexed, "a", "A first")[0].entries == 1
    assert lists(indexed) == [("a", "A first", 1), ("b", "Another", 0)]
    in_write(indexed, delete_list, "c", "a")
    assert rows_left(indexed) == (1, 0)
    with pytest.raises(errors.UnknownCaseListError, match="'a'"):
        save(indexed, 3)


def test_what_cannot_be_kept_is_refused_and_nothing_is_written(indexed: SearchEngine) -> None:
    put(indexed, "a", "One")
    for wrong in ("nothing", "\x00", "A"):
        with pytest.raises(errors.UnknownCaseListError):
            entries(indexed, wrong)
    with pytest.raises(errors.UnknownCollectionError):
        put(indexed, "a", "One", collection="d")
    with pytest.raises(errors.UnknownImageError):
        save(indexed, 999)
    with pytest.raises(errors.QueryError, match="cannot be stored"):
        save(indexed, 3, "a\x00b")
    with pytest.raises(errors.QueryError, match="cannot be stored"):
        put(indexed, "b", "a\ud800b")
    assert rows_left(indexed) == (1, 0)


def test_lists_and_their_images_are_bounded(indexed: SearchEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (module.MAX_LISTS, module.MAX_ENTRIES) == (200, 1000)
    monkeypatch.setattr(module, "MAX_LISTS", 2)
    monkeypatch.setattr(module, "MAX_ENTRIES", 2)
    put(indexed, "a", "One")
    put(indexed, "b", "Two")
    with pytest.raises(errors.CasesFullError, match="has 2 lists"):
        put(indexed, "c", "Three")
    put(indexed, "b", "Too")
    save(indexed, 1)
    save(indexed, 2)
    with pytest.raises(errors.CasesFullError, match="has 2 images"):
        save(indexed, 3)
    save(indexed, 2, "changed")
    assert rows_left(indexed) == (2, 2)


def test_entries_go_with_their_images_and_lists_with_their_collection(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest
) -> None:
    ingest(indexed, encoder, manifest, "d")
    put(indexed, "a", "One")
    put(indexed, "a", "One", collection="d")
    in_write(indexed, save_case, "d", "a", "image-000", "theirs")
    for image in range(3):
        save(indexed, image, f"note {image}")
    remove_images(indexed.home, "c", ["image-000"])
    assert [image for image, _ in entries(indexed)] == ["image-001", "image-002"]
    # A note is of a case, also where its picture is written again.
    records = [replace(record, texts=("another text",)) for record in manifest.records[1:]]
    make_picture(manifest.folder / records[0].image, seed=1000)
    ingest(indexed, encoder, make_manifest(manifest.folder, records))
    assert entries(indexed) == [("image-001", "note 1"), ("image-002", "note 2")]
    in_write(indexed, rename_collection, "c", "e")
    assert lists(indexed, "e") == [("a", "One", 2)]
    remove_collection(indexed, "e")
    assert rows_left(indexed) == (1, 1)
    assert entries(indexed, collection="d") == [("image-000", "theirs")]
