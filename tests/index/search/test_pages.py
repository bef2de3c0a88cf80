"""Pages of orders that are made again, while images are removed and written between them."""

import base64
import hashlib
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from index.catalogue.collections import Generation
from index.engine import SearchEngine
from index.errors import CursorError
from index.search.cursors import MAX_RANKED, Binding, PageEnd, PagePosition, decode_cursor, encode_cursor
from index.search.request import SearchRequest
from index.vectors.protocol import After
from index.writes.deletion import delete_images
from tests.index.homes import open_home
from tests.index.samples import begin_generation, make_records, put_vectors, unit_vectors
from training.common.manifest import Record

DIM = 6
COUNT = 120
ORDERS: list[dict[str, Any]] = [
    {"words": "heart"},
    {"diversity": 0.5},
    {"group_by": "group"},
    {"words": "heart", "diversity": 0.5, "group_by": "group"},
]
IN_PAIRS: list[dict[str, Any]] = [
    {"words": "heart", "group_by": "group"},
    {"diversity": 0.5, "group_by": "group"},
]


def made(count: int, first: int = 0) -> list[Record]:
    """Records of which five are a group, and of which a third has a word."""
    return [
        replace(record, group=f"group-{number // 5}", texts=("the heart",) if number % 3 else ("clear",))
        for number, record in enumerate(make_records(first + count))
        if number >= first
    ]


def fill(folder: Path) -> tuple[SearchEngine, Generation]:
    engine = open_home(folder)
    generation = begin_generation(engine, "c", DIM)
    put_vectors(engine, generation, made(COUNT), unit_vectors(COUNT, DIM))
    return engine, generation


def shown_while_changed(
    engine: SearchEngine, generation: Generation, request: SearchRequest, seed: int
) -> tuple[list[str], set[str]]:
    """Go through all pages with changes between them; what they show, and what was removed."""
    draw = random.Random(seed)
    query, removed = unit_vectors(1, DIM, seed)[0], set[str]()
    shown: list[str] = []
    active, cursor = engine.active("c"), None
    there = [record.id for record in made(COUNT)]
    for step in range(COUNT):
        page = engine.search(active, query, replace(request, k=draw.randint(1, 4), cursor=cursor))
        assert [hit.rank for hit in page.hits] == list(range(len(shown) + 1, len(shown) + 1 + len(page.hits)))
        shown += [hit.id for hit in page.hits]
        cursor = page.next_cursor
        if cursor is None:
            return shown, removed
        # Mostly of what stands first, which moves most of the others.
        gone = {draw.choice(there), draw.choice(shown[-9:])} & set(there)
        with engine.home.catalogue.write() as session:
            delete_images(session, "c", sorted(gone))
        removed |= gone
        there = [name for name in there if name not in gone]
        put_vectors(engine, generation, made(1, first=COUNT + step), unit_vectors(1, DIM, seed=1000 + step))
    raise AssertionError("the pages do not end")


@pytest.mark.parametrize(
    "values",
    [
        # One alone, and all together.
        pytest.param(values, marks=() if "diversity" in values and values in ORDERS else pytest.mark.slow)
        for values in (*ORDERS, *IN_PAIRS)
    ],
    ids=lambda values: "+".join(values),
)
@pytest.mark.usefixtures("few_places")
def test_no_hit_comes_twice_and_none_is_passed_over(tmp_path: Path, values: dict[str, Any]) -> None:
    """Lists end within the collection, so that what is removed moves others into them."""
    groups = {record.id: record.group for record in made(COUNT)}
    for seed in range(2):
        engine, generation = fill(tmp_path / str(seed))
        shown, removed = shown_while_changed(engine, generation, SearchRequest(**values), seed)
        engine.close()
        assert len(removed) > 10
        assert max(Counter(shown).values()) == 1
        stayed = groups.keys() - removed
        if "group_by" not in values:
            assert stayed <= set(shown)
            continue
        # A group may come again only when what was shown of it is gone.
        assert {groups[name] for name in stayed} <= {groups[name] for name in shown}
        assert max(Counter(groups[name] for name in shown if name not in removed).values()) == 1


@pytest.mark.parametrize("seen", [[], [5], [7, 3, 2**62, 2**40], list(range(1, 20_000, 2))])
def test_a_cursor_keeps_the_keys_of_all_hits_before(seen: list[int]) -> None:
    query, binding = unit_vectors(1, 32)[0], Binding("g" * 32, "r")
    place = PagePosition(After(0.25, 9, len(seen)), 4, None, np.array(seen, dtype=np.int64))
    cursor = encode_cursor(PageEnd(binding, query, place))
    found, back = decode_cursor(cursor, binding, query)
    assert np.array_equal(found, query)
    assert back.seen.tolist() == sorted(seen)
    assert (back.after, back.sequence, back.confident) == (place.after, 4, None)
    with pytest.raises(CursorError, match="damaged"):
        decode_cursor(cursor[:-20], binding, query)
    # Little grows with the number of pages.
    assert len(cursor) < 400 + 3 * len(seen)


def test_a_forged_cursor_is_not_unpacked_beyond_what_an_order_can_have() -> None:
    query, binding = unit_vectors(1, 32)[0], Binding("g" * 32, "r")
    place = PagePosition(After(0.25, 9, 1), 4, None, np.arange(MAX_RANKED + 1, dtype=np.int64))
    with pytest.raises(CursorError, match="damaged"):
        decode_cursor(encode_cursor(PageEnd(binding, query, place)), binding, query)


@pytest.mark.parametrize(
    ("score", "rank", "sequence", "number"),
    [
        (np.nan, 3, 0, 0.0),
        (np.inf, 3, 0, 0.0),
        (0.5, 2**32 - 1, 0, 0.0),
        (0.5, 3, -1, 0.0),
        (0.5, 3, 0, np.nan),
        (0.5, 3, 0, -np.inf),
    ],
)
def test_a_forged_cursor_without_sensible_numbers_is_refused(
    score: float, rank: int, sequence: int, number: float
) -> None:
    query, binding = np.eye(1, DIM, dtype=np.float32)[0], Binding("uid", "request")
    forged = query.copy()
    forged[2] = number
    place = PagePosition(After(score, 1, rank), sequence, None, np.empty(0, dtype=np.int64))
    cursor = encode_cursor(PageEnd(binding, forged, place))
    with pytest.raises(CursorError, match="damaged"):
        decode_cursor(cursor, binding, query)


@pytest.mark.parametrize("missing", [1, 4])
def test_a_forged_cursor_that_ends_within_its_query_is_refused(missing: int) -> None:
    query, binding = unit_vectors(1, DIM)[0], Binding("uid", "request")
    place = PagePosition(After(0.5, 1, 3), 0, None, np.empty(0, dtype=np.int64))
    content = base64.urlsafe_b64decode(encode_cursor(PageEnd(binding, query, place)) + "==")
    content = content[: -8 - missing]
    content += hashlib.blake2b(content, digest_size=8).digest()
    with pytest.raises(CursorError, match="damaged"):
        decode_cursor(base64.urlsafe_b64encode(content).decode().rstrip("="), binding, query)
