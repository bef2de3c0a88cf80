"""Names in the audit trail: operations, images in filters and batches, callers that are refused."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.application import create_app
from app.edge.operations import operation_of
from tests.access import AS_ADMIN, routes_of
from tests.app.audit.written import written_events
from tests.app.conftest import COLLECTION, Indexed

HERE = f"/v1/collections/{COLLECTION}"
# Changes and readings of what shows no image.
UNNAMED = {
    "update_image", "cancel_job", "count_judgements", "get_job", "get_model",
    "list_aliases", "list_case_lists", "list_collections", "list_generations", "list_jobs", "list_models",
    "put_alias", "put_case_list", "remove_case_image", "rename_collection", "save_case_image",
    "stream_job_events",
}  # fmt: skip


@pytest.fixture
def service(own: Indexed) -> Iterator[TestClient]:
    settings = own.settings.model_copy(update={"open_reading": False})
    with TestClient(create_app(settings), "http://localhost", client=("127.0.0.1", 5000)) as running:
        yield running


def _events(client: TestClient, **wanted: str) -> list[dict[str, Any]]:
    return [event for event in written_events(client, AS_ADMIN, **wanted) if event["action"] != "audit"]


def test_every_operation_that_needs_a_role_has_an_action(service: TestClient) -> None:
    application = service.app
    assert isinstance(application, FastAPI)
    guarded = [route for route in routes_of(application) if getattr(route, "permission", None) is not None]
    assert len(guarded) > 50
    unnamed = {route.name for route in guarded if operation_of(route.endpoint).audit is None}
    assert unnamed == UNNAMED


def test_a_batch_names_the_hits_of_searches_that_were_answered(service: TestClient) -> None:
    unknown = "x" * 300_000
    searches = [{"text": "a boat", "limit": 2}, {"like": [{"id": unknown}]}]
    answer = service.post(f"{HERE}/search/batch", json={"searches": searches}, headers=AS_ADMIN)
    assert answer.status_code == 207, answer.text
    (event,) = _events(service, action="search")
    assert event["ids"] == [hit["id"] for hit in answer.json()["results"][0]["page"]["hits"]]
    assert unknown not in json.dumps(event)


def test_ids_in_filters_are_named_by_their_hashes(service: TestClient) -> None:
    condition = {"or": [{"field": "id", "eq": "image-3"}, {"field": "id", "any_of": ["image-4"]}]}
    service.post(f"{HERE}/search", json={"text": "a boat", "filter": condition}, headers=AS_ADMIN)
    service.get(f"{HERE}/images", params={"filter": json.dumps(condition)}, headers=AS_ADMIN)
    searched, listed = _events(service)
    for event in (searched, listed):
        assert "image-3" not in event["query"]["filter"][0]
        assert len(event["query"]["filter_ids"]) == 2
    assert searched["query"]["filter_ids"] == listed["query"]["filter_ids"]


def test_addresses_that_a_caller_invents_fill_no_trail(service: TestClient) -> None:
    for number in range(30):
        sent = {"X-Forwarded-For": f"10.0.0.{number}"}
        assert service.get("/v1/jobs", headers=sent).status_code == 401
    assert len(_events(service, action="sign-in")) <= 2


def test_an_answer_that_is_given_again_is_recorded_as_such(service: TestClient) -> None:
    body = {"query": {"text": "a boat"}, "hit": "image-3", "relevant": True}
    for _ in range(2):
        headers = {**AS_ADMIN, "Idempotency-Key": "one"}
        assert service.post(f"{HERE}/feedback", json=body, headers=headers).status_code == 200
    first, again = _events(service, action="judge")
    assert "replayed" not in first["details"]
    assert again["details"]["replayed"] is True
