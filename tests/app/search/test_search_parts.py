"""What is told of hits, the lowest score, exact counts, and many searches in one request."""

import json
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.edge.admission import ConcurrencyLimiter, Place
from app.search.schemas import MAX_SEARCHES, ListedImage
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.app.search.test_browse import search as found
from tests.app.search.test_search import SEARCH, ids, pages, problem

HERE = f"/v1/collections/{COLLECTION}"
PA = {"field": "view", "eq": "PA"}


def count(client: TestClient, **query: Any) -> int:
    answer = client.post(f"{HERE}/count", json=query)
    assert answer.status_code == 200, answer.text
    assert answer.json().keys() == {"count"}
    number: int = answer.json()["count"]
    return number


def test_a_hit_tells_what_is_asked_for_and_no_more(client: TestClient) -> None:
    asked = ["report", "findings", "vector"]
    for hit in found(client, text="a boat", limit=24, **{"with": asked})["hits"]:
        image = client.get(hit["links"]["image"]).json()
        assert not {"texts", "labels", "metadata"} & hit.keys()
        assert hit["report"] == image["report"]
        stated = {name for names in hit["findings"].values() for name in names}
        assert stated == {one["finding"] for one in image["findings"]}
    assert any(hit["report"] for hit in found(client, text="a boat", limit=24, **{"with": asked})["hits"])
    bare = found(client, text="a boat", limit=3, **{"with": []})["hits"]
    assert not {"texts", "findings", "labels", "metadata", *asked} & bare[0].keys()
    assert ids({"hits": bare}) == ids(found(client, text="a boat", limit=3))


@pytest.mark.parametrize("target", ["images", "texts"])
def test_the_vector_of_a_hit_finds_it_with_a_cosine_of_one(client: TestClient, target: str) -> None:
    for hit in found(client, text="a boat", limit=5, target=target, **{"with": ["vector"]})["hits"]:
        assert np.linalg.norm(hit["vector"]) == pytest.approx(1, abs=1e-5)
        again = found(client, like=[{"vector": hit["vector"]}], target=target, limit=24)["hits"]
        (same,) = [one for one in again if (one["id"], one["text"]) == (hit["id"], hit["text"])]
        assert same["cosine"] == pytest.approx(1, abs=1e-4)


def test_a_list_tells_what_is_asked_for(client: TestClient) -> None:
    plain = client.get(f"{HERE}/images").json()["images"]
    assert plain[0].keys() == ListedImage.__required_keys__ | {"texts", "findings", "labels", "metadata"}
    told = client.get(f"{HERE}/images", params={"with": ["report", "vector"]}).json()["images"]
    assert told[0].keys() == ListedImage.__required_keys__ | {"report", "vector"}
    by_search = found(client, like=[{"vector": told[3]["vector"]}], limit=1)["hits"][0]
    assert by_search["cosine"] == pytest.approx(1, abs=1e-4)


def test_a_part_that_there_is_not_is_refused_with_those_that_there_are(client: TestClient) -> None:
    answer = client.post(f"{HERE}/search", json={"text": "x", "with": ["pixels"]})
    document = problem(answer, 422, "invalid-request", "with.0")
    assert "'texts', 'findings', 'labels', 'metadata', 'report' or 'vector'" in document["detail"]
    known = client.post(f"{HERE}/search", json={"text": "x", "with_": []}).json()["detail"]
    assert "cursor, with." in known
    problem(client.post(f"{HERE}/search", json={"text": "x", "parts": []}), 422, "invalid-request", "parts")


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"filter": PA},
        {"keywords": "boat"},
        {"diversity": 0.3},
        {"target": "texts"},
        {"group_by": "group"},
    ],
)
def test_no_page_has_hits_below_the_lowest_score(client: TestClient, query: dict[str, Any]) -> None:
    whole = found(client, text="a boat", limit=100, **query)["hits"]
    lowest = sorted(hit["cosine"] for hit in whole)[len(whole) // 3]
    expected = {(hit["id"], str(hit["text"])) for hit in whole if hit["cosine"] >= lowest}
    told = pages(client, text="a boat", limit=4, min_score=lowest, **query)
    hits = [hit for page in told for hit in page["hits"]]
    assert len(told) == -(-len(expected) // 4)
    assert [hit["rank"] for hit in hits] == list(range(1, len(hits) + 1))
    assert {(hit["id"], str(hit["text"])) for hit in hits} == expected
    assert len(hits) == len(expected) < len(whole)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"filter": PA, "min_score": 0.1}, "min_score goes with a query: give a text, an image or examples."),
        ({"text": "x", "min_score": 1.5}, "min_score: It must be at most 1.0."),
        ({"text": "x", "min_score": "0.5"}, "min_score: It must be a number."),
    ],
)
def test_a_lowest_score_that_is_none_is_refused(
    client: TestClient, query: dict[str, Any], sentence: str
) -> None:
    nothing = found(client, text="a boat", min_score=1)
    assert (nothing["hits"], nothing["has_more"]) == ([], False)
    document = problem(client.post(f"{HERE}/search", json=query), 422, "invalid-request", "min_score")
    assert document["detail"] == sentence


def test_a_count_is_that_of_all_pages(client: TestClient) -> None:
    assert count(client) == 24
    assert count(client, group_by="view") == 2
    assert count(client, keywords="nothing-has-this") == 0
    for query in (
        {"filter": PA},
        {"keywords": "boat"},
        {"target": "texts"},
        {"keywords": "boat", "filter": PA},
        {"keywords": "boat", "target": "texts"},
    ):
        assert count(client, **query) == found(client, **query)["count"]
    assert min(count(client, filter=PA), count(client, keywords="boat")) > 0


def test_a_count_is_refused_as_a_search_is(client: TestClient) -> None:
    path = f"{HERE}/count"
    problem(
        client.post(path, json={"filter": {"field": "vieww", "eq": 1}}), 422, "invalid-filter", "filter.vieww"
    )
    problem(client.post(path, json={"keywords": "--"}), 422, "invalid-request", "keywords")
    problem(client.post(path, json={"text": "x"}), 422, "invalid-request", "text")
    problem(client.post("/v1/collections/none/count", json={}), 404, "unknown-collection")
    one = {"searches": [{"text": "x"}]}
    problem(client.post("/v1/collections/none/search/batch", json=one), 404, "unknown-collection")


BATCH = f"{SEARCH}/batch"
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

    def rounded(value: Any) -> Any:
        if isinstance(value, list):
            return [rounded(part) for part in value]
        return round(value, 4) if isinstance(value, float) else value

    rest = {name: page[name] for name in ("count", "query", "served_by", "confident", "has_more")}
    return {**rest, "hits": [{name: rounded(hit[name]) for name in hit} for hit in page["hits"]]}


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


def test_a_full_batch_is_answered_by_a_short_queue(indexed: Indexed) -> None:
    with serve(indexed, key=False, encode_queue_size=2, encode_batch_size=2) as client:
        searches = [{"text": f"dogs {number}", "limit": 1} for number in range(MAX_SEARCHES)]
        assert all(result["page"]["hits"] for result in batch(client, searches))


def test_a_batch_counts_by_its_searches_and_a_lone_one_is_taken_however_large_it_is() -> None:
    limiter = ConcurrencyLimiter("search", 8, 10.0)

    def take() -> Place:
        found = limiter.take()
        assert found is not None
        return found

    for searches in (8, 64):
        wide = limiter.widen(take(), searches)
        assert wide is not None
        assert limiter.is_full
        assert limiter.take() is None
        limiter.give_back(wide, answered=True)
        assert not limiter.is_full
    take()
    other = take()
    assert limiter.widen(other, 8) is None
    assert limiter.widen(other, 7) is not None
    assert limiter.is_full
