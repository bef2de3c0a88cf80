"""Many searches in one request: each answered as if it had been sent alone."""

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.application import create_app
from app.edge.admission import ConcurrencyLimiter
from app.search.schemas import MAX_SEARCHES
from tests.app.conftest import Indexed
from tests.app.search.test_search import SEARCH, problem

BATCH = f"{SEARCH}/batch"
PA = {"field": "view", "eq": "PA"}
SEARCHES: list[dict[str, Any]] = [
    {"text": "two dogs"},
    {"text": "two dogs", "limit": 24},
    {"text": "a boat", "filter": PA, "limit": 4},
    {"text": "two dogs", "filter": PA, "limit": 4, "with": ["report", "vector"]},
    {"text": "a boat", "min_score": 0.0, "limit": 24},
    {"text": "a boat", "keywords": "boat"},
    {"text": "no pneumothorax"},
    {"text": "a boat", "target": "texts"},
    {"like": [{"id": "image-3"}, {"text": "a lake"}], "unlike": [{"id": "image-8"}]},
    {"like": [{"id": "image-3"}], "exclude_same_group": True},
    {"text": "a boat", "group_by": "view"},
    {"text": "a boat", "diversity": 0.5},
    {"filter": PA, "limit": 3},
    {"keywords": "boat"},
]


def batch(client: TestClient, searches: list[dict[str, Any]], status: int = 200) -> list[dict[str, Any]]:
    answer = client.post(BATCH, json={"searches": searches})
    assert answer.status_code == status, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    assert len(results) == len(searches)
    return results


def without_times(page: dict[str, Any]) -> dict[str, Any]:
    """Leave out what differs between two answers to the same search."""
    hits = [
        {name: round(value, 4) if isinstance(value, float) else value for name, value in hit.items()}
        for hit in page["hits"]
    ]
    rest = {name: page[name] for name in ("count", "query", "served_by", "confident")}
    return {**rest, "more": page["has_more"], "hits": [_rounded(hit) for hit in hits]}


def _rounded(hit: dict[str, Any]) -> dict[str, Any]:
    if "vector" in hit:
        return hit | {"vector": [round(number, 4) for number in hit["vector"]]}
    return hit


def test_each_search_is_answered_as_alone(client: TestClient) -> None:
    for query, result in zip(SEARCHES, batch(client, SEARCHES), strict=True):
        alone = client.post(SEARCH, json=query).json()
        assert result["problem"] is None
        assert without_times(result["page"]) == without_times(alone), query


def test_a_page_of_a_batch_goes_on_alone_and_in_a_batch(client: TestClient) -> None:
    query = {"text": "two dogs", "limit": 5}
    whole = [hit["id"] for hit in client.post(SEARCH, json={**query, "limit": 10}).json()["hits"]]
    first, without = batch(client, [{**query, "cursor": True}, query])
    assert "next_cursor" not in without["page"]
    assert without["page"]["has_more"]
    behind = {**query, "cursor": first["page"]["next_cursor"]}
    alone = client.post(SEARCH, json=behind).json()
    (again,) = batch(client, [behind])
    assert [hit["id"] for hit in (*first["page"]["hits"], *alone["hits"])] == whole
    assert [hit["id"] for hit in again["page"]["hits"]] == whole[5:]


def test_a_search_that_cannot_be_answered_has_its_problem_in_its_place(client: TestClient) -> None:
    wrong: list[tuple[dict[str, Any], str, tuple[str, ...]]] = [
        ({"like": [{"id": "nobody"}]}, "unknown-image", ()),
        ({"text": "x", "filter": {"field": "vieww", "eq": "PA"}}, "invalid-filter", ("filter.vieww",)),
        ({"text": "x", "filter": {"is": 1}}, "invalid-filter", ("filter",)),
        ({"text": "x", "cursor": "damaged"}, "invalid-cursor", ("cursor",)),
        ({"like": [{"vector": [1.0]}]}, "invalid-request", ("like.0.vector",)),
        ({"text": "x", "exclude_same_group": True}, "invalid-request", ("exclude_same_group",)),
        ({"text": "x", "group_by": "nothing"}, "invalid-request", ("group_by",)),
        ({"diversity": 0.5}, "invalid-request", ("diversity",)),
    ]
    searches = [{"text": "a boat"}, *(query for query, _, _ in wrong), {"filter": PA}]
    first, *problems, last = batch(client, searches, status=207)
    assert first["page"]["hits"]
    assert last["page"]["count"] > 0
    for (query, kind, _), result in zip(wrong, problems, strict=True):
        alone = client.post(SEARCH, json=query)
        assert result["page"] is None
        assert result["problem"]["type"] == f"urn:recoquest:{kind}", query
        known = ("type", "title", "status", "detail", "errors")
        assert {name: result["problem"][name] for name in known} == {
            name: alone.json()[name] for name in known
        }
        assert result["problem"]["status"] == alone.status_code


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "searches"),
        ({"searches": []}, "searches"),
        ({"searches": [{"text": "x"}] * (MAX_SEARCHES + 1)}, "searches"),
        ({"searches": [{"text": "x"}, {"text": "x", "limit": 0}]}, "searches.1.limit"),
        ({"searches": [{"text": "x", "limits": 1}]}, "searches.0.limits"),
        ({"searches": [{"text": "x" * 10_001}]}, "searches.0.text"),
        ({"searches": [{"text": "\udfff"}]}, "searches.0.text"),
        ({"searches": [{"text": "x"}], "limit": 3}, "limit"),
    ],
)
def test_a_request_that_is_no_batch_is_refused_whole(
    client: TestClient, body: dict[str, Any], field: str
) -> None:
    headers = {"content-type": "application/json"}
    answer = client.post(BATCH, content=json.dumps(body), headers=headers)
    problem(answer, 422, "invalid-request", field)


def test_a_batch_of_an_unknown_collection_is_refused(client: TestClient) -> None:
    problem(
        client.post("/v1/collections/none/search/batch", json={"searches": [{"text": "x"}]}),
        404,
        "unknown-collection",
    )


def test_a_full_batch_is_answered_by_a_short_queue(indexed: Indexed) -> None:
    settings = indexed.settings.model_copy(update={"encode_queue_size": 2, "encode_batch_size": 2})
    with TestClient(create_app(settings), "http://localhost") as client:
        searches = [{"text": f"dogs {number}", "limit": 1} for number in range(MAX_SEARCHES)]
        assert all(result["page"]["hits"] for result in batch(client, searches))


def test_a_batch_counts_by_its_searches() -> None:
    limiter = ConcurrencyLimiter("search", 8, 10.0)
    first = limiter.take()
    assert first is not None
    wide = limiter.widen(first, 8)
    assert wide is not None
    assert limiter.is_full
    assert limiter.take() is None
    limiter.give_back(wide, answered=True)
    one, other = limiter.take(), limiter.take()
    assert one is not None
    assert other is not None
    assert limiter.widen(other, 8) is None
    assert limiter.widen(other, 7) is not None
    assert limiter.is_full


def test_a_lone_batch_is_taken_however_large_it_is() -> None:
    limiter = ConcurrencyLimiter("search", 8, 10.0)
    lone = limiter.take()
    assert lone is not None
    wide = limiter.widen(lone, 64)
    assert wide is not None
    limiter.give_back(wide, answered=True)
    assert not limiter.is_full
    assert limiter.take() is not None
