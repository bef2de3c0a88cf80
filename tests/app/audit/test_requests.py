"""Events of requests: who searched, saw, judged and changed what, by which names, on the disk in time."""

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from app.application import create_app
from app.audit.trail import open_trail
from app.health import routes as health
from index.audit.verify import verify_trail
from tests.access import AS_ADMIN, routes_of
from tests.app.audit.written import written_events
from tests.app.conftest import COLLECTION, PATIENT, Indexed, serve

HERE = f"/v1/collections/{COLLECTION}"


def audited(client: TestClient, **parameters: str) -> list[dict[str, Any]]:
    """Return the events of a trail that all were written to, but for readings of the trail itself."""
    return [event for event in written_events(client, AS_ADMIN, **parameters) if event["action"] != "audit"]


@pytest.mark.parametrize("part", ["bytes=0-3", "bytes=0-3,999999-", "bytes=-5", "lines=1-2"])
def test_a_part_of_a_file_is_exported_as_the_whole_is(service: TestClient, part: str) -> None:
    answer = service.get(f"{HERE}/images/image-4/content", headers={"Range": part})
    assert answer.status_code in (200, 206)
    (event,) = audited(service, action="export")
    assert (event["collection"], event["ids"]) == (COLLECTION, ["image-4"])
    assert event["details"]["operation"] == "get_content"


def test_a_header_of_parts_hides_no_search_and_no_change(service: TestClient) -> None:
    aside = {"Range": "bytes=0-"}
    assert service.post(f"{HERE}/search", json={"text": "two dogs"}, headers=aside).status_code == 200
    assert service.get(f"{HERE}/images/image-2/thumbnail", headers=aside).status_code == 206
    assert service.delete(f"{HERE}/images/image-5", headers=aside).status_code == 200
    seen = [(event["action"], event["details"]["operation"]) for event in audited(service)]
    assert ("search", "search_images") in seen
    assert ("delete", "delete_image") in seen


def test_a_search_names_the_hits_that_were_shown(service: TestClient) -> None:
    body = {
        "text": "two dogs",
        "like": [{"id": "image-3"}],
        "filter": {"field": "age", "gte": 20.5},
        "limit": 4,
    }
    answer = service.post(f"{HERE}/search", json=body, headers={"X-Request-ID": "mine-1"})
    shown = [hit["id"] for hit in answer.json()["hits"]]
    (event,) = audited(service, action="search")
    assert event["ids"] == shown
    assert len(shown) == 4
    assert event["collection"] == COLLECTION
    assert event["request"] == "mine-1"
    assert event["address"] == "127.0.0.1"
    assert event["actor"]["kind"] == "key"
    assert event["actor"]["name"]
    assert event["model"] == answer.json()["served_by"]["digest"]
    assert event["generation"] == answer.json()["served_by"]["generation"]
    assert event["query"]["text"] == ["two dogs"]
    assert event["query"]["filter"] == ['{"field":"age","gte":20.5}']
    # An example is named as a hit is: by a keyed hash.
    assert event["query"]["like"] != ["image-3"]
    assert event["query_form"] == "text"


def test_a_failed_search_has_shown_nothing(service: TestClient) -> None:
    assert service.post(f"{HERE}/search", json={"text": ""}).status_code == 422
    assert service.post("/v1/collections/none/search", json={"text": "a"}).status_code == 404
    assert audited(service) == []


@pytest.mark.parametrize(
    ("image", "requests", "expected"),
    [
        (
            f"{PATIENT} #7?",
            # The caller was shown the image before its thumbnail.
            ["GET ", "GET /content", "GET /rendition", "GET /thumbnail", "GET /thumbnail"],
            [("view", "get_image"), ("export", "get_content"), ("view", "get_rendition")],
        ),
        (
            "image-3",
            ["HEAD /content", "GET /levels", "HEAD "],
            [("view", "get_content"), ("view", "get_levels"), ("view", "get_image")],
        ),
    ],
)
def test_images_that_are_looked_at_are_named(
    service: TestClient, image: str, requests: list[str], expected: list[tuple[str, str]]
) -> None:
    for method, _, part in (one.partition(" ") for one in requests):
        answer = service.request(method, f"{HERE}/images/{quote(image, safe='')}{part}")
        assert answer.status_code == 200
        missing = service.request(method, f"{HERE}/images/none{part}")
        assert missing.status_code == 404
    result = audited(service)
    assert [(event["action"], event["details"]["operation"]) for event in result] == expected
    assert {image} == {one for event in result for one in event["ids"]}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which passes only where a test says so."""
    now = [1000.0]
    monkeypatch.setattr("app.audit.requests.time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_thumbnails_are_part_of_the_page_that_showed_the_image(
    service: TestClient, clock: list[float]
) -> None:
    hits = service.post(f"{HERE}/search", json={"text": "a boat", "limit": 3}).json()["hits"]
    for hit in hits:
        assert service.get(f"{HERE}/images/{quote(hit['id'], safe='')}/thumbnail").status_code == 200
    others = [
        f"image-{number}" for number in range(6) if f"image-{number}" not in {hit["id"] for hit in hits}
    ]
    for image in (others[0], others[0], hits[0]["id"]):
        service.get(f"{HERE}/images/{quote(image, safe='')}/thumbnail")
        clock[0] += 300.25
    service.get(f"{HERE}/images/{others[0]}/thumbnail")
    seen = [event["ids"][0] for event in audited(service)]
    assert seen == [hits[0]["id"], others[0], hits[0]["id"], others[0]]


def test_lists_and_counts_are_events(service: TestClient) -> None:
    listed = service.get(f"{HERE}/images", params={"limit": 2}).json()["images"]
    service.get(f"{HERE}/facets", params={"filter": '{"field": "view", "eq": "PA"}', "field": "age"})
    service.post(f"{HERE}/facets", json={"filter": {"field": "view", "eq": "PA"}, "field": "age"})
    browsed, counted, again = audited(service)
    assert browsed["ids"] == [image["id"] for image in listed]
    assert counted["query"] == {"filter": ['{"eq":"PA","field":"view"}']}
    assert counted["details"]["field"] == "age"
    assert (again["action"], again["query"]) == ("browse", counted["query"])


def test_a_change_is_on_the_disk_when_it_is_answered(service: TestClient, own: Indexed) -> None:
    judged = {"query": {"text": "two dogs"}, "hit": "image-2", "relevant": True}
    assert service.post(f"{HERE}/feedback", json=judged).status_code == 200
    with own.engine() as engine, engine.home.catalogue.read() as session:
        assert verify_trail(session, key=open_trail(own.settings, engine.home.catalogue).key).events == 1
    changes: list[tuple[Callable[..., Any], str, dict[str, Any]]] = [
        (service.patch, f"{HERE}/images/image-1", {"json": {"labels": ["Edema"]}}),
        (service.delete, f"{HERE}/images/image-4", {}),
        (service.post, "/v1/collections", {"json": {"name": "ward", "same_model_as": COLLECTION}}),
        (service.post, "/v1/jobs", {"json": {"kind": "tidy"}}),
    ]
    for number, (send, path, options) in enumerate(changes, 2):
        assert send(path, **options).status_code < 300
        with own.read() as session:
            assert verify_trail(session).events == number
    events = audited(service)
    assert [(event["action"], event["collection"], event["ids"]) for event in events] == [
        ("judge", COLLECTION, ["image-2"]),
        ("change", COLLECTION, ["image-1"]),
        ("delete", COLLECTION, ["image-4"]),
        ("create", "ward", []),
        ("create", None, []),
    ]
    assert events[0]["model"] is not None
    assert events[0]["details"]["relevant"] is True


def test_refused_callers_are_counted_once_a_second(own: Indexed, clock: list[float]) -> None:
    with serve(own, ("192.0.2.9", 5000), key=False) as service:
        for _ in range(4):
            assert service.delete(f"{HERE}/images/image-1").status_code == 401
        for passed in (0.95, 0.1):
            clock[0] += passed
            assert service.delete(f"{HERE}/images/image-1").status_code == 401
        first, second = audited(service)
    assert (first["action"], first["outcome"], first["address"]) == ("sign-in", "failure", "192.0.2.9")
    details = {"operation": "delete_image", "status": 401, "unrecorded_before": 0}
    assert (first["details"], second["details"]) == (details, {**details, "unrecorded_before": 4})


def test_pages_of_the_trail_go_on_where_the_last_one_ended(service: TestClient) -> None:
    for number in range(5):
        service.get(f"{HERE}/images/image-{number}")
    audited(service)
    seen: list[int] = []
    cursor: dict[str, str] = {}
    for _ in range(3):
        page = service.get("/v1/audit", params={"action": "view", "limit": "2", **cursor}).json()
        seen += [event["sequence"] for event in page["events"]]
        cursor = {"cursor": page["next_cursor"] or ""}
    assert len(seen) == len(set(seen)) == 5
    assert page["next_cursor"] is None
    for wrong in ({"cursor": "x"}, {"limit": "0"}, {"limit": "1001"}, {"until": "0001-01-01T00:00:00+01:00"}):
        assert service.get("/v1/audit", params=wrong).status_code == 422
    assert service.get("/v1/audit", params={"since": "2999-01-01"}).json()["events"] == []


@pytest.mark.parametrize("form", ["hash", "none"])
def test_texts_are_not_kept_where_the_setting_says_so(own: Indexed, form: str) -> None:
    with serve(own, audit_queries=form) as service:
        service.post(f"{HERE}/search", json={"text": "quite distinctive", "keywords": "effusion"})
        (event,) = audited(service)
    assert event["query_form"] == form
    if form == "hash":
        assert event["query"]["text"][0].startswith("hmac-sha256:")
        assert event["query"]["keywords"][0].startswith("hmac-sha256:")
    else:
        assert event["query"] is None
    files = [path for path in own.settings.home.rglob("*") if path.is_file()]
    assert all(b"quite distinctive" not in path.read_bytes() for path in files)


def test_without_an_audit_trail_nothing_is_kept(own: Indexed) -> None:
    with serve(own, audit=False) as service:
        service.post(f"{HERE}/search", json={"text": "a boat"})
        assert service.get("/v1/audit").json()["events"] == []


def test_a_comparison_with_an_image_names_it_and_the_query(service: TestClient) -> None:
    box = {"x": 0.3, "y": 0.1, "width": 0.25, "height": 0.5}
    query = {"text": "a boat", "like": [{"id": "image-4", "box": box}]}
    assert service.post(f"{HERE}/images/image-3/similarity-map", json=query).status_code == 200
    (event,) = audited(service)
    assert (event["action"], event["details"]["operation"]) == ("view", "map_similarity")
    assert event["ids"] == ["image-3"]
    assert event["query"]["text"] == ["a boat"]
    assert event["query"]["box"] == ['like.0: {"x":0.3,"y":0.1,"width":0.25,"height":0.5}']


# Readings of what shows no image.
NO_EVENT = {
    "begin_sign_in", "count_judgements", "get_docs", "get_docs_start", "get_job", "get_liveness",
    "get_metrics", "get_model", "get_operate", "get_page", "get_problems", "get_readiness", "get_reading",
    "get_room", "get_session", "get_viewer", "get_viewer_file", "list_aliases", "list_case_lists",
    "list_collections", "list_generations", "list_jobs", "list_models", "stream_job_events",
}  # fmt: skip


@pytest.fixture
def guarded(own: Indexed) -> Iterator[TestClient]:
    with serve(own, key=False, open_reading=False) as running:
        yield running


def test_every_route_declares_its_events(guarded: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    running: Any = guarded.app
    requests = [
        (one.name, {"method": min(one.methods or ()), "path": one.path}) for one in routes_of(running)
    ]
    assert {name for name, at in requests if running.stages.operations.match(at).audit is None} == NO_EVENT
    # An address without a route has no event, even where it redirects.
    assert (guarded.post("/v1/jobs/", follow_redirects=False).is_redirect, audited(guarded)) == (True, [])
    monkeypatch.delattr(health.get_liveness, "recoquest_operation")
    with pytest.raises(TypeError, match=r"get_liveness .* declares no operation"):
        create_app()


def test_a_batch_names_the_hits_of_searches_that_were_answered(guarded: TestClient) -> None:
    unknown = "x" * 300_000
    searches = [{"text": "a boat", "limit": 2}, {"like": [{"id": unknown}]}]
    answer = guarded.post(f"{HERE}/search/batch", json={"searches": searches}, headers=AS_ADMIN)
    assert answer.status_code == 207, answer.text
    (event,) = audited(guarded, action="search")
    assert event["ids"] == [hit["id"] for hit in answer.json()["results"][0]["page"]["hits"]]
    assert unknown not in json.dumps(event)


def test_ids_in_filters_are_named_by_their_hashes(guarded: TestClient) -> None:
    condition = {"or": [{"field": "id", "eq": "image-3"}, {"field": "id", "any_of": ["image-4"]}]}
    guarded.post(f"{HERE}/search", json={"text": "a boat", "filter": condition}, headers=AS_ADMIN)
    guarded.get(f"{HERE}/images", params={"filter": json.dumps(condition)}, headers=AS_ADMIN)
    searched, listed = audited(guarded)
    for event in (searched, listed):
        assert "image-3" not in event["query"]["filter"][0]
        assert len(event["query"]["filter_ids"]) == 2
    assert searched["query"]["filter_ids"] == listed["query"]["filter_ids"]


def test_addresses_that_a_caller_invents_fill_no_trail(guarded: TestClient) -> None:
    for number in range(30):
        sent = {"X-Forwarded-For": f"10.0.0.{number}"}
        assert guarded.get("/v1/jobs", headers=sent).status_code == 401
    assert len(audited(guarded, action="sign-in")) <= 2


def test_an_answer_that_is_given_again_is_recorded_as_such(guarded: TestClient) -> None:
    body = {"query": {"text": "a boat"}, "hit": "image-3", "relevant": True}
    for _ in range(2):
        headers = {**AS_ADMIN, "Idempotency-Key": "one"}
        assert guarded.post(f"{HERE}/feedback", json=body, headers=headers).status_code == 200
    first, again = audited(guarded, action="judge")
    assert "replayed" not in first["details"]
    assert again["details"]["replayed"] is True
