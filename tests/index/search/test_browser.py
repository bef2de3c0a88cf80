"""Lists without a query: their order, and pages while others write and remove."""

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from index.catalogue.collections import TARGETS, Generation, Target
from index.engine import SearchEngine
from index.errors import CursorError, FilterError, QueryError, UnknownCollectionError
from index.filters.grammar import parse_filter
from index.search.request import SearchRequest
from index.search.results import Hit
from index.writes.deletion import delete_images
from tests.index.orders import DIM, PA, all_pages, group_of, make_grouped, name_of
from tests.index.samples import begin_generation, put_vectors, unit_vectors
from training.common.manifest import Record

COUNT = 40
pytestmark = pytest.mark.usefixtures("generation")


@pytest.fixture
def generation(engine: SearchEngine) -> Generation:
    """A collection in two transactions, the second with lower ids than the first."""
    begun = begin_generation(engine, "c", DIM)
    records = make_grouped(COUNT)
    put_vectors(engine, begun, records[20:], unit_vectors(20, DIM))
    put_vectors(engine, begun, records[:20], unit_vectors(20, DIM))
    return begun


def added() -> list[Record]:
    records = make_grouped(COUNT)
    return [*records[20:], *records[:20]]


def listed(engine: SearchEngine, between: Callable[[], None] = lambda: None, **values: Any) -> list[Hit]:
    def page(request: SearchRequest) -> Any:
        if request.cursor is not None:
            between()
        return engine.browse("c", request)

    hits = all_pages(page, SearchRequest(**{"k": 7, **values}))
    assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
    return hits


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
    texts = [(record.id, place) for record in expected for place in range(len(record.texts))]
    assert [name_of(hit) for hit in listed(engine, filter=chosen, target="texts")] == texts
    nothing = engine.browse("c", SearchRequest(filter=parse_filter({"field": "age", "lt": 0})))
    assert (nothing.hits, nothing.count, nothing.next_cursor) == ((), 0, None)


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


def test_a_list_by_words_is_sorted_as_its_images_were_added(engine: SearchEngine) -> None:
    ranked = {hit.id for hit in listed(engine, words="effusion")}
    hits = listed(engine, words="effusion", sort="added", k=3)
    assert [hit.id for hit in hits] == [record.id for record in added() if record.id in ranked]
    assert {hit.found_by for hit in hits} == {("keywords",)}
    with pytest.raises(QueryError, match="one of added") as failed:
        engine.browse("c", SearchRequest(sort="size"))
    assert failed.value.field == "sort"
    with pytest.raises(QueryError, match="goes with a list"):
        engine.search(engine.active("c"), unit_vectors(1, DIM)[0], SearchRequest(sort="added"))


def test_values_of_what_words_list_are_counted(engine: SearchEngine) -> None:
    for passing in (None, parse_filter(PA)):
        request = SearchRequest(words="effusion opacity", filter=passing)
        having = {hit.id for hit in listed(engine, words=request.words, filter=passing)}
        views = Counter(record.metadata["view"] for record in added() if record.id in having)
        counted = engine.facets("c", passing, "view", words=request)
        assert counted.count == engine.count("c", request) == len(having) < COUNT
        assert {value.value: value.count for value in counted.facets[0].values} == views
    whole = engine.facets("c", None, None, words=SearchRequest(words="nowhere"))
    assert (whole.count, [facet.values for facet in whole.facets if facet.values]) == (0, [])
    with pytest.raises(QueryError):
        engine.facets("c", words=SearchRequest(words="..."))


def report_of(name: str) -> str | None:
    return next(record.report for record in added() if record.id == name)


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


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"filter": parse_filter({"field": "age", "gte": 25})},
        {"words": "heart"},
        {"group_by": "group"},
        {"words": "heart", "group_by": "group"},
        {"target": "texts"},
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
                with pytest.raises(CursorError, match="another request"):
                    engine.browse("c", replace(wrong, cursor=cursor))
        # Cursors of queries continue no list, nor the reverse.
        query = unit_vectors(1, DIM)[0]
        searched = engine.search(engine.active("c"), query, request).next_cursor
        with pytest.raises(CursorError):
            engine.browse("c", replace(request, cursor=searched))
        with pytest.raises(CursorError):
            engine.search(engine.active("c"), query, replace(request, cursor=cursor))
    cursor = engine.browse("c", SearchRequest(k=2)).next_cursor
    other = begin_generation(engine, "c", DIM, digest="b" * 64)
    put_vectors(engine, other, added(), unit_vectors(COUNT, DIM, seed=3))
    page = engine.browse("c", SearchRequest(k=2, cursor=cursor))
    assert [hit.id for hit in page.hits] == [record.id for record in added()[2:4]]


def test_what_cannot_be_listed_is_refused(engine: SearchEngine) -> None:
    with pytest.raises(UnknownCollectionError):
        engine.browse("d", SearchRequest())
    with pytest.raises(QueryError, match="goes with a query") as failed:
        engine.browse("c", SearchRequest(diversity=0.5))
    assert failed.value.field == "diversity"
    with pytest.raises(QueryError, match="to group by"):
        engine.browse("c", SearchRequest(group_by="patient"))
    with pytest.raises(FilterError):
        engine.browse("c", SearchRequest(filter=parse_filter({"field": "sex", "eq": "F"})))


def test_lists_by_words_end_where_cursors_do(engine: SearchEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("index.engine.MAX_RANKED", 9)
    hits = listed(engine, words="effusion opacity clear", k=4)
    assert len(hits) == 9
    assert engine.browse("c", SearchRequest(words="effusion opacity clear")).count is None
