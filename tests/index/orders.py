"""Collections of each kind of model, and a slow reference of every order of their hits."""

import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import select, update

from index.catalogue.collections import Generation, next_sequence
from index.catalogue.full_text import matching
from index.catalogue.tables import EmbeddingRow, ImageRow, ModelRow, TextEmbeddingRow, TextRow
from index.catalogue.words import tokens
from index.engine import SearchEngine
from index.filters.grammar import parse_filter
from index.search.request import SearchRequest
from index.search.results import Hit, SearchPage
from index.vectors.protocol import Vectors, decode_vectors, encode_vectors
from index.vectors.view import oriented_bases
from tests.index.samples import begin_generation, make_records, put_vectors, unit_vectors
from tests.index.vectors.reference import blade_cosine
from training.common.manifest import Record

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
        with self.engine.home.catalogue.read() as session:
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
                Item((name, index), key, image, records[name], decode_vectors([value], DIM)[0])
                for name, index, key, image, value in session.execute(texts)
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
            texts=tuple(f"{WORDS[(number + position) % 5]} {position}" for position in range(number % 3)),
        )
        for number, record in enumerate(make_records(first + count))
        if number >= first
    ]


def put_texts(engine: SearchEngine, generation: Generation, seed: int = 7) -> None:
    """Give every text of a collection that has none a vector."""
    with engine.home.catalogue.write() as session:
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


def fill(engine: SearchEngine) -> tuple[Filled, dict[str, Generation]]:
    """Put a collection of each kind of model into an empty engine."""
    records = make_grouped(COUNT)
    generations = {}
    for number, kind in enumerate(KINDS):
        digest = f"{number}" * 64
        generation = begin_generation(engine, kind, DIM, digest=digest, unsigned=kind == "unsigned")
        if kind == "blades":
            with engine.home.catalogue.write() as session:
                session.execute(update(ModelRow).where(ModelRow.digest == digest).values(blades=2))
        put_vectors(engine, generation, records, unit_vectors(COUNT, DIM))
        put_texts(engine, generation)
        generations[kind] = generation
    return Filled(engine, records), generations


def likeness(kind: str, one: Vectors, other: Vectors) -> float:
    score = blade_cosine(one, other, 2 if kind == "blades" else 1)
    return abs(score) if kind == "unsigned" else score


def group_of(record: Record, field: str) -> Hashable:
    """Return the group of a record: the kind and value of its field, or its own id."""
    built_in = {name: getattr(record, name) for name in ("id", "split", "group", "labels")}
    value = {**record.metadata, **built_in}.get(field)
    if isinstance(value, tuple):
        value = value[0] if value else None
    if value is None:
        return record.id
    return ("number" if type(value) in (int, float) else type(value)), value


def groups_of(filled: Filled, field: str) -> dict[str, Hashable]:
    return {record.id: group_of(record, field) for record in filled.records}


def reference(filled: Filled, kind: str, request: SearchRequest, seed: int = 1) -> list[tuple[Item, float]]:
    """Rank everything slowly: the items with their scores."""
    query = query_of(seed)
    away = groups_of(filled, request.exclude_groups_by)
    left_out = {away[name] for name in request.exclude_groups_of}
    items = [
        item
        for item in filled.items(kind, request.target)
        if (request.filter is None or item.record.metadata["view"] == "PA")
        and item.record.id not in request.exclude
        and away[item.record.id] not in left_out
    ]
    cosine = {item.key: likeness(kind, query, item.vector) for item in items}
    ranked = sorted(items, key=lambda item: (-cosine[item.key], item.key))
    scores = dict(cosine)
    if request.words is not None:
        ranked, scores = _fused(filled, kind, request, ranked)
    if request.group_by is not None:
        groups = groups_of(filled, request.group_by)
        first: dict[Hashable, Item] = {}
        for item in ranked:
            first.setdefault(groups[item.record.id], item)
        ranked = list(first.values())
    if request.diversity is not None:
        ranked = _diverse(kind, request.diversity, ranked, cosine, scores) + ranked[PLACES:]
    return [(item, scores[item.key]) for item in ranked]


def _fused(
    filled: Filled, kind: str, request: SearchRequest, ranked: list[Item]
) -> tuple[list[Item], dict[int, float]]:
    requested = tokens(request.words or "")
    with filled.engine.home.catalogue.read() as session:
        of_first = select(ImageRow.collection_id).where(ImageRow.id == ranked[0].image_key)
        collection = session.execute(of_first).scalar_one()
        order = matching(session, collection, request.words or "", 10_000).tolist()
    of_words = [item for key in order for item in ranked if item.image_key == key]
    if request.target == "texts":
        own = [(item, item.record.texts[item.name[1] or 0]) for item in of_words]
        of_words = [item for item, text in own if set(text.lower().split()) & set(requested)]
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
    return hit.id, None if hit.image.text is None else hit.image.text.position


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
        [
            {},
            {"exclude": ("image-004", "image-009", "none"), "exclude_groups_of": ("image-017", "image-020")},
        ],
        [{"target": "images"}, {"target": "texts"}],
    ]
    return [
        {name: value for part in chosen for name, value in part.items()}
        for chosen in itertools.product(*options)
    ]
