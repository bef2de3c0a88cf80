"""Every order of hits against a slow reference, and its pages against one long list."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import delete, select, update

from index.catalogue.tables import EmbeddingRow, ImageRow, ModelRow, RemovalRow, TextEmbeddingRow, TextRow
from index.composing import Part, Parts
from index.engine import SearchEngine
from index.errors import CursorError, QueryError
from index.filters import parse_filter
from index.generations import Generation, next_sequence
from index.request import SearchRequest
from index.results import Hit, SearchPage
from index.vectors.blade import oriented_bases
from index.vectors.codec import decode_vectors, encode_vectors
from index.vectors.protocol import Vectors
from index.vectors.reference import blade_cosine
from index.words import matching, tokens
from tests.index.conftest import open_home
from tests.index.samples import begin_generation, make_records, put_vectors, unit_vectors
from training.data.manifest import Record

DIM = 16
COUNT = 80
PAGE = 29
# Small enough for pages to reach behind them.
PLACES = 20
PA = {"field": "view", "eq": "PA"}
WORDS = ("effusion", "opacity", "clear", "heart", "normal")
KINDS = ("signed", "unsigned", "blades")
Found = tuple[str, int | None]


@dataclass(frozen=True)
class Item:
    """An image or a text as the reference sees it."""

    name: Found
    key: int
    image_key: int
    record: Record
    vector: Vectors


@dataclass(frozen=True)
class Filled:
    """An engine with a collection of each kind of model."""

    engine: SearchEngine
    records: Sequence[Record]

    def search(self, kind: str, request: SearchRequest, seed: int = 1) -> SearchPage:
        return self.engine.search(self.engine.active(kind), query_of(seed), request)

    def items(self, kind: str, target: str) -> list[Item]:
        """Read everything that can be found, with the vectors as they are stored."""
        records = {record.id: record for record in self.records}
        with self.engine.catalogue.read() as session:
            generation = self.engine.active(kind).generation
            if target == "images":
                query = (
                    select(ImageRow.external_id, ImageRow.id, ImageRow.id, EmbeddingRow.vector)
                    .join(EmbeddingRow, EmbeddingRow.image_id == ImageRow.id)
                    .where(EmbeddingRow.generation_id == generation)
                )
                return [
                    Item((name, None), key, image, records[name], decode_vectors([value], DIM)[0])
                    for name, key, image, value in session.execute(query)
                ]
            texts = (
                select(
                    ImageRow.external_id, TextRow.position, TextRow.id, ImageRow.id, TextEmbeddingRow.vector
                )
                .join(TextRow, TextRow.id == TextEmbeddingRow.text_id)
                .join(ImageRow, ImageRow.id == TextRow.image_id)
                .where(TextEmbeddingRow.generation_id == generation)
            )
            return [
                Item((name, place), key, image, records[name], decode_vectors([value], DIM)[0])
                for name, place, key, image, value in session.execute(texts)
            ]


def query_of(seed: int = 1) -> Vectors:
    query: Vectors = unit_vectors(1, DIM, seed)[0]
    return query


def make_grouped(count: int, first: int = 0) -> list[Record]:
    """Records of which four are a group and every fifth has none, with words in their reports."""
    return [
        replace(
            record,
            group=None if number % 5 == 0 else f"patient-{number // 4}",
            report=f"{WORDS[number % 5]} and {WORDS[(number // 3) % 5]}",
            texts=tuple(f"{WORDS[(number + place) % 5]} {place}" for place in range(number % 3)),
        )
        for number, record in enumerate(make_records(first + count))
        if number >= first
    ]


def put_texts(engine: SearchEngine, generation: Generation, seed: int = 7) -> None:
    """Give every text of a collection that has none a vector."""
    with engine.catalogue.write() as session:
        has = select(TextEmbeddingRow.text_id).where(TextEmbeddingRow.generation_id == generation.id)
        query = (
            select(TextRow.id)
            .join(ImageRow, ImageRow.id == TextRow.image_id)
            .where(ImageRow.collection_id == generation.collection_id, TextRow.id.not_in(has))
            .order_by(TextRow.id)
        )
        keys = session.execute(query).scalars().all()
        sequence = next_sequence(session, generation.collection_id)
        vectors = encode_vectors(unit_vectors(len(keys), DIM, seed))
        session.add_all(
            TextEmbeddingRow(generation_id=generation.id, text_id=key, sequence=sequence, vector=vector)
            for key, vector in zip(keys, vectors, strict=True)
        )


def fill(folder: Path) -> tuple[Filled, dict[str, Generation]]:
    engine = open_home(folder)
    records = make_grouped(COUNT)
    generations = {}
    for number, kind in enumerate(KINDS):
        digest = f"{number}" * 64
        generation = begin_generation(engine, kind, DIM, digest=digest, unsigned=kind == "unsigned")
        if kind == "blades":
            with engine.catalogue.write() as session:
                session.execute(update(ModelRow).where(ModelRow.digest == digest).values(blades=2))
        put_vectors(engine, generation, records, unit_vectors(COUNT, DIM))
        put_texts(engine, generation)
        generations[kind] = generation
    return Filled(engine, records), generations


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    return fill(tmp_path_factory.mktemp("searcher"))[0]


@pytest.fixture(autouse=True)
def few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what lies behind the first places be reached by collections of this size."""
    for name in ("index.ranking.FUSED_PLACES", "index.searcher.FUSED_PLACES", "index.ranking.DIVERSE_PLACES"):
        monkeypatch.setattr(name, PLACES)


def likeness(kind: str, one: Vectors, other: Vectors) -> float:
    score = blade_cosine(one, other, 2 if kind == "blades" else 1)
    return abs(score) if kind == "unsigned" else score


def reference(filled: Filled, kind: str, request: SearchRequest, seed: int = 1) -> list[tuple[Item, float]]:
    """Rank everything slowly: the items with their scores."""
    query = query_of(seed)
    groups = {record.id: record.group or record.id for record in filled.records}
    away = {groups[name] for name in request.exclude_groups_of}
    items = [
        item
        for item in filled.items(kind, request.target)
        if (request.filter is None or item.record.metadata["view"] == "PA")
        and item.record.id not in request.exclude
        and groups[item.record.id] not in away
    ]
    cosine = {item.key: likeness(kind, query, item.vector) for item in items}
    ranked = sorted(items, key=lambda item: (-cosine[item.key], item.key))
    scores = dict(cosine)
    if request.words is not None:
        ranked, scores = _fused(filled, kind, request, ranked)
    if request.group_by is not None:
        seen: set[str] = set()
        ranked = [
            item
            for item in ranked
            if groups[item.record.id] not in seen and not seen.add(groups[item.record.id])  # type: ignore[func-returns-value]
        ]
    if request.diversity is not None:
        ranked = _diverse(kind, request.diversity, ranked, cosine, scores) + ranked[PLACES:]
    return [(item, scores[item.key]) for item in ranked]


def _fused(
    filled: Filled, kind: str, request: SearchRequest, ranked: list[Item]
) -> tuple[list[Item], dict[int, float]]:
    asked = tokens(request.words or "")
    with filled.engine.catalogue.read() as session:
        of_first = select(ImageRow.collection_id).where(ImageRow.id == ranked[0].image_key)
        collection = session.execute(of_first).scalar_one()
        order = matching(session, collection, request.words or "", 10_000).tolist()
    of_words = [item for key in order for item in ranked if item.image_key == key]
    if request.target == "texts":
        own = [(item, item.record.texts[item.name[1] or 0]) for item in of_words]
        of_words = [item for item, text in own if set(text.lower().split()) & set(asked)]
        of_words.sort(key=lambda item: (order.index(item.image_key), item.name[1]))
    sums: dict[int, float] = {}
    for listed in (ranked[:PLACES], of_words[:PLACES]):
        for rank, item in enumerate(listed, 1):
            sums[item.key] = sums.get(item.key, 0) + 1 / (60 + rank)
    head = sorted((item for item in ranked if item.key in sums), key=lambda item: (-sums[item.key], item.key))
    tail = [item for item in ranked if item.key not in sums]
    return head + tail, {**{item.key: 0.0 for item in tail}, **sums}


def _diverse(
    kind: str, diversity: float, ranked: list[Item], cosine: dict[int, float], scores: dict[int, float]
) -> list[Item]:
    left = ranked[:PLACES]
    value = {item.key: scores[item.key] for item in left}
    if any(value[key] != cosine[key] for key in value):
        cosines = [cosine[item.key] for item in left]
        low, high = min(value.values()), max(value.values())
        stretch = (max(cosines) - min(cosines)) / (high - low)
        value = {key: min(cosines) + (number - low) * stretch for key, number in value.items()}
    chosen = [max(left, key=lambda item: (value[item.key], -item.key))]
    left = [item for item in left if item is not chosen[0]]
    while left:

        def worth(item: Item) -> tuple[float, int]:
            alike = max(likeness(kind, _basis(kind, one.vector), item.vector) for one in chosen)
            return ((1 - diversity) * value[item.key] - diversity * alike, -item.key)

        best = max(left, key=worth)
        chosen.append(best)
        left = [item for item in left if item is not best]
    return chosen


def _basis(kind: str, vector: Vectors) -> Vectors:
    return oriented_bases(vector[None], 2)[0] if kind == "blades" else vector


def name_of(hit: Hit) -> Found:
    return hit.id, None if hit.text is None else hit.text.position


def all_pages(search: Callable[[SearchRequest], SearchPage], request: SearchRequest) -> list[Hit]:
    hits: list[Hit] = []
    cursor = None
    for _ in range(COUNT):
        page = search(replace(request, cursor=cursor))
        hits += page.hits
        cursor = page.next_cursor
        if cursor is None:
            return hits
    raise AssertionError("the pages do not end")


def combinations() -> list[dict[str, Any]]:
    options: list[list[dict[str, Any]]] = [
        [{}, {"words": "effusion heart"}],
        [{}, {"group_by": "group"}],
        [{}, {"diversity": 0.4}],
        [{}, {"filter": parse_filter(PA)}],
        [{}, {"exclude": ("image-004", "image-009"), "exclude_groups_of": ("image-017", "image-020")}],
        [{"target": "images"}, {"target": "texts"}],
    ]
    return [
        {name: value for part in chosen for name, value in part.items()}
        for chosen in itertools.product(*options)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_every_combination_equals_the_reference_on_one_page_and_over_all(filled: Filled, kind: str) -> None:
    for values in combinations():
        request = SearchRequest(k=PAGE, **values)
        expected = reference(filled, kind, request)
        whole = filled.search(kind, replace(request, k=COUNT * 2))
        assert [name_of(hit) for hit in whole.hits] == [item.name for item, _ in expected], values
        np.testing.assert_allclose([hit.score for hit in whole.hits], [s for _, s in expected], atol=2e-6)
        assert whole.next_cursor is None
        paged = all_pages(lambda request: filled.search(kind, request), request)
        assert [hit.rank for hit in paged] == list(range(1, len(expected) + 1))
        assert paged == list(whole.hits), values


def test_what_is_written_between_pages_changes_no_page_behind_it(tmp_path: Path) -> None:
    filled, generations = fill(tmp_path / "home")
    numbers = itertools.count(COUNT)
    new = make_grouped(200, first=COUNT)
    for values in combinations():
        request = SearchRequest(k=PAGE, **{**values, **({"words": "effusion"} if "words" in values else {})})
        before = filled.search("signed", replace(request, k=COUNT * 3)).hits

        def search_and_write(request: SearchRequest) -> SearchPage:
            page = filled.search("signed", request)
            # Nearest of all, of a group that has hits already, with a word that is asked for.
            record = replace(
                new[next(numbers) % 200], group="patient-3", report="effusion", texts=("effusion",)
            )
            record = replace(record, id=f"new-{next(numbers)}")
            put_vectors(filled.engine, generations["signed"], [record], query_of()[None])
            return page

        names = [name_of(hit) for hit in all_pages(search_and_write, request)]
        assert names == [name_of(hit) for hit in before], values


def remove(engine: SearchEngine, generation: Generation, name: str) -> None:
    with engine.catalogue.write() as session:
        sequence = next_sequence(session, generation.collection_id)
        row = session.execute(
            select(ImageRow).where(
                ImageRow.collection_id == generation.collection_id, ImageRow.external_id == name
            )
        ).scalar_one()
        session.add(
            RemovalRow(collection_id=generation.collection_id, target="images", key=row.id, sequence=sequence)
        )
        session.execute(delete(ImageRow).where(ImageRow.id == row.id))


@pytest.mark.parametrize("values", [{}, {"group_by": "group"}, {"diversity": 0.3}])
def test_a_page_goes_on_behind_a_hit_that_was_removed(tmp_path: Path, values: dict[str, Any]) -> None:
    filled, generations = fill(tmp_path / "home")
    request = SearchRequest(k=10, **values)
    expected = [hit.id for hit in filled.search("signed", replace(request, k=15)).hits]
    first = filled.search("signed", request)
    remove(filled.engine, generations["signed"], first.hits[-1].id)
    second = filled.search("signed", replace(request, k=5, cursor=first.next_cursor))
    found = [hit.id for hit in second.hits]
    assert not set(found) & set(expected[:10])
    # What is gone no longer stands for its group, nor beside others: only the order behind it may move.
    assert found[:1] == expected[10:11]
    assert [hit.rank for hit in second.hits] == [11, 12, 13, 14, 15]


def test_orders_that_are_made_again_end_at_their_depth(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("index.ranking.MOST_RANKED", "index.searcher.MOST_RANKED"):
        monkeypatch.setattr(name, 25)
    request = SearchRequest(k=10, diversity=0.2)
    hits: list[Hit] = []
    cursor = None
    for expected in (10, 10, 5):
        page = filled.search("signed", replace(request, cursor=cursor))
        assert len(page.hits) == expected
        hits += page.hits
        cursor = page.next_cursor
    assert [hit.rank for hit in hits] == list(range(1, 26))
    with pytest.raises(QueryError, match="25 hits deep") as failed:
        filled.search("signed", replace(request, cursor=cursor))
    assert failed.value.field == "cursor"
    # The plain order has no such end.
    plain = SearchRequest(k=10)
    assert len(all_pages(lambda request: filled.search("signed", request), plain)) == COUNT


def test_hits_of_groups_count_the_others_that_could_be_found(filled: Filled) -> None:
    for values in combinations():
        if values.get("group_by") is None:
            continue
        request = SearchRequest(k=20, **values)
        groups = {record.id: record.group or record.id for record in filled.records}
        single = [item for item, _ in reference(filled, "signed", replace(request, group_by=None))]
        for hit in filled.search("signed", request).hits:
            same = [item for item in single if groups[item.record.id] == groups[hit.id]]
            assert hit.others == len(same) - 1
    assert filled.search("signed", SearchRequest(k=1)).hits[0].others is None


def test_texts_are_found_from_an_image_with_what_they_belong_to(filled: Filled) -> None:
    active = filled.engine.active("signed")
    page = filled.engine.search(
        active, filled.engine.vector_of(active, "image-005"), SearchRequest(k=200, target="texts")
    )
    records = {record.id: record for record in filled.records}
    assert len(page.hits) == sum(len(record.texts) for record in filled.records)
    for hit in page.hits:
        assert hit.text is not None
        assert records[hit.id].texts[hit.text.position] == hit.text.text
        assert hit.texts == records[hit.id].texts
        assert hit.group == records[hit.id].group


def test_hits_tell_their_lists_and_keep_their_cosine(filled: Filled) -> None:
    page = filled.search("signed", SearchRequest(k=COUNT, words="effusion"))
    plain = {hit.id: hit for hit in filled.search("signed", SearchRequest(k=COUNT)).hits}
    nearest = {hit.id for hit in plain.values() if hit.rank <= PLACES}
    has = {
        record.id for record in filled.records if "effusion" in f"{record.report} {' '.join(record.texts)}"
    }
    assert page.fused
    for hit in page.hits:
        assert hit.cosine == pytest.approx(plain[hit.id].cosine, abs=1e-6)
        assert ("vector" in hit.found_by) == (hit.id in nearest or hit.score == 0)
        assert ("words" in hit.found_by) <= (hit.id in has)
    assert sum("words" in hit.found_by for hit in page.hits) == min(PLACES, len(has))


def test_a_cursor_is_bound_to_everything_but_k(filled: Filled) -> None:
    chosen = combinations()
    for values in chosen:
        request = SearchRequest(k=2, **values)
        cursor = filled.search("signed", request).next_cursor
        assert cursor is not None
        assert filled.search("signed", replace(request, k=3, cursor=cursor)).hits
        for other in chosen:
            if other != values:
                with pytest.raises(CursorError, match="another request"):
                    filled.search("signed", SearchRequest(k=2, cursor=cursor, **other))
        with pytest.raises(CursorError, match="another query"):
            filled.search("signed", replace(request, cursor=cursor), seed=2)


def test_what_is_no_request_is_refused_and_named(filled: Filled) -> None:
    for request, field in (
        (SearchRequest(k=0), "k"),
        (SearchRequest(diversity=1.5), "diversity"),
        (SearchRequest(diversity=float("nan")), "diversity"),
        (SearchRequest(words=" -- "), "words"),
    ):
        with pytest.raises(QueryError) as failed:
            filled.search("signed", request)
        assert failed.value.field == field


def test_several_parts_make_one_query_but_not_for_blades_and_vectors_without_a_sign(filled: Filled) -> None:
    engine = filled.engine
    for kind in KINDS:
        active = engine.active(kind)
        single = Part(engine.vector_of(active, "image-007"), "image")
        vector = engine.compose(active, Parts(liked=[single]))
        assert engine.search(active, vector, SearchRequest(k=1)).hits[0].id == "image-007"
        both = Parts(liked=[single, Part(query_of(), None)])
        if kind == "signed":
            found = engine.search(active, engine.compose(active, both), SearchRequest(k=COUNT))
            assert {hit.id for hit in found.hits[:20]} > {"image-007"}
        else:
            with pytest.raises(QueryError, match="one text, image, id or vector only"):
                engine.compose(active, both)


def test_the_first_page_says_for_all_whether_it_is_confident(filled: Filled) -> None:
    near = filled.engine.vector_of(filled.engine.active("signed"), "image-040")
    for vector in (near, query_of(3)):
        request = SearchRequest(k=40, kind="image")
        active = filled.engine.active("signed")
        first = filled.engine.search(active, vector, request)
        second = filled.engine.search(active, vector, replace(request, cursor=first.next_cursor))
        assert first.confident is not None
        assert second.confident == first.confident
    assert filled.engine.search(active, near, SearchRequest(k=3, kind="image")).confident is True
    assert filled.engine.search(active, near, SearchRequest(k=3)).confident is None
    hits = filled.engine.search(active, near, SearchRequest(k=COUNT)).hits
    unusual = [hit.unusual for hit in hits if hit.unusual is not None]
    assert len(unusual) == COUNT
    # Over the whole collection, which is its own sample, they are standard scores.
    assert np.mean(unusual) == pytest.approx(0, abs=1e-3)
    assert np.std(unusual) == pytest.approx(1, abs=1e-3)
