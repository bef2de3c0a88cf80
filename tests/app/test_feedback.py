"""Judgements of hits over HTTP: who may give them, what of a query is kept, and what is refused."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from index.feedback import JudgedQuery, clear_feedback, judgements
from tests.app.conftest import COLLECTION, PATIENT, Indexed, serve
from tests.app.search.test_search import problem

FEEDBACK = f"/v1/collections/{COLLECTION}/feedback"
FAR = ("192.0.2.7", 50_000)
JUDGEMENT = {"query": {"text": "x"}, "hit": "image-3", "relevant": True}


@pytest.fixture(scope="module")
def far(on_either: Indexed) -> Iterator[TestClient]:
    """A reader on another machine, where everybody may judge."""
    with serve(on_either, FAR, key=False, open_feedback=True) as running:
        yield running


@pytest.fixture(autouse=True)
def forgotten(on_either: Indexed) -> Iterator[None]:
    yield
    with on_either.write() as session:
        clear_feedback(session, COLLECTION)


def kept(home: Indexed) -> list[tuple[JudgedQuery, str, bool]]:
    with home.read() as session:
        return [(one.query, one.image, one.relevant) for one in judgements(session, COLLECTION)]


def say(client: TestClient, relevant: bool | None, hit: str = "image-3", **query: Any) -> Response:
    answer: Response = client.post(
        FEEDBACK, json={"query": query or {"text": "two dogs"}, "hit": hit, "relevant": relevant}
    )
    return answer


def test_a_reader_elsewhere_judges_and_takes_it_back(far: TestClient, on_either: Indexed) -> None:
    answer = say(far, True, hit=f"{PATIENT} #7?")
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"collection": COLLECTION, "hit": f"{PATIENT} #7?", "relevant": True}
    for _ in range(2):
        assert say(far, False).json()["relevant"] is False
    text = JudgedQuery(texts=("two dogs",))
    assert kept(on_either) == [(text, f"{PATIENT} #7?", True), (text, "image-3", False)]
    assert say(far, None).json()["relevant"] is None
    assert kept(on_either) == [(text, f"{PATIENT} #7?", True)]


def test_all_that_was_searched_for_is_kept(far: TestClient, on_either: Indexed) -> None:
    answer = say(
        far,
        True,
        text=" two dogs ",
        like=[{"id": "image-5"}, {"text": "a boat"}],
        unlike=[{"id": "image-6"}, {"text": "a cat"}],
    )
    assert answer.status_code == 200, answer.text
    (result,) = kept(on_either)
    assert result[0] == JudgedQuery(("a boat", "two dogs"), ("image-5",), ("a cat",), ("image-6",))


def test_the_operator_counts(on_either: Indexed, far: TestClient) -> None:
    say(far, True)
    say(far, False, hit="image-4")
    say(far, True, like=[{"id": "image-5"}])
    with serve(on_either) as near:
        counts = near.get(FEEDBACK).json()
    assert counts.pop("latest").startswith("20")
    assert counts == {"collection": COLLECTION, "relevant": 2, "not_relevant": 1, "queries": 2}
    problem(far.get(FEEDBACK), 401, "authentication-needed")


@pytest.mark.slow
def test_only_who_may_change_things_judges_unless_it_is_opened(on_either: Indexed) -> None:
    with serve(on_either, FAR, key=False) as closed:
        problem(say(closed, True), 401, "authentication-needed")
    with serve(on_either) as near:
        assert say(near, True, hit="image-4").status_code == 200
    assert [image for _, image, _ in kept(on_either)] == ["image-4"]
    with serve(on_either, FAR, key=False, open_feedback=True) as opened:
        assert say(opened, False).status_code == 200
    # A caller who may not search may not judge either.
    with serve(on_either, FAR, key=False, open_feedback=True, open_reading=False) as opened:
        problem(say(opened, False), 401, "authentication-needed")


def test_a_full_collection_says_so_and_still_changes_its_mind(on_either: Indexed) -> None:
    with serve(on_either, max_feedback=1) as small:
        assert say(small, True).status_code == 200
        problem(say(small, True, hit="image-4"), 409, "feedback-full")
        assert say(small, False).status_code == 200
    assert [relevant for _, _, relevant in kept(on_either)] == [False]


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"query": None}, "query"),
        ({"query": {}}, "query"),
        ({"query": {"unlike": [{"text": "a cat"}]}}, "query"),
        ({"query": {"text": "\u200b"}}, "query.text"),
        ({"query": {"text": "a\x00b"}}, "query"),
        ({"query": {"text": "x" * 10_001}}, "query.text"),
        ({"query": {"like": [{"text": "x" * 10_001}]}}, "query.like.0.text"),
        ({"query": {"like": [{"vector": [1.0]}]}}, "query.like.0.vector"),
        ({"query": {"like": [{}]}}, "query.like.0"),
        ({"query": {"text": "x", "keywords": "x"}}, "query.keywords"),
        ({"hit": None}, "hit"),
        ({"relevant": ...}, "relevant"),
        ({"relevant": "perhaps"}, "relevant"),
        ({"relevant": "yes"}, "relevant"),
    ],
)
def test_what_cannot_be_kept_is_told_with_its_field(
    far: TestClient, on_either: Indexed, changed: dict[str, Any], field: str
) -> None:
    body = {**JUDGEMENT, **changed}
    left_out = [name for name, value in changed.items() if value in (None, ...)]
    answer = far.post(FEEDBACK, json={name: body[name] for name in body if name not in left_out})
    assert answer.status_code == 422, answer.text
    assert field in [error["field"] for error in answer.json()["errors"]]
    assert kept(on_either) == []


def test_unknown_images_and_collections_are_told(far: TestClient, on_either: Indexed) -> None:
    problem(say(far, True, hit="image-99"), 404, "unknown-image")
    problem(say(far, True, like=[{"id": "image-99"}]), 404, "unknown-image")
    problem(far.post("/v1/collections/none/feedback", json=JUDGEMENT), 404, "unknown-collection")
    # A form of another site can send this without asking the browser first.
    for headers in ({}, {"Content-Type": "text/plain"}):
        sent = far.post(FEEDBACK, content=json.dumps(JUDGEMENT).encode(), headers=headers)
        problem(sent, 415, "unsupported-media-type")
    assert kept(on_either) == []


def test_searches_do_not_change_by_what_is_said(far: TestClient) -> None:
    search = f"/v1/collections/{COLLECTION}/search"
    query = {"text": "two dogs", "limit": 24}
    before = far.post(search, json=query).json()["hits"]
    for hit in before[:3]:
        assert say(far, False, hit=hit["id"]).status_code == 200
    assert far.post(search, json=query).json()["hits"] == before
