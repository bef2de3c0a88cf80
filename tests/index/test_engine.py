"""The engine: searches and lists see every write done before them, and one state of catalogue and vectors."""

import gc
import math
import random
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, get_args

import numpy as np
import pytest

from index import errors
from index.catalogue.collections import TARGETS, Generation, Target
from index.engine import SearchEngine
from index.filters.facets import Overview
from index.filters.grammar import parse_filter
from index.generations.activation import activate, mark_preloading
from index.generations.reindex import generation_for, reindex
from index.scoring import Background
from index.search.orders import LIST_ORDERS, VectorRanking
from index.search.request import SearchRequest, Sort
from index.search.results import CollectionInfo, Hit
from index.vectors.protocol import Vectors
from index.vectors.view import CosineView
from index.writes.deletion import delete_images
from tests.index.homes import in_write, open_home, remove_collection
from tests.index.meanwhile import at_first, concurrently, statements
from tests.index.orders import DIM, PA, Filled, all_pages, group_of, make_grouped, name_of, query_of
from tests.index.samples import (
    begin_generation,
    ingest,
    make_manifest,
    make_records,
    put_records,
    put_vectors,
    unit_vectors,
)
from training.common.manifest import Record
from training.models.encoder import Encoder

MANY = 300


@pytest.mark.parametrize(
    "vector",
    [
        np.ones(DIM + 1, np.float32),
        np.ones((1, DIM), np.float32),
        np.zeros(DIM, np.float32),
        np.full(DIM, np.nan, np.float32),
        np.full(DIM, np.inf, np.float32),
    ],
)
def test_a_vector_that_is_no_query_is_refused(filled: Filled, vector: Vectors) -> None:
    with pytest.raises(errors.QueryError):
        filled.engine.search(filled.engine.active("signed"), vector, SearchRequest(k=5))


def test_what_is_unknown_is_named(filled: Filled) -> None:
    engine, active = filled.engine, filled.engine.active("signed")
    with pytest.raises(errors.UnknownCollectionError, match="There are: blades, signed, unsigned"):
        engine.active("d")
    for call in (engine.image, engine.image_path):
        with pytest.raises(errors.UnknownCollectionError):
            call("d", "image-001")
        with pytest.raises(errors.UnknownImageError, match="no image 'nobody'"):
            call("signed", "nobody")
    with pytest.raises(errors.UnknownImageError):
        engine.vector_of(active, "nobody")
    with pytest.raises(errors.FilterError, match="Did you mean 'view'"):
        filled.search("signed", SearchRequest(filter=parse_filter({"field": "veiw", "eq": "PA"})))
    for other in (replace(active, id=99), replace(active, digest="b" * 64)):
        with pytest.raises(errors.GenerationError):
            engine.search(other, query_of(), SearchRequest(k=5))


def test_lists_say_what_is_searched_with_what(engine: SearchEngine) -> None:
    assert engine.collections() == []
    assert engine.models() == []
    begin_generation(engine, "empty", DIM, digest="b" * 64, name="later")
    generation = put_records(engine, make_records(3), DIM)
    first, second = engine.collections()
    assert replace(first, fields=()) == CollectionInfo(
        "c", 3, generation.id, "made-up", generation.digest, ()
    )
    assert {field.name: field.kinds for field in first.fields} == {
        "id": ("text",),
        "split": ("text",),
        "group": ("text",),
        "labels": ("text",),
        "age": ("number",),
        "view": ("text",),
        "urgent": ("boolean",),
    }
    assert replace(second, fields=()) == CollectionInfo("empty", 0, None, None, None, fields=())
    assert engine.collection("c") == first
    assert engine.names() == ["c", "empty"]
    assert [(model.name, model.dim, model.collections) for model in engine.models()] == [
        ("made-up", DIM, ("c",)),
        ("later", DIM, ()),
    ]
    with pytest.raises(errors.NoActiveGenerationError, match="empty"):
        engine.active("empty")


def test_what_another_process_wrote_is_found_by_the_next_search(engine: SearchEngine, tmp_path: Path) -> None:
    generation = begin_generation(engine, "c", DIM)
    vectors = unit_vectors(40, DIM)
    put_vectors(engine, generation, make_records(20), vectors[:20])
    active = engine.active("c")
    assert len(engine.search(active, vectors[30], SearchRequest(k=100)).hits) == 20
    condition = parse_filter({"field": "age", "gte": 35})
    assert len(engine.search(active, vectors[30], SearchRequest(k=100, filter=condition)).hits) == 5
    other = open_home(tmp_path / "home", engine.home.catalogue.url)
    put_vectors(other, generation, make_records(40)[20:], vectors[20:])
    other.close()
    assert engine.search(active, vectors[30], SearchRequest(k=1)).hits[0].id == "image-030"
    assert len(engine.search(active, vectors[30], SearchRequest(k=100, filter=condition)).hits) == 25


def test_searches_beside_writes_never_fail_or_repeat(engine: SearchEngine) -> None:
    generation = begin_generation(engine, "c", DIM)
    vectors = unit_vectors(MANY, DIM)
    put_vectors(engine, generation, make_records(20), vectors[:20])
    active = engine.active("c")

    def search(over: Event) -> None:
        seen = 0
        while not over.is_set():
            ids = [hit.id for hit in engine.search(active, vectors[0], SearchRequest(k=MANY)).hits]
            assert ids[0] == "image-000"
            assert seen <= len(ids) == len(set(ids))
            seen = len(ids)

    with concurrently(*[search] * 3):
        for first in range(20, MANY, 40):
            records = make_records(MANY)[first : first + 40]
            put_vectors(engine, generation, records, vectors[first : first + 40])
    assert len(engine.search(active, vectors[0], SearchRequest(k=MANY)).hits) == MANY


def test_names_that_no_database_can_hold_are_unknown_without_asking_it(engine: SearchEngine) -> None:
    put_records(engine, make_records(1), DIM)
    with statements() as sent:
        for name in ("c\0", "\ud800"):
            for call in (engine.active, engine.collection, engine.overview):
                with pytest.raises(errors.UnknownCollectionError):
                    call(name)
            with pytest.raises(errors.UnknownCollectionError):
                engine.image(name, "a")
            with pytest.raises(errors.UnknownImageError):
                engine.image("c", name)
    assert not any("\\x00" in repr(values) or "\\ud800" in repr(values) for _, values in sent)


COUNT = 30
QUERY = unit_vectors(1, DIM, seed=3)[0]


@pytest.fixture
def small(engine: SearchEngine) -> SearchEngine:
    put_records(engine, make_records(COUNT), DIM)
    return engine


def _ids(engine: SearchEngine, request: SearchRequest) -> list[str]:
    return [hit.id for hit in engine.search(engine.active("c"), QUERY, request).hits]


def _put(engine: SearchEngine, record: Record, vector: Vectors) -> None:
    put_vectors(engine, begin_generation(engine, "c", DIM), [record], vector[None])


def test_a_request_is_resolved_anew_after_every_write(small: SearchEngine) -> None:
    record = make_records(COUNT)[4]
    request = SearchRequest(k=COUNT, exclude_groups_of=(record.id,))
    shown = _ids(small, request)
    assert _ids(small, request) == shown
    assert len(shown) > COUNT - 6
    moved = next(each for each in make_records(COUNT) if each.id == shown[0])
    _put(small, replace(moved, group=record.group), unit_vectors(1, DIM, seed=9)[0])
    assert moved.id not in _ids(small, request)
    assert set(_ids(small, request)) == {*shown} - {moved.id}


def test_filters_that_python_takes_for_equal_are_two(small: SearchEngine) -> None:
    query = {"field": "urgent", "eq": True}
    assert _ids(small, SearchRequest(filter=parse_filter(query)))
    with pytest.raises(errors.FilterError, match="urgent"):
        _ids(small, SearchRequest(filter=parse_filter(query | {"eq": 1})))


def test_a_hit_is_of_one_state_though_it_is_replaced_during_the_search(
    small: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search has begun when an image gets another vector and other texts, and the view follows."""
    active, request = small.active("c"), SearchRequest(k=COUNT)
    last = small.search(active, QUERY, request).hits[-1].id
    record = next(each for each in make_records(COUNT) if each.id == last)

    def change() -> None:
        _put(small, replace(record, texts=("Now the nearest.",)), QUERY)
        small.warm(active.generation)

    at_first(monkeypatch, VectorRanking, "page", change)
    first = small.search(active, QUERY, request).hits[0]
    assert (first.id, first.image.texts) == (last, ("Now the nearest.",))


def test_hits_of_a_filter_that_was_judged_after_a_write_show_what_was_written(
    small: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search has looked at the catalogue's version, but not yet at what passes, when an image changes."""
    active = small.active("c")
    every = small.search(active, QUERY, SearchRequest(k=COUNT)).hits
    changed = next(hit.id for hit in every if hit.image.metadata["view"] == "AP")
    record = next(each for each in make_records(COUNT) if each.id == changed)
    record = replace(record, metadata={**record.metadata, "view": "PA"})
    at_first(monkeypatch, SearchEngine, "_resolve", lambda: _put(small, record, QUERY), behind=True)
    passing = parse_filter({"field": "view", "eq": "PA"})
    hits = small.search(active, QUERY, SearchRequest(k=COUNT, filter=passing)).hits
    assert changed in {hit.id for hit in hits}
    assert {hit.image.metadata["view"] for hit in hits} == {"PA"}


def test_what_is_resolved_during_a_write_is_of_no_one_version(
    small: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    active, request = small.active("c"), SearchRequest()
    record, vector = make_records(COUNT)[0], unit_vectors(1, DIM, seed=9)[0]
    at_first(monkeypatch, SearchRequest, "bound", lambda: _put(small, record, vector))
    assert small._resolve(active, QUERY, request).version is None
    assert small._resolve(active, QUERY, request).version == small.home.catalogue.version()


def test_a_collection_that_is_removed_during_its_first_search_gives_no_hits(
    small: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    active = small.active("c")
    at_first(monkeypatch, SearchEngine, "_resolve", lambda: remove_collection(small, "c"), behind=True)
    assert small.search(active, QUERY, SearchRequest()).hits == ()


@pytest.mark.slow
@pytest.mark.parametrize("removed", [True, False])
def test_no_search_holds_a_view_that_is_freed(
    small: SearchEngine, monkeypatch: pytest.MonkeyPatch, *, removed: bool
) -> None:
    monkeypatch.setattr("index.views.manager._IDLE_SECONDS", -1.0)
    _ids(small, SearchRequest())
    active = small.active("c")
    generation, _ = small._generation(active)
    view = weakref.ref(small._views.entry(generation, "images").view)
    assert view() is not None
    if removed:
        small._views.keep(set(), set())
    else:
        small._views.keep({active.generation}, {active.generation + 1})
    gc.collect()
    assert view() is None
    assert len(_ids(small, SearchRequest())) == 10


def test_a_view_that_is_damaged_is_not_searched_again(
    small: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = _ids(small, SearchRequest())
    generation, _ = small._generation(small.active("c"))
    held = small._views.entry(generation, "images")
    damaged = held.view
    assert isinstance(damaged, CosineView)
    damaged._inconsistent = True
    damaged.remove(damaged.keys())
    assert _ids(small, SearchRequest()) == shown
    assert held.view is not damaged


def test_a_background_that_another_thread_measures_again_is_not_kept(small: SearchEngine) -> None:
    """The view has twice as many images, and the first search that would measure them has not ended."""
    active = small.active("c")
    small.search(active, QUERY, SearchRequest())
    records = [replace(record, id=f"more-{record.id}") for record in make_records(COUNT)]
    put_records(small, records, DIM, seed=5)
    with small._views._entries[active.generation, "images"].background.lock:
        before = small.search(active, QUERY, SearchRequest())
    after = small.search(active, QUERY, SearchRequest())
    assert before.hits == after.hits
    assert before.z_scores != after.z_scores


def test_a_collection_that_is_gone_is_unknown_to_a_search_that_began_before(small: SearchEngine) -> None:
    active = small.active("c")
    small.search(active, QUERY, SearchRequest())
    remove_collection(small, "c")
    with pytest.raises(errors.UnknownCollectionError):
        small.search(active, QUERY, SearchRequest())
    with pytest.raises(errors.UnknownCollectionError):
        small.vector_of(active, make_records(1)[0].id)


LISTED = 40


@pytest.fixture
def generation(engine: SearchEngine) -> Generation:
    """A collection in two transactions, the second with lower ids than the first."""
    begun = begin_generation(engine, "c", DIM)
    records = make_grouped(LISTED)
    put_vectors(engine, begun, records[20:], unit_vectors(20, DIM))
    put_vectors(engine, begun, records[:20], unit_vectors(20, DIM))
    return begun


def added() -> list[Record]:
    records = make_grouped(LISTED)
    return [*records[20:], *records[:20]]


def listed(engine: SearchEngine, between: Callable[[], None] = lambda: None, **values: Any) -> list[Hit]:
    def page(request: SearchRequest) -> Any:
        if request.cursor is not None:
            between()
        return engine.browse("c", request)

    hits = all_pages(page, SearchRequest(**{"k": 7, **values}))
    assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
    return hits


@pytest.mark.usefixtures("generation")
@pytest.mark.parametrize("passing", [None, PA])
def test_all_or_what_passes_comes_as_it_was_added(engine: SearchEngine, passing: object) -> None:
    chosen = None if passing is None else parse_filter(passing)
    expected = [record for record in added() if passing is None or record.metadata["view"] == "PA"]
    hits = listed(engine, filter=chosen)
    assert [hit.id for hit in hits] == [record.id for record in expected]
    assert all(math.isnan(hit.score) and math.isnan(hit.cosine) for hit in hits)
    assert {(hit.found_by, hit.others, hit.matched) for hit in hits} == {((), None, None)}
    page = engine.browse("c", SearchRequest(k=3, filter=chosen))
    assert (page.count, page.exact, page.z_scores, page.confident) == (len(expected), True, None, None)
    texts = [(record.id, position) for record in expected for position in range(len(record.texts))]
    assert [name_of(hit) for hit in listed(engine, filter=chosen, target="texts")] == texts
    nothing = engine.browse("c", SearchRequest(filter=parse_filter({"field": "age", "lt": 0})))
    assert (nothing.hits, nothing.count, nothing.next_cursor) == ((), 0, None)


@pytest.mark.usefixtures("generation")
def test_words_alone_list_their_matches_by_rank(engine: SearchEngine) -> None:
    words = "effusion opacity"
    having = {
        record.id
        for record in added()
        if {*words.split()} & {*f"{record.report} {' '.join(record.texts)}".split()}
    }
    hits = listed(engine, words=words)
    assert {hit.id for hit in hits} == having
    assert len(hits) == len(having) == engine.browse("c", SearchRequest(words=words)).count
    assert {hit.found_by for hit in hits} == {("keywords",)}
    # Images with both come before those with one.
    both = [{*words.split()} <= {*f"{hit.image.texts} {report_of(hit.id)}".split()} for hit in hits]
    assert both.index(False) > 0
    narrowed = listed(engine, words=words, filter=parse_filter(PA))
    passing = {record.id for record in added() if record.metadata["view"] == "PA"}
    assert [hit.id for hit in narrowed] == [hit.id for hit in hits if hit.id in passing]
    texts = listed(engine, words=words, target="texts")
    assert texts
    assert all({*hit.image.text.text.split()} & {*words.split()} for hit in texts if hit.image.text)


@pytest.mark.usefixtures("generation")
def test_a_list_by_words_is_sorted_as_its_images_were_added(engine: SearchEngine) -> None:
    ranked = {hit.id for hit in listed(engine, words="effusion")}
    hits = listed(engine, words="effusion", sort="added", k=3)
    assert [hit.id for hit in hits] == [record.id for record in added() if record.id in ranked]
    assert {hit.found_by for hit in hits} == {("keywords",)}
    unknown: Any = "size"
    with pytest.raises(errors.QueryError, match="one of added, newest") as failed:
        engine.browse("c", SearchRequest(sort=unknown))
    assert failed.value.field == "sort"
    with pytest.raises(errors.QueryError, match="goes with a list"):
        engine.search(engine.active("c"), unit_vectors(1, DIM)[0], SearchRequest(sort="added"))


@pytest.mark.usefixtures("generation")
@pytest.mark.parametrize(
    "values", [{}, {"filter": parse_filter(PA)}, {"words": "heart"}, {"target": "texts"}], ids=str
)
def test_the_newest_come_first_and_stand_for_their_groups(
    engine: SearchEngine, values: dict[str, Any]
) -> None:
    assert {*get_args(Sort)} == {*LIST_ORDERS}
    expected = [name_of(hit) for hit in listed(engine, sort="added", **values)][::-1]
    assert [name_of(hit) for hit in listed(engine, sort="newest", k=3, **values)] == expected
    groups = {record.id: group_of(record, "group") for record in added()}
    last = {groups[name]: (name, position) for name, position in expected[::-1]}
    hits = listed(engine, sort="newest", group_by="group", k=3, **values)
    assert [name_of(hit) for hit in hits] == [name for name in expected if name in last.values()]


@pytest.mark.usefixtures("generation")
def test_values_of_what_words_list_are_counted(engine: SearchEngine) -> None:
    for passing in (None, parse_filter(PA)):
        request = SearchRequest(words="effusion opacity", filter=passing)
        having = {hit.id for hit in listed(engine, words=request.words, filter=passing)}
        views = Counter(record.metadata["view"] for record in added() if record.id in having)
        counted = engine.facets("c", passing, "view", words=request)
        assert counted.count == engine.count("c", request) == len(having) < LISTED
        assert {value.value: value.count for value in counted.facets[0].values} == views
    whole = engine.facets("c", None, None, words=SearchRequest(words="nowhere"))
    assert (whole.count, [facet.values for facet in whole.facets if facet.values]) == (0, [])
    with pytest.raises(errors.QueryError):
        engine.facets("c", words=SearchRequest(words="..."))


def report_of(name: str) -> str | None:
    return next(record.report for record in added() if record.id == name)


@pytest.mark.usefixtures("generation")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("field", ["group", "view", "labels", "age"])
def test_groups_have_one_hit_each_and_count_the_rest(
    engine: SearchEngine, field: str, target: Target
) -> None:
    groups = {record.id: group_of(record, field) for record in added()}
    for values in ({}, {"filter": parse_filter(PA)}, {"words": "effusion"}):
        single = listed(engine, target=target, **values)
        hits = listed(engine, target=target, group_by=field, **values)
        firsts = {groups[hit.id]: name_of(hit) for hit in reversed(single)}
        assert [name_of(hit) for hit in hits] == [
            name_of(hit) for hit in single if firsts[groups[hit.id]] == name_of(hit)
        ]
        if "words" not in values:
            sizes = Counter(groups[hit.id] for hit in single)
            assert [hit.others for hit in hits] == [sizes[groups[hit.id]] - 1 for hit in hits]
        page = engine.browse("c", SearchRequest(target=target, group_by=field, **values))
        assert page.count == len(hits)


@pytest.mark.usefixtures("generation")
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"filter": parse_filter({"field": "age", "gte": 25})},
        {"words": "heart"},
        {"group_by": "group"},
        {"words": "heart", "group_by": "group"},
        {"target": "texts"},
        {"sort": "newest"},
        {"sort": "newest", "group_by": "group"},
    ],
    ids=str,
)
def test_no_hit_comes_twice_and_none_is_passed_over_while_others_write(
    engine: SearchEngine, generation: Generation, values: dict[str, Any]
) -> None:
    records = {record.id: record for record in added()}
    before = [name_of(hit) for hit in listed(engine, **values)]
    draw, removed, numbers = random.Random(0), set[str](), iter(range(10_000))

    def write() -> None:
        there = sorted(records.keys() - removed)
        with engine.home.catalogue.write() as session:
            gone = draw.choice(there)
            delete_images(session, "c", [gone])
        removed.add(gone)
        rewritten = records[draw.choice([name for name in there if name != gone])]
        new = replace(records["image-003"], id=f"a-{next(numbers)}", group=f"new-{next(numbers)}")
        put_vectors(engine, generation, [replace(rewritten, split="val"), new], unit_vectors(2, DIM, seed=9))

    shown = [name_of(hit) for hit in listed(engine, write, k=3, **values)]
    assert len(removed) > 2
    assert max(Counter(shown).values()) == 1
    stayed = [name for name in before if name[0] not in removed]
    if "words" not in values:
        assert [name for name in shown if name in before and name[0] not in removed] == stayed
    if "group_by" in values:
        groups = {name: group_of(record, "group") for name, record in records.items()}
        assert {groups[name] for name, _ in stayed} <= {groups[name] for name, _ in shown if name in groups}
    else:
        assert {*stayed} <= {*shown}


@pytest.mark.usefixtures("generation")
def test_cursors_are_of_one_list_and_outlive_another_generation(engine: SearchEngine) -> None:
    requests = [
        SearchRequest(k=2, **values)
        for values in ({}, {"filter": parse_filter(PA)}, {"words": "heart"}, {"group_by": "group"})
    ]
    for request in requests:
        cursor = engine.browse("c", request).next_cursor
        assert engine.browse("c", replace(request, k=9, cursor=cursor)).hits
        for wrong in requests:
            if wrong is not request:
                with pytest.raises(errors.CursorError, match="another request"):
                    engine.browse("c", replace(wrong, cursor=cursor))
        # Cursors of queries continue no list, nor the reverse.
        query = unit_vectors(1, DIM)[0]
        searched = engine.search(engine.active("c"), query, request).next_cursor
        with pytest.raises(errors.CursorError):
            engine.browse("c", replace(request, cursor=searched))
        with pytest.raises(errors.CursorError):
            engine.search(engine.active("c"), query, replace(request, cursor=cursor))
    cursor = engine.browse("c", SearchRequest(k=2)).next_cursor
    put_records(engine, added(), DIM, seed=3, digest="b" * 64)
    page = engine.browse("c", SearchRequest(k=2, cursor=cursor))
    assert [hit.id for hit in page.hits] == [record.id for record in added()[2:4]]


@pytest.mark.usefixtures("generation")
def test_what_cannot_be_listed_is_refused(engine: SearchEngine) -> None:
    with pytest.raises(errors.UnknownCollectionError):
        engine.browse("d", SearchRequest())
    with pytest.raises(errors.QueryError, match="goes with a query") as failed:
        engine.browse("c", SearchRequest(diversity=0.5))
    assert failed.value.field == "diversity"
    with pytest.raises(errors.QueryError, match="to group by"):
        engine.browse("c", SearchRequest(group_by="patient"))
    with pytest.raises(errors.FilterError):
        engine.browse("c", SearchRequest(filter=parse_filter({"field": "sex", "eq": "F"})))


@pytest.mark.usefixtures("generation")
def test_lists_by_words_end_where_cursors_do(engine: SearchEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("index.engine.MAX_RANKED", 9)
    hits = listed(engine, words="effusion opacity clear", k=4)
    assert len(hits) == 9
    assert engine.browse("c", SearchRequest(words="effusion opacity clear")).count is None


_DIM = 12
PA_ALONE = parse_filter({"field": "view", "eq": "PA"})


@pytest.fixture
def service(tmp_path: Path, encoder: Encoder) -> Iterator[SearchEngine]:
    """An engine that has done nothing yet, on two collections."""
    with writer(tmp_path) as engine:
        manifest = make_manifest(tmp_path / "data", make_records(30))
        for name in ("kept", "removed"):
            ingest(engine, encoder, manifest, name)
    with writer(tmp_path) as engine:
        yield engine


@contextmanager
def writer(folder: Path) -> Iterator[SearchEngine]:
    """Another process's engine."""
    engine = open_home(folder / "home")
    yield engine
    engine.close()


def vectors_read(sent: list[tuple[str, Any]]) -> list[str]:
    """The statements that read vectors, except those written after a place."""
    return [
        statement
        for statement, values in sent
        if "embeddings.vector" in statement and not ("sequence > ?" in statement and values[1] > 0)
    ]


def search_all(engine: SearchEngine, collection: str, generation: int) -> None:
    """Search images and texts, and what is asked for needs a scale of scores."""
    active = engine.active(collection)
    assert active.generation == generation
    for target in TARGETS:
        page = engine.search(active, unit_vectors(1, _DIM)[0], SearchRequest(kind="text", target=target))
        assert page.z_scores is not None


def test_first_searches_of_what_is_warm_read_no_vectors(service: SearchEngine) -> None:
    number = service.active("kept").generation
    with statements() as sent:
        service.warm(number)
        assert vectors_read(sent)
        sent.clear()
        search_all(service, "kept", number)
    assert vectors_read(sent) == []


def test_what_is_warm_before_it_is_active_stays_warm(
    service: SearchEngine, tmp_path: Path, other_encoder: Encoder
) -> None:
    """Searches of the generation before do not push the next one out of memory."""
    with writer(tmp_path) as engine:
        later = generation_for(engine.home, "kept", other_encoder)
        reindex(engine, later, other_encoder, show_progress=False)
        before = service.active("kept").generation
        service.warm(before)
        service.warm(later.id)
        with statements() as sent:
            search_all(service, "kept", before)
            in_write(engine, activate, later, texts=True)
            search_all(service, "kept", later.id)
    assert vectors_read(sent) == []


def held() -> list[int]:
    """How many views, backgrounds and overviews there are in memory."""
    gc.collect()
    everything = gc.get_objects()
    return [sum(type(each) is kind for each in everything) for kind in (CosineView, Background, Overview)]


@pytest.mark.slow
@pytest.mark.parametrize("elsewhere", [False, True])
def test_nothing_is_held_of_a_removed_collection(
    service: SearchEngine, tmp_path: Path, elsewhere: bool
) -> None:
    def use(name: str) -> None:
        active = service.active(name)
        service.warm(active.generation)
        service.overview(name)
        service.search(active, unit_vectors(1, _DIM)[0], SearchRequest(kind="text", filter=PA_ALONE))

    use("kept")
    before = held()
    use("removed")
    assert held() == [before[0] + 2, before[1] + 2, before[2] + 1]
    if elsewhere:
        with writer(tmp_path) as engine:
            remove_collection(engine, "removed")
        assert held() != before
        service.forget_removed()
    else:
        remove_collection(service, "removed")
    assert held() == before
    with statements() as sent:
        search_all(service, "kept", service.active("kept").generation)
    assert vectors_read(sent) == []


@pytest.mark.slow
def test_views_of_a_replaced_generation_are_freed_once_nobody_uses_them(
    service: SearchEngine, tmp_path: Path, other_encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = service.active("kept").generation
    with writer(tmp_path) as engine:
        later = generation_for(engine.home, "kept", other_encoder)
        reindex(engine, later, other_encoder, show_progress=False)
        service.warm(first)
        service.warm(later.id)
        both = held()[0]
        in_write(engine, mark_preloading, later)
        monkeypatch.setattr("index.views.manager._IDLE_SECONDS", -1.0)
        service.forget_removed()
        assert held()[0] == both
        in_write(engine, activate, later, texts=True)
    monkeypatch.setattr("index.views.manager._IDLE_SECONDS", 60.0)
    service.forget_removed()
    assert held()[0] == both
    monkeypatch.setattr("index.views.manager._IDLE_SECONDS", -1.0)
    service.forget_removed()
    assert held()[0] == both - 2
