"""What is told of hits, the lowest score, and exact counts."""

from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.search.schemas import ListedImage
from tests.app.conftest import COLLECTION
from tests.app.search.test_search import ids, problem

HERE = f"/v1/collections/{COLLECTION}"
PA = {"field": "view", "eq": "PA"}


def found(client: TestClient, **query: Any) -> dict[str, Any]:
    answer = client.post(f"{HERE}/search", json=query)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


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
    pages: list[list[dict[str, Any]]] = []
    cursor: str | bool | None = True
    while True:
        page = found(client, text="a boat", limit=4, min_score=lowest, cursor=cursor, **query)
        pages.append(page["hits"])
        cursor = page["next_cursor"]
        if cursor is None:
            break
    hits = [hit for page in pages for hit in page]
    assert len(pages) == -(-len(expected) // 4)
    assert [hit["rank"] for hit in hits] == list(range(1, len(hits) + 1))
    assert {(hit["id"], str(hit["text"])) for hit in hits} == expected
    assert len(hits) == len(expected) < len(whole)


def test_a_lowest_score_that_nothing_has_leaves_nothing(client: TestClient) -> None:
    page = found(client, text="a boat", min_score=1)
    assert (page["hits"], page["has_more"]) == ([], False)


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
    document = problem(client.post(f"{HERE}/search", json=query), 422, "invalid-request", "min_score")
    assert document["detail"] == sentence


def test_a_count_is_that_of_all_pages(client: TestClient) -> None:
    assert count(client) == 24
    passing = found(client, filter=PA)["count"]
    assert count(client, filter=PA) == passing > 0
    assert count(client, keywords="boat") == found(client, keywords="boat")["count"] > 0
    assert count(client, target="texts") == found(client, target="texts")["count"]
    assert count(client, group_by="view") == 2
    both = found(client, keywords="boat", filter=PA)["count"]
    assert count(client, keywords="boat", filter=PA) == both
    assert count(client, keywords="nothing-has-this") == 0
    assert (
        count(client, keywords="boat", target="texts")
        == found(client, keywords="boat", target="texts")["count"]
    )


def test_a_count_is_refused_as_a_search_is(client: TestClient) -> None:
    path = f"{HERE}/count"
    problem(
        client.post(path, json={"filter": {"field": "vieww", "eq": 1}}), 422, "invalid-filter", "filter.vieww"
    )
    problem(client.post(path, json={"keywords": "--"}), 422, "invalid-request", "keywords")
    problem(client.post(path, json={"text": "x"}), 422, "invalid-request", "text")
    problem(client.post("/v1/collections/none/count", json={}), 404, "unknown-collection")
