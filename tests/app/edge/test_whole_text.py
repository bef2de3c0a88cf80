"""Half of a character is refused by the name of its field, before anything is encoded or looked up."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError
from fastapi.testclient import TestClient
from pydantic import TypeAdapter, ValidationError

from app.application import create_app
from app.edge.schemas import refuse_lone_surrogates
from app.encoding.queue import EncodingQueue
from app.search.read_search import parsed
from tests.access import AS_ADMIN
from tests.app.conftest import COLLECTION, Indexed
from tests.app.search.test_search import SEARCH, problem

_IMAGES = f"/v1/collections/{COLLECTION}/images"
_FEEDBACK = f"/v1/collections/{COLLECTION}/feedback"
_HALF = "\ud800"


@pytest.fixture(scope="module")
def local(on_either: Indexed) -> Iterator[TestClient]:
    """Who may write to a collection of its own."""
    application = create_app(on_either.settings)
    with TestClient(
        application,
        "http://127.0.0.1",
        raise_server_exceptions=False,
        client=("127.0.0.1", 50_000),
        headers=AS_ADMIN,
    ) as client:
        yield client


@pytest.fixture(autouse=True)
def nothing_is_encoded(local: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts with a half character never reach the encoder."""
    encode = EncodingQueue.encode_text

    async def watched(queue: EncodingQueue, text: str, **options: Any) -> Any:
        text.encode()
        return await encode(queue, text, **options)

    monkeypatch.setattr(EncodingQueue, "encode_text", watched)


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("POST", SEARCH, {"text": f"two {_HALF}dogs"}, "text"),
        ("POST", SEARCH, {"text": "dogs", "keywords": "\udfff"}, "keywords"),
        ("POST", SEARCH, {"like": [{"text": "dogs"}, {"text": f"a{_HALF}"}]}, "like.1.text"),
        ("POST", SEARCH, {"unlike": [{"id": _HALF}], "text": "dogs"}, "unlike.0.id"),
        ("POST", SEARCH, {"text": "dogs", "filter": {"field": "view", "eq": _HALF}}, "filter.eq"),
        (
            "POST",
            SEARCH,
            {"text": "dogs", "filter": {"and": [{"field": _HALF, "eq": 1}]}},
            "filter.and.0.field",
        ),
        ("POST", SEARCH, {"text": "dogs", "filter": {"field": "view", "in": ["PA", _HALF]}}, "filter.in.1"),
        ("POST", SEARCH, {"text": "dogs", "group_by": _HALF}, "group_by"),
        ("POST", SEARCH, {"text": "dogs", "cursor": _HALF}, "cursor"),
        ("POST", SEARCH, {"text": "dogs", _HALF: 1}, "body"),
        ("PATCH", f"{_IMAGES}/image-1", {"texts": ["a dog", f"a{_HALF}"]}, "texts.1"),
        ("PATCH", f"{_IMAGES}/image-1", {"labels": [_HALF]}, "labels.0"),
        ("PATCH", f"{_IMAGES}/image-1", {"report": _HALF}, "report"),
        ("PATCH", f"{_IMAGES}/image-1", {"group": _HALF}, "group"),
        ("PATCH", f"{_IMAGES}/image-1", {"split": _HALF}, "split"),
        ("PATCH", f"{_IMAGES}/image-1", {"metadata": {"view": [_HALF]}}, "metadata.view.0"),
        ("PATCH", f"{_IMAGES}/image-1", {"metadata": {_HALF: 1}}, "metadata"),
        ("POST", _FEEDBACK, {"query": {"text": _HALF}, "hit": "image-1", "relevant": True}, "query.text"),
        ("POST", _FEEDBACK, {"query": {"text": "dogs"}, "hit": _HALF, "relevant": True}, "hit"),
        ("POST", "/v1/collections", {"name": _HALF, "model": "tiny-0"}, "name"),
        ("POST", "/v1/collections", {"name": "new", "model": _HALF}, "model"),
        ("POST", "/v1/jobs", {"kind": "retrain", "collection": _HALF}, "retrain.collection"),
        ("POST", "/v1/jobs", {"kind": _HALF}, "body"),
    ],
)
def test_half_of_a_character_is_refused_by_the_name_of_its_field(
    local: TestClient, method: str, path: str, body: dict[str, Any], field: str
) -> None:
    content = json.dumps(body)
    assert "\\ud" in content
    answer = local.request(method, path, content=content, headers={"Content-Type": "application/json"})
    problem(answer, 422, "invalid-request", field)


@pytest.mark.parametrize(
    ("method", "path", "name", "value", "field"),
    [
        ("POST", SEARCH, "query", {"text": _HALF}, "text"),
        ("POST", _IMAGES, "records", [{"id": "new"}, {"id": _HALF}], "records.1.id"),
        ("POST", _IMAGES, "records", [{"id": "new", "texts": ["a", _HALF]}], "records.0.texts.1"),
        ("PUT", f"{_IMAGES}/new", "record", {"metadata": {"view": _HALF}}, "record.metadata.view"),
    ],
)
def test_so_are_the_texts_of_forms(
    local: TestClient, method: str, path: str, name: str, value: Any, field: str
) -> None:
    answer = local.request(
        method, path, data={name: json.dumps(value)}, files={"image": ("a.png", b"no image")}
    )
    problem(answer, 422, "invalid-request", field)


def test_a_whole_character_of_two_halves_is_taken(local: TestClient) -> None:
    content = '{"texts": ["a \\ud83d\\udc15"]}'
    answer = local.patch(f"{_IMAGES}/image-2", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200
    assert local.get(f"{_IMAGES}/image-2").json()["texts"] == ["a \U0001f415"]


def test_the_place_of_a_half_is_named() -> None:
    refuse_lone_surrogates({"a": [1, None, {"b": "whole"}], "c": True})
    with pytest.raises(ValidationError) as caught:
        refuse_lone_surrogates({"a": [1, {"b": ["x", _HALF]}]})
    assert caught.value.errors()[0]["loc"] == ("a", 1, "b", 1)


@pytest.mark.parametrize("content", ["[" * 100_000, "{", '"\\ud800', "\ufeff"])
def test_what_is_no_json_stays_none(content: str) -> None:
    with pytest.raises(RequestValidationError) as caught:
        parsed(TypeAdapter(list[str]).validate_json, content, "body")
    assert caught.value.errors()[0]["type"] == "json_invalid"
