"""What hits show: findings of images, states that words are looked up in, and sentences with the words."""

from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import select

from index.catalogue import Catalogue
from index.catalogue.collections import Target, require_collection
from index.catalogue.tables import TextRow
from index.engine import SearchEngine
from index.errors import QueryError
from index.filters.column_cache import CollectionState
from index.filters.facets import FacetCounts, FindingCounts
from index.filters.grammar import HasFinding, parse_filter
from index.filters.passing import FieldColumns, texts_saying
from index.search.request import SearchRequest, stated_findings
from index.search.results import Hit, HitImages, SearchPage
from index.vectors.protocol import Keys
from tests.index.meanwhile import note_calls
from tests.index.orders import all_pages
from tests.index.samples import begin_generation, make_records, put_records, put_vectors, unit_vectors
from training.clinical.findings import STATES, State
from training.common.manifest import Record

COUNT = 40
ABSENT = "No pleural effusion."
PRESENT = "Small pleural effusion."
NO_EFFUSION = stated_findings("no pleural effusion")


def _report(number: int) -> str | None:
    return (ABSENT, PRESENT, None, "Possible effusion.")[number % 4]


@pytest.fixture
def filled(engine: SearchEngine) -> SearchEngine:
    """Images from near the query to far from it; every fourth report says that there is no effusion."""
    angles = np.linspace(0, 1.5, COUNT)
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    reports = [_report(number) for number in range(COUNT)]
    records = [
        Record(
            id=f"{number:02}",
            image="x.png",
            split="train",
            texts=(report or "A chest.", f"Chest {number}."),
            report=report,
            group=f"{number // 4}",
        )
        for number, report in enumerate(reports)
    ]
    generation = begin_generation(engine, "c", 2)
    put_vectors(engine, generation, records, vectors, texts=vectors)
    return engine


def _search(engine: SearchEngine, request: SearchRequest) -> SearchPage:
    query = np.array([1, 0], dtype=np.float32)
    return engine.search(engine.active("c"), query, request)


def _ids(page: SearchPage) -> list[str]:
    return [hit.id for hit in page.hits]


def test_what_says_that_it_is_absent_comes_first(filled: SearchEngine) -> None:
    plain = _search(filled, SearchRequest(k=COUNT))
    preferred = _search(filled, SearchRequest(k=COUNT, stated=NO_EFFUSION))
    assert _ids(plain) == sorted(_ids(plain))
    saying = [f"{number:02}" for number in range(COUNT) if _report(number) == ABSENT]
    assert _ids(preferred)[: len(saying)] == saying
    assert sorted(_ids(preferred)) == _ids(plain)
    assert preferred.fused and not plain.fused
    for hit in preferred.hits:
        assert hit.found_by == (("vector", "findings") if hit.id in saying else ("vector",))


def test_its_pages_follow_each_other(filled: SearchEngine) -> None:
    for request in (
        SearchRequest(k=7, stated=NO_EFFUSION),
        SearchRequest(k=7, stated=NO_EFFUSION, group_by="group"),
        SearchRequest(k=7, stated=NO_EFFUSION, words="chest"),
        SearchRequest(k=7, stated=NO_EFFUSION, filter=parse_filter({"field": "id", "gte": "03"})),
    ):
        whole = _search(filled, replace(request, k=COUNT))
        paged = all_pages(lambda request: _search(filled, request), request)
        assert [hit.id for hit in paged] == _ids(whole)


def test_where_nothing_says_so_the_order_is_plain(filled: SearchEngine) -> None:
    stated = stated_findings("no hernia")
    request = SearchRequest(k=7, stated=stated)
    page = _search(filled, request)
    assert not page.fused
    assert _ids(page) == _ids(_search(filled, SearchRequest(k=7)))
    paged = all_pages(lambda request: _search(filled, request), request)
    assert [hit.id for hit in paged] == _ids(_search(filled, SearchRequest(k=COUNT)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no pleural effusion", [("pleural effusion", "absent")]),
        ("cardiomegaly without oedema", [("cardiomegaly", "present"), ("pulmonary edema", "absent")]),
        ("pleural effusion", []),
        ("a dog without a leash", []),
    ],
)
def test_only_texts_that_state_an_absence_prefer_anything(
    text: str, expected: list[tuple[str, State]]
) -> None:
    assert stated_findings(text) == tuple(HasFinding(finding=name, state=state) for name, state in expected)


@pytest.mark.parametrize("state", ["present", "absent", "uncertain"])
@pytest.mark.parametrize("target", ["images", "texts"])
def test_words_are_looked_up_in_one_state(filled: SearchEngine, target: Target, state: State) -> None:
    request = SearchRequest(k=2 * COUNT, words="effusion", target=target)
    every = [hit for hit in _search(filled, request).hits if "keywords" in hit.found_by]
    some = [
        hit for hit in _search(filled, replace(request, words_state=state)).hits if "keywords" in hit.found_by
    ]
    says = {"present": PRESENT, "absent": ABSENT, "uncertain": "Possible effusion."}[state]
    assert len(every) == COUNT * 3 // 4
    assert sorted(hit.id for hit in some) == sorted(hit.id for hit in every if _report(int(hit.id)) == says)
    listed = filled.browse("c", replace(request, words_state=state))
    assert {(hit.id, hit.image.text) for hit in listed.hits} == {(hit.id, hit.image.text) for hit in some}
    if target == "texts":
        assert {hit.image.text.text for hit in some if hit.image.text} == {says}


def test_a_state_needs_words_that_name_a_finding(filled: SearchEngine) -> None:
    for words in (None, "chest"):
        with pytest.raises(QueryError, match="name a finding") as failed:
            _search(filled, SearchRequest(words=words, words_state="present"))
        assert failed.value.field == "keywords_state"


def test_states_of_more_texts_are_looked_up_than_a_statement_can_name(filled: SearchEngine) -> None:
    with filled.home.catalogue.read() as session:
        texts = np.array(session.execute(select(TextRow.id).order_by(TextRow.id)).scalars().all())
        keys = np.arange(300_000, dtype=np.int64)[::-1]
        saying = texts_saying(session, keys, NO_EFFUSION)
        assert saying.tolist() == texts_saying(session, texts[::-1], NO_EFFUSION).tolist()
    assert len(saying) == COUNT // 4


@pytest.mark.parametrize("target", ["images", "texts"])
def test_hits_say_what_their_images_say_of_findings(filled: SearchEngine, target: Target) -> None:
    page = _search(filled, SearchRequest(k=COUNT, target=target))
    assert len(page.hits) == COUNT
    for hit in page.hits:
        messages = {("absent", "present", "", "uncertain")[int(hit.id) % 4]: ("pleural effusion",)}
        assert hit.image.findings == {state: messages.get(state, ()) for state in STATES}


@pytest.mark.parametrize("in_memory", [True, False])
def test_findings_are_counted_by_state_of_all_images_and_under_a_filter(
    filled: SearchEngine, in_memory: bool
) -> None:
    catalogue = filled.home.catalogue
    fields = FieldColumns(10_000 if in_memory else 0)
    with catalogue.reading() as reading:
        row = require_collection(reading.session, "c")
        state = CollectionState(reading, row.id, row.sequence)

        def count(keys: Keys | None) -> object:
            return FacetCounts(state, fields, keys).findings()

        assert count(None) == (FindingCounts("pleural effusion", 10, 10, 10),)
        keys = np.array([1, 2, 3, 4, 5], dtype=np.int64)
        assert count(keys) == (FindingCounts("pleural effusion", 1, 1, 2),)
        assert count(keys[:0]) == ()
    assert filled.overview("c").findings == (FindingCounts("pleural effusion", 10, 10, 10),)
    uncertain = parse_filter({"finding": "effusion", "state": "uncertain"})
    assert filled.facets("c", uncertain, None, "").findings == (FindingCounts("pleural effusion", 0, 10, 0),)


# What SQLite takes unless it was built otherwise.
MAX_VALUES = 32_766
REPORT = (
    "FINDINGS: The heart is normal.\nThere is a small left\npleural effusion. Dr. Roe saw an effusion "
    "and a nodule.\n\nIMPRESSION: none."
)


@pytest.fixture
def films(engine: SearchEngine) -> SearchEngine:
    records = [
        Record(id="texts", image="x", split="val", texts=("clear", "an effusion", "nodule, effusion, 胸水")),
        Record(id="report", image="x", split="val", texts=("a film",), report=REPORT),
        Record(id="long", image="x", split="val", texts=(f"{'so ' * 300}nodule {'on ' * 300}",)),
        Record(id="neither", image="x", split="val", texts=("a film",), report="Nothing."),
    ]
    generation = begin_generation(engine, "c", 4)
    put_vectors(engine, generation, records, unit_vectors(4, 4), unit_vectors(4, 4, seed=2))
    return engine


def marked(hit: Hit) -> tuple[str, list[str]] | None:
    if hit.matched is None:
        return None
    return hit.matched.text, [hit.matched.text[start:end] for start, end in hit.matched.spans]


def test_the_text_with_most_of_the_words_is_shown_with_their_places(films: SearchEngine) -> None:
    results = {hit.id: hit for hit in films.browse("c", SearchRequest(words="effusion nodule")).hits}
    assert marked(results["texts"]) == ("nodule, effusion, 胸水", ["nodule", "effusion"])
    assert marked(results["report"]) == ("Dr. Roe saw an effusion and a nodule.", ["effusion", "nodule"])
    assert results.keys() == {"texts", "report", "long"}
    (hit,) = films.browse("c", SearchRequest(words="left")).hits
    assert marked(hit) == ("There is a small left pleural effusion.", ["left"])
    (hit,) = films.browse("c", SearchRequest(words="胸水")).hits
    assert marked(hit) == ("nodule, effusion, 胸水", ["胸水"])
    # A long text is cut around its words.
    text, words = marked(results["long"]) or ("", [])
    assert (words, len(text), text.index("nodule")) == (["nodule"], 402, 121)
    assert text[0] == text[-1] == "\u2026"


def test_a_fused_search_marks_what_has_the_words_and_nothing_else(films: SearchEngine) -> None:
    query = unit_vectors(1, 4, seed=5)[0]
    hits = films.search(films.active("c"), query, SearchRequest(words="effusion")).hits
    assert {hit.id for hit in hits if hit.matched} == {"texts", "report"}
    assert {hit.id for hit in hits if "keywords" in hit.found_by} == {"texts", "report"}
    assert all(hit.matched is None for hit in films.search(films.active("c"), query, SearchRequest()).hits)


def test_a_found_text_is_looked_at_alone(films: SearchEngine) -> None:
    request = SearchRequest(words="effusion", target="texts")
    results = [(hit.image.text, marked(hit)) for hit in films.browse("c", request).hits]
    assert [(text.text, match) for text, match in results if text is not None] == [
        ("an effusion", ("an effusion", ["effusion"])),
        ("nodule, effusion, 胸水", ("nodule, effusion, 胸水", ["effusion"])),
    ]


def test_no_read_has_more_values_than_databases_take(
    engine: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_records(engine, make_records(3), 4)
    requested = note_calls(monkeypatch, Catalogue, "rows", lambda _, read, keys: (read, len(keys)))
    result = HitImages(engine.home.catalogue).get(range(MAX_VALUES + 10, 0, -1))
    assert {image.id for image in result if image is not None} == {record.id for record in make_records(3)}
    assert result[-3:] == [image for image in result if image is not None]
    counts = [count for _, count in requested]
    # One reads images with their texts, the other findings.
    assert len({read for read, _ in requested}) == 2
    assert sum(counts) == 2 * (MAX_VALUES + 10)
    assert max(counts) <= MAX_VALUES
