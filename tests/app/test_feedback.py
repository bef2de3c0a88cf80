"""Judgements of hits over HTTP: who may give them, what of a query is kept, and what is refused."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from app.application import create_app
from app.engine import open_engine
from index.feedback import JudgedQuery, clear_feedback, judgements
from tests.access import AS_ADMIN
from tests.app.conftest import COLLECTION, PATIENT, Indexed
from tests.app.search.test_search import problem

FEEDBACK = f"/v1/collections/{COLLECTION}/feedback"
FAR = ("192.0.2.7", 50_000)
NEAR = ("127.0.0.1", 50_000)


def serve(home: Indexed, client: tuple[str, int] = FAR, **settings: Any) -> TestClient:
    """A service, and a client with the key; one from far away has none."""
    application = create_app(home.settings.model_copy(update=settings))
    return TestClient(
        application,
        "http://127.0.0.1",
        raise_server_exceptions=False,
        client=client,
        headers=None if client == FAR else AS_ADMIN,
    )


@pytest.fixture(scope="module")
def home(on_either: Indexed) -> Indexed:
    return on_either


@pytest.fixture(scope="module")
def far(home: Indexed) -> Iterator[TestClient]:
    """A reader on another machine, where everybody may judge."""
    with serve(home, open_feedback=True) as running:
        yield running


@pytest.fixture(autouse=True)
def forgotten(home: Indexed) -> Iterator[None]:
    yield
    engine = open_engine(home.settings)
    with engine.home.catalogue.write() as session:
        clear_feedback(session, COLLECTION)
    engine.close()


def kept(home: Indexed) -> list[tuple[JudgedQuery, str, bool]]:
    engine = open_engine(home.settings)
    with engine.home.catalogue.read() as session:
        found = [(one.query, one.image, one.relevant) for one in judgements(session, COLLECTION)]
    engine.close()
    return found


def say(client: TestClient, relevant: bool | None, hit: str = "image-3", **query: Any) -> Response:
    answer: Response = client.post(
        FEEDBACK, json={"query": query or {"text": "two dogs"}, "hit": hit, "relevant": relevant}
    )
    return answer


def test_a_reader_elsewhere_judges_and_takes_it_back(far: TestClient, home: Indexed) -> None:
    answer = say(far, True, hit=f"{PATIENT} #7?")
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"collection": COLLECTION, "hit": f"{PATIENT} #7?", "relevant": True}
    for _ in range(2):
        assert say(far, False).json()["relevant"] is False
    text = JudgedQuery(texts=("two dogs",))
    assert kept(home) == [(text, f"{PATIENT} #7?", True), (text, "image-3", False)]
    assert say(far, None).json()["relevant"] is None
    assert kept(home) == [(text, f"{PATIENT} #7?", True)]


def test_all_that_was_searched_for_is_kept(far: TestClient, home: Indexed) -> None:
    answer = say(
        far,
        True,
        text=" two dogs ",
        like=[{"id": "image-5"}, {"text": "a boat"}],
        unlike=[{"id": "image-6"}, {"text": "a cat"}],
    )
    assert answer.status_code == 200, answer.text
    (found,) = kept(home)
    assert found[0] == JudgedQuery(("a boat", "two dogs"), ("image-5",), ("a cat",), ("image-6",))


def test_the_operator_counts(home: Indexed, far: TestClient) -> None:
    say(far, True)
    say(far, False, hit="image-4")
    say(far, True, like=[{"id": "image-5"}])
    with serve(home, NEAR) as near:
        counts = near.get(FEEDBACK).json()
    assert counts.pop("latest").startswith("20")
    assert counts == {"collection": COLLECTION, "relevant": 2, "not_relevant": 1, "queries": 2}
    problem(far.get(FEEDBACK), 401, "authentication-needed")


def test_only_who_may_change_things_judges_unless_it_is_opened(home: Indexed) -> None:
    with serve(home) as closed:
        problem(say(closed, True), 401, "authentication-needed")
    with serve(home, NEAR) as near:
        assert say(near, True, hit="image-4").status_code == 200
    assert [image for _, image, _ in kept(home)] == ["image-4"]
    with serve(home, open_feedback=True) as opened:
        assert say(opened, False).status_code == 200
    # Whoever may not search does not judge either.
    with serve(home, open_feedback=True, open_reading=False) as opened:
        problem(say(opened, False), 401, "authentication-needed")


def test_a_full_collection_says_so_and_still_changes_its_mind(home: Indexed) -> None:
    with serve(home, NEAR, max_feedback=1) as small:
        assert say(small, True).status_code == 200
        problem(say(small, True, hit="image-4"), 409, "feedback-full")
        assert say(small, False).status_code == 200
    assert [relevant for _, _, relevant in kept(home)] == [False]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"hit": "image-3", "relevant": True}, "query"),
        ({"query": {}, "hit": "image-3", "relevant": True}, "query"),
        ({"query": {"unlike": [{"text": "a cat"}]}, "hit": "image-3", "relevant": True}, "query"),
        ({"query": {"text": "\u200b"}, "hit": "image-3", "relevant": True}, "query.text"),
        ({"query": {"text": "a\x00b"}, "hit": "image-3", "relevant": True}, "query"),
        ({"query": {"text": "x" * 10_001}, "hit": "image-3", "relevant": True}, "query.text"),
        (
            {"query": {"like": [{"text": "x" * 10_001}]}, "hit": "image-3", "relevant": True},
            "query.like.0.text",
        ),
        ({"query": {"like": [{"vector": [1.0]}]}, "hit": "image-3", "relevant": True}, "query.like.0.vector"),
        ({"query": {"like": [{}]}, "hit": "image-3", "relevant": True}, "query.like.0"),
        ({"query": {"text": "x"}, "relevant": True}, "hit"),
        ({"query": {"text": "x"}, "hit": "image-3"}, "relevant"),
        ({"query": {"text": "x"}, "hit": "image-3", "relevant": "perhaps"}, "relevant"),
        ({"query": {"text": "x"}, "hit": "image-3", "relevant": "yes"}, "relevant"),
        ({"query": {"text": "x", "keywords": "x"}, "hit": "image-3", "relevant": True}, "query.keywords"),
    ],
)
def test_what_cannot_be_kept_is_told_with_its_field(
    far: TestClient, home: Indexed, body: dict[str, Any], field: str
) -> None:
    answer = far.post(FEEDBACK, json=body)
    assert answer.status_code == 422, answer.text
    assert field in [error["field"] for error in answer.json()["errors"]]
    assert kept(home) == []


def test_unknown_images_and_collections_are_told(far: TestClient, home: Indexed) -> None:
    problem(say(far, True, hit="image-99"), 404, "unknown-image")
    problem(say(far, True, like=[{"id": "image-99"}]), 404, "unknown-image")
    body = {"query": {"text": "x"}, "hit": "image-3", "relevant": True}
    problem(far.post("/v1/collections/none/feedback", json=body), 404, "unknown-collection")
    # A form of another site can send this without asking the browser first.
    for headers in ({}, {"Content-Type": "text/plain"}):
        sent = far.post(FEEDBACK, content=json.dumps(body).encode(), headers=headers)
        problem(sent, 415, "unsupported-media-type")
    assert kept(home) == []


def test_searches_do_not_change_by_what_is_said(far: TestClient) -> None:
    search = f"/v1/collections/{COLLECTION}/search"
    query = {"text": "two dogs", "limit": 24}
    before = far.post(search, json=query).json()["hits"]
    for hit in before[:3]:
        assert say(far, False, hit=hit["id"]).status_code == 200
    assert far.post(search, json=query).json()["hits"] == before
