"""Wrong fields are told in a sentence, however many there are and however long their names."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.application import create_app
from app.edge.problems import FieldError, describe_errors, field_errors
from index.errors import UnknownCollectionError, listed
from tests.access import AS_ADMIN
from tests.app.conftest import COLLECTION, Indexed

_IMAGES = f"/v1/collections/{COLLECTION}/images"
_SEARCH = f"/v1/collections/{COLLECTION}/search"
_FEEDBACK = f"/v1/collections/{COLLECTION}/feedback"
_MANY = {f"f{number}": 1 for number in range(5_000)}


@pytest.fixture
def local(client: TestClient) -> TestClient:
    """Who may write to the shared collection."""
    return TestClient(client.app, base_url="http://127.0.0.1", client=("127.0.0.1", 50_000), headers=AS_ADMIN)


def _told(answer: Any, field: str, sentence: str) -> None:
    assert answer.status_code == 422, answer.text[:1000]
    assert len(answer.content) < 2_000
    document = answer.json()
    assert [error["field"] for error in document["errors"]] == [field]
    assert document["detail"] == f"{field}: {document['errors'][0]['message']}"
    assert sentence in document["detail"]


@pytest.mark.parametrize(
    ("method", "path", "body", "field", "sentence"),
    [
        ("POST", _SEARCH, {"like": [{"vector": [""] * 20_000}]}, "like.0.vector.0", "number"),
        ("POST", _SEARCH, {"like": [{"vector": [None] * 20_000}]}, "like.0.vector.0", "number"),
        ("POST", _SEARCH, {"like": [{"vector": [1] * 20_000}]}, "like.0.vector", "20000 are too many"),
        ("POST", _SEARCH, {"like": [{"id": 1}] * 5_000}, "like.0.id", "a text"),
        ("POST", _SEARCH, {"like": [{"id": "a"}] * 5_000}, "like", "at most 16"),
        ("POST", _SEARCH, _MANY, "f0", "unknown; known are text, like, unlike, keywords"),
        ("POST", _SEARCH, {"like": [_MANY]}, "like.0.f0", "known are id, text, vector, box."),
        ("POST", _SEARCH, {"x" * 5_000: 1}, f"{'x' * 80}...", "unknown"),
        ("POST", _FEEDBACK, _MANY, "f0", "known are query, hit, relevant, missed."),
        ("PATCH", f"{_IMAGES}/image-1", {"texts": [1] * 20_000}, "texts.0", "a text"),
        ("PATCH", f"{_IMAGES}/image-1", {"labels": ["a"] * 20_000}, "labels", "at most 1024"),
        ("PATCH", f"{_IMAGES}/image-1", {"metadata": _MANY}, "metadata", "5000 fields are too many"),
        ("POST", "/v1/jobs", {"kind": "tidy", **_MANY}, "tidy.f0", "known are kind."),
        (
            "POST",
            "/v1/jobs",
            {"kind": "x" * 5_000},
            "body",
            "'tidy', 'reindex', 'retrain', 'duplicates', 'pacs_sync'",
        ),
        ("POST", "/v1/models", _MANY, "f0", "known are job."),
    ],
)
def test_however_much_is_wrong_one_sentence_tells_of_it(
    local: TestClient, method: str, path: str, body: dict[str, Any], field: str, sentence: str
) -> None:
    _told(local.request(method, path, json=body), field, sentence)


def test_as_many_records_as_fit_into_a_form_are_told_in_one_sentence(local: TestClient) -> None:
    for records in (["{}"] * 20_000, ['{"id": "a"}'] * 20_000):
        answer = local.post(
            _IMAGES, files={"image": ("a.png", b"x")}, data={"records": f"[{','.join(records)}]"}
        )
        assert answer.status_code == 422
        assert len(answer.content) < 2_000


def test_the_first_of_many_wrong_fields_are_told() -> None:
    found = [
        {"type": "missing", "loc": ("body", f"f{number}"), "msg": "Field required"} for number in range(1_010)
    ]
    errors = field_errors(found)
    assert errors[0] == FieldError(field="f0", message="It is missing.")
    assert len(errors) == 8
    assert describe_errors(errors, more=1_002).endswith(
        "f6: It is missing; f7: It is missing; and 1,002 more."
    )


def test_too_few_items_are_told_in_words_of_people(local: TestClient) -> None:
    answer = local.post(f"/v1/collections/{COLLECTION}/erase", json={"ids": []})
    assert answer.json()["detail"] == "ids: 0 are too few; send at least 1."


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"text": "  "}, "text: There is nothing in it."),
        ({"text": "\u200b"}, "text: There is nothing in it."),
        ({"text": 3}, "text: It must be a text."),
        ({"text": "x", "limit": 0}, "limit: It must be at least 1."),
        (
            {"text": "x", "limit": 1001, "diversity": "1"},
            "diversity: It must be a number; limit: It must be at most 1000.",
        ),
        ({"text": "x", "limit": 1.5}, "limit: It must be a whole number."),
        ({"text": "x", "target": "reports"}, "target: It must be 'images' or 'texts'."),
        ({"like": {}}, "like: It must be a list."),
        ({"like": [3]}, "like.0: It must be a JSON object."),
        ({"text": "x", "filter": 3}, "filter: It must be a JSON object."),
        (
            {"text": "x", "cursor": "x" * 100_000},
            "cursor: It must be true, false or `next_cursor` of the page before.",
        ),
    ],
)
def test_a_wrong_field_is_told_in_words_of_people(
    client: TestClient, query: dict[str, Any], sentence: str
) -> None:
    assert client.post(_SEARCH, json=query).json()["detail"] == sentence


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (_SEARCH, {"like": [{"id": "x" * 100_000}]}),
        (_SEARCH, {"text": "x", "filter": {"field": "x" * 1_000, "eq": 1}}),
        (_SEARCH, {"text": "x", "filter": {"field": "view", "eq": 1, "x" * 5_000: 1}}),
        ("/v1/collections", {"name": "x" * 100_000, "same_model_as": COLLECTION}),
        ("/v1/collections", {"name": "new", "same_model_as": "x" * 100_000}),
        ("/v1/collections", {"name": "new", "model": "x" * 100_000}),
        ("/v1/jobs", {"kind": "retrain", "collection": "x" * 100_000}),
    ],
)
def test_a_long_name_is_not_repeated_whole(
    client: TestClient, local: TestClient, path: str, body: dict[str, Any]
) -> None:
    answer = (client if path == _SEARCH else local).post(path, json=body)
    assert answer.status_code in (404, 422)
    assert f"{'x' * 80}..." in answer.json()["detail"]
    assert len(answer.content) < 2_000


def test_however_many_fields_a_collection_has_few_are_listed(own: Indexed) -> None:
    with TestClient(
        create_app(own.settings), "http://localhost", client=("127.0.0.1", 50_000), headers=AS_ADMIN
    ) as client:
        for number in range(3):
            named = {f"{number}-{field}-{'x' * 200}": field for field in range(1_000)}
            changed = client.patch(f"{_IMAGES}/image-{number}", json={"metadata": named})
            assert changed.status_code == 200, changed.text
        for query in ({"filter": {"field": "0-x", "eq": 1}}, {"group_by": "0-x"}):
            answer = client.post(_SEARCH, json={"text": "dogs", **query})
            assert answer.status_code == 422
            assert "and 2,9" in answer.json()["detail"]
            assert len(answer.content) < 6_000
        # Not a slip for any of them, and long enough for seconds of comparing.
        odd = client.post(_SEARCH, json={"text": "dogs", "filter": {"field": "x" * 990, "eq": 1}})
        assert "Did you mean" not in odd.json()["detail"]
        near = client.post(_SEARCH, json={"text": "dogs", "filter": {"field": "viev", "eq": 1}})
        assert "Did you mean 'view'?" in near.json()["detail"]


def test_however_many_collections_there_are_few_are_listed() -> None:
    names = [f"collection-{number}" for number in range(5_000)]
    message = str(UnknownCollectionError("none", names))
    assert message.endswith("collection-19, and 4,980 more.")
    assert listed(names[:2]) == "collection-0, collection-1"
    assert listed(["x" * 100, "\ud800"]) == f"{'x' * 80}..., ?"


def test_a_field_that_lies_deep_has_a_short_name() -> None:
    found = [{"type": "value_error", "loc": ("body", *["x" * 90] * 50), "msg": "y" * 10_000}] * 20
    (error, *others) = field_errors(found)
    assert len(others) == 7
    assert len(error.field) < 500
    assert len(error.message) < 500
