"""Fields by their names of before: understood, and answered in kind with a notice."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.application import create_app
from tests.app.api.test_search import SEARCH, problem
from tests.app.conftest import Indexed

PAIRS = [
    ("limit", "k", 3),
    ("keywords", "words", "pneumothorax"),
    ("keywords_state", "words_state", "absent"),
]


def test_a_request_in_old_names_is_answered_in_old_names(client: TestClient) -> None:
    old = client.post(SEARCH, json={"text": "a boat", "words": "pneumothorax", "group_by": "view", "k": 24})
    new = client.post(
        SEARCH, json={"text": "a boat", "keywords": "pneumothorax", "group_by": "view", "limit": 24}
    )
    assert old.headers["deprecation"] == "@1795737600"
    assert old.headers["link"] == '</docs#/search/search_images>; rel="deprecation"'
    assert "deprecation" not in new.headers
    before, now = old.json(), new.json()
    assert before["query"] == {"k": 24, "filter": None, "truncations": []}
    assert now["query"] == {"limit": 24, "filter": None, "truncations": []}
    assert any("words" in hit["found_by"] for hit in before["hits"])
    for hit, of_now in zip(before["hits"], now["hits"], strict=True):
        size, found_by = of_now.pop("group_size"), of_now.pop("found_by")
        renamed = {"unusual": of_now.pop("z_score"), "others": size - 1}
        listed = ["words" if name == "keywords" else name for name in found_by]
        assert hit == of_now | renamed | {"found_by": listed}
    assert {hit["others"] for hit in before["hits"]} == {7, 15}


def test_a_hit_without_a_group_has_no_others(client: TestClient) -> None:
    page = client.post(SEARCH, json={"text": "a boat", "k": 1}).json()
    assert page["hits"][0]["others"] is None


def test_pages_go_on_in_either_names(client: TestClient) -> None:
    whole = client.post(SEARCH, json={"text": "a boat", "limit": 6}).json()["hits"]
    first = client.post(SEARCH, json={"text": "a boat", "limit": 3, "cursor": True}).json()
    second = client.post(SEARCH, json={"text": "a boat", "k": 3, "cursor": first["next_cursor"]}).json()
    assert [hit["id"] for hit in (*first["hits"], *second["hits"])] == [hit["id"] for hit in whole]
    before = client.post(SEARCH, json={"text": "a boat", "k": 3}).json()
    assert before["next_cursor"] is not None


@pytest.mark.parametrize(("name", "before", "value"), PAIRS)
def test_a_thing_is_not_named_twice(client: TestClient, name: str, before: str, value: Any) -> None:
    answer = client.post(SEARCH, json={"text": "x", name: value, before: value})
    document = problem(answer, 422, "invalid-request", before)
    assert document["detail"] == f"{before}: This is the old name of {name}: give {name} alone."


def test_an_error_names_the_field_as_the_request_did(client: TestClient) -> None:
    problem(client.post(SEARCH, json={"text": "x", "k": 0}), 422, "invalid-request", "k")
    problem(client.post(SEARCH, json={"text": "x", "limit": 0}), 422, "invalid-request", "limit")


def test_behind_a_proxy_the_notice_names_its_path(indexed: Indexed) -> None:
    with TestClient(create_app(indexed.settings), "http://localhost", root_path="/films") as behind:
        answer = behind.post(SEARCH, json={"text": "x", "k": 1})
    assert answer.headers["link"].startswith("</films/docs#/search/search_images>")
