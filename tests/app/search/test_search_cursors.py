"""Cursors of searches over HTTP: whose they are, and how long they may be."""

from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.search.schemas import SearchQuery
from index.search.cursors import Binding, PageEnd, PagePosition, encode_cursor
from index.vectors.protocol import After
from tests.app.conftest import Indexed
from tests.app.search.test_search import SEARCH, problem, search, search_image, search_like


@pytest.mark.parametrize("cursor", ["x", "%%%", "eyJhIjoxfQ", "x" * 4000])
def test_a_damaged_cursor_is_refused(client: TestClient, cursor: str) -> None:
    problem(client.post(SEARCH, json={"text": "x", "cursor": cursor}), 422, "invalid-cursor", "cursor")


def test_a_cursor_of_another_search_is_refused(client: TestClient) -> None:
    cursor = search(client, limit=2, cursor=True)["next_cursor"]
    answer = client.post(
        SEARCH, json={"text": "x", "limit": 2, "cursor": cursor, "filter": {"field": "view", "eq": "PA"}}
    )
    problem(answer, 422, "invalid-cursor", "cursor")


@pytest.mark.parametrize("target", ["images", "texts"])
def test_a_cursor_is_of_all_that_a_query_is_made_of(
    client: TestClient, indexed: Indexed, target: str
) -> None:
    query: dict[str, Any] = {"limit": 2, "target": target, "unlike": [{"text": "a lake"}]}
    liked = ["image-1", "image-2", "image-3"]
    cursor = search_like(client, *liked, **query, cursor=True).json()["next_cursor"]
    assert search_like(client, *liked, **query, cursor=cursor).status_code == 200
    for other in (
        search_like(
            client, *liked, **{**query, "unlike": [{"text": "a lake "}, {"text": "two lakes"}]}, cursor=cursor
        ),
        search_like(client, *liked, **{**query, "unlike": [{"text": "lakes"}]}, cursor=cursor),
        search_like(client, *liked[:2], "image-4", **query, cursor=cursor),
        search_like(client, *liked[:2], **query, cursor=cursor),
    ):
        problem(other, 422, "invalid-cursor", "cursor")
    form = {"limit": 2, "text": "two dogs", "target": target}
    sent = search_image(client, indexed.image_bytes(2), **form, cursor=True)
    cursor = sent.json()["next_cursor"]
    assert search_image(client, indexed.image_bytes(2), **form, cursor=cursor).status_code == 200
    other = search_image(client, indexed.image_bytes(3), **form, cursor=cursor)
    problem(other, 422, "invalid-cursor", "cursor")


@pytest.mark.parametrize("cursor", [None, False])
@pytest.mark.parametrize(
    "query",
    [
        {"text": "two dogs"},
        {},
        {"keywords": "boat"},
        {"text": "two dogs", "keywords": "boat", "target": "texts"},
        {"like": [{"id": "image-3"}], "group_by": "view"},
        {"text": "two dogs", "diversity": 0.4},
    ],
)
def test_a_cursor_is_made_only_where_it_is_asked_for(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, query: dict[str, Any], cursor: bool | None
) -> None:
    asked = client.post(SEARCH, json={**query, "limit": 1, "cursor": True}).json()
    monkeypatch.setattr("index.search.results.encode_cursor", _must_not_be_called)
    page = client.post(SEARCH, json={**query, "limit": 1, "cursor": cursor}).json()
    assert page["has_more"] is True
    assert page["hits"] == asked["hits"]
    assert asked.keys() - page.keys() == {"next_cursor"}
    whole = client.post(SEARCH, json={**query, "limit": 100}).json()
    assert whole["has_more"] is False
    assert "next_cursor" not in whole


def _must_not_be_called(end: PageEnd) -> str:
    raise AssertionError(f"A cursor was made: {end.place}.")


@pytest.mark.parametrize("cursor", [1, [], "x" * 98_305])
def test_what_is_no_cursor_is_refused_in_one_sentence(client: TestClient, cursor: object) -> None:
    document = problem(
        client.post(SEARCH, json={"text": "x", "cursor": cursor}), 422, "invalid-request", "cursor"
    )
    assert document["detail"] == "cursor: It must be true, false or `next_cursor` of the page before."


def test_the_cursor_of_a_long_vector_is_taken_back() -> None:
    seen = np.random.default_rng(0).permutation(5_000_000)[:10_000]
    place = PagePosition(After(score=0.5, key=1, rank=10), sequence=1, confident=True, seen=seen)
    for dim in (768, 4096):
        cursor = encode_cursor(PageEnd(Binding("g" * 32, ""), np.ones(dim, dtype=np.float32), place))
        assert SearchQuery(text="a dog", cursor=cursor).cursor == cursor
