"""Deletion by filter: what it removes, what it leaves, and that it continues after a stop."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from app.images import deletion
from app.images.deletion import Deletion
from index.audit.event import Actor
from index.audit.listing import Selection, all_events
from index.audit.verify import verify_trail
from index.catalogue import lookup as batches
from index.catalogue.lookup import parts
from index.errors import CatalogueTimeoutError, DiskFullError, UnknownCollectionError
from tests.app.audit.written import written_events
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.app.images.test_uploads import files_of
from tests.index.killing import kill_after

EVEN = {"field": "view", "eq": "AP"}  # images 0, 3, ... 21
NOBODY = Actor("command")


@pytest.fixture(scope="module")
def service(on_either: Indexed) -> Iterator[TestClient]:
    with serve(on_either) as running:
        yield running


@pytest.fixture
def name(request: pytest.FixtureRequest, on_either: Indexed) -> str:
    """A collection of 24 images that a test may empty."""
    called = request.node.originalname.replace("test_", "")[:90]
    on_either.index(called, on_either.bundle)
    return str(called)


def ask(service: TestClient, name: str, headers: dict[str, str] | None = None, **body: Any) -> Response:
    path = f"/v1/collections/{name}/images/delete"
    answer: Response = service.post(path, json=body, headers=headers or {})
    return answer


def count(service: TestClient, name: str, condition: Any = None) -> int:
    answer = service.post(f"/v1/collections/{name}/count", json={"filter": condition})
    return int(answer.json()["count"])


def test_a_dry_run_counts_deletes_nothing_and_is_in_the_trail_as_a_look(
    service: TestClient, name: str
) -> None:
    answer = ask(service, name, filter=EVEN, dry_run=True)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["matched"], body["deleted"], body["remaining"], body["dry_run"]) == (8, 0, 8, True)
    assert body["ids"] == [f"image-{number}" for number in range(0, 24, 3)]
    assert count(service, name) == 24
    events = written_events(service, collection=name)
    (event,) = [event for event in events if event["details"].get("dry_run")]
    assert (event["action"], event["object_count"], event["details"]["matched"]) == ("browse", 8, 8)


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        (EVEN, 16),
        # By columns: more conditions than the database joins.
        ({"or": [{"field": "age", "eq": 20 + number} for number in range(12)]}, 12),
        ({"not": {"field": "labels", "eq": "Edema"}}, 12),
        ({"field": "age", "gte": 1000}, 24),
    ],
)
def test_what_passes_is_gone_and_all_else_stays(
    service: TestClient, name: str, condition: dict[str, Any], left: int
) -> None:
    kept = service.get(f"/v1/collections/{name}/images", params={"filter": json.dumps({"not": condition})})
    answer = ask(service, name, filter=condition)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["matched"], body["deleted"], body["remaining"]) == (24 - left, 24 - left, 0)
    assert (count(service, name), count(service, name, condition)) == (left, 0)
    listed = service.get(f"/v1/collections/{name}/images").json()["images"]
    assert [image["id"] for image in listed] == [image["id"] for image in kept.json()["images"]]
    hits = service.post(f"/v1/collections/{name}/search", json={"text": "a boat", "limit": 24}).json()["hits"]
    assert {hit["id"] for hit in hits} == {image["id"] for image in listed}
    assert ask(service, name, filter=condition).json()["matched"] == 0


@pytest.mark.parametrize("parameters", [{}, {"filter": {}}, {"filter": None}, {"filter": {"and": []}},
                                    {"filter": {"field": "nothing", "eq": 1}},
                                    {"filter": EVEN, "expected_count": -1}])  # fmt: skip
def test_filters_that_say_nothing_are_refused(
    service: TestClient, name: str, parameters: dict[str, Any]
) -> None:
    assert ask(service, name, **parameters).status_code == 422
    assert count(service, name) == 24


def test_another_number_than_expected_is_refused(service: TestClient, name: str) -> None:
    for wrong in (0, 7, 9):
        answer = ask(service, name, filter=EVEN, expected_count=wrong)
        assert answer.status_code == 409
        assert answer.json()["type"] == "urn:recoquest:unexpected-count"
    assert count(service, name) == 24
    assert ask(service, name, filter=EVEN, expected_count=8).json()["deleted"] == 8


def test_a_request_deletes_a_bounded_number_and_the_next_ones_go_on(
    service: TestClient, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "AT_ONCE", 2)
    monkeypatch.setattr(deletion, "MAX_DELETED", 5)
    seen = []
    for _ in range(3):
        answer = ask(service, name, filter=EVEN)
        seen.append((answer.status_code, answer.json()["deleted"], answer.json()["remaining"]))
    assert seen == [(207, 4, 4), (200, 4, 0), (200, 0, 0)]


def test_a_request_that_is_sent_again_is_answered_and_not_done_again(service: TestClient, name: str) -> None:
    key = {"Idempotency-Key": name}
    first = ask(service, name, key, filter=EVEN, expected_count=8)
    again = ask(service, name, key, filter=EVEN, expected_count=8)
    assert (first.status_code, again.status_code, again.json()) == (200, 200, first.json())
    assert again.headers["Idempotency-Replayed"] == "true"


def test_an_image_that_is_changed_meanwhile_stays(service: TestClient, name: str, on_either: Indexed) -> None:
    with on_either.engine() as engine:
        begun = Deletion(on_either.settings, engine.home, name, EVEN, NOBODY, operation="delete")
        for image, view in (("image-3", "PA"), ("image-6", "AP")):
            changes = {"metadata": {"view": view}, "labels": ["Changed"]}
            path = f"/v1/collections/{name}/images/{image}"
            assert service.patch(path, json=changes).status_code == 200
        for keys in parts(begun.matching.keys):
            begun.delete(keys)
        assert (begun.deleted, begun.remaining()) == (6, 1)
    assert count(service, name, {"field": "labels", "eq": "Changed"}) == 2


def test_a_failure_in_the_middle_is_told_with_the_number_that_is_gone(
    service: TestClient, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "AT_ONCE", 3)
    delete, calls = Deletion.delete, iter(range(10))

    def full(self: Deletion, keys: list[int]) -> None:
        if next(calls):
            raise DiskFullError
        delete(self, keys)

    monkeypatch.setattr(Deletion, "delete", full)
    answer = ask(service, name, filter=EVEN)
    assert answer.status_code == 207, answer.text
    body = answer.json()
    assert (body["deleted"], body["remaining"], count(service, name)) == (3, 5, 21)
    assert body["problem"]["type"] == "urn:recoquest:disk-full"
    # With nothing gone, it is an error like any other.
    assert ask(service, name, filter=EVEN).status_code == 507


def test_a_count_that_fails_hides_nothing_that_is_gone(
    service: TestClient, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(_: Deletion) -> int:
        raise CatalogueTimeoutError

    def gone(_: Deletion) -> int:
        raise UnknownCollectionError(name, ["secret"])

    for failing, slug, status in ((busy, "catalogue-timeout", 504), (gone, "unknown-collection", 404)):
        monkeypatch.setattr(Deletion, "remaining", failing)
        condition = {"field": "id", "eq": "image-1" if failing is busy else "image-2"}
        answer = ask(service, name, filter=condition)
        assert answer.status_code == 207, answer.text
        body = answer.json()
        assert (body["matched"], body["deleted"], body["remaining"]) == (1, 1, 0)
        assert (body["problem"]["type"], body["problem"]["status"]) == (f"urn:recoquest:{slug}", status)
        assert body["problem"]["detail"].startswith("What passes the filter now cannot be counted: ")
        assert "secret" not in answer.text
    assert count(service, name) == 22


def test_events_name_the_filter_and_each_image(
    service: TestClient, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "AT_ONCE", 2)
    condition = {"or": [{"field": "id", "any_of": ["image-1", "image-2"]}, {"field": "id", "eq": "image-4"}]}
    assert ask(service, name, filter=condition, dry_run=True).status_code == 200
    assert ask(service, name, filter=condition).json()["deleted"] == 3

    def events(action: str) -> list[dict[str, Any]]:
        body = service.get("/v1/audit", params={"action": action, "collection": name}).json()["events"]
        return [event for event in body if event["details"]["operation"] == "delete_matching_images"]

    gone = events("delete")
    assert sorted(image for event in gone for image in event["ids"]) == ["image-1", "image-2", "image-4"]
    assert [event["object_count"] for event in gone] in ([1, 2], [2, 1])
    for event in gone:
        assert event["details"]["matched"] == 3
        assert "image-1" not in event["query"]["filter"][0]
        assert len(event["query"]["filter_ids"]) == 3


def test_the_command_deletes_and_its_files_go(own: Indexed) -> None:
    requested = ("delete", COLLECTION, "--filter", json.dumps(EVEN))
    assert "8 images pass the filter: image-0, image-3" in own.run(*requested, "--dry-run").output
    for wrong in ("{}", "["):
        own.run("delete", COLLECTION, "--filter", wrong, code=2)
    own.run(*requested, "--expected-count", 9, code=1)
    assert "8 of 8 images are deleted" in own.run(*requested, "--expected-count", 8).output
    assert files_of(own) == 16
    with own.engine() as engine:
        assert engine.collection(COLLECTION).count == 16
    with own.read() as session:
        (event,) = all_events(session, Selection(action="delete"))
    assert event.record["object_count"] == 8


_PROGRAM = """
import sys
from pathlib import Path
from app.engine import open_engine
from app.images.deletion import Deletion
from app.settings import Settings
from index.audit.event import Actor
from index.catalogue import lookup

lookup.AT_ONCE = 2
settings = Settings(home=Path(sys.argv[1]))
engine = open_engine(settings)
condition = {"field": "view", "eq": "AP"}
begun = Deletion(settings, engine.home, "photos", condition, Actor("command"), operation="delete")
for keys in lookup.parts(begun.matching.keys):
    begun.delete(keys)
    print("batch", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.slow
def test_a_killed_deletion_leaves_whole_batches_and_goes_on(own: Indexed) -> None:
    kill_after(2, _PROGRAM, Path(own.settings.home))
    with own.engine() as engine:
        gone = 24 - engine.collection(COLLECTION).count
        assert gone in (4, 6)
        with engine.home.catalogue.read() as session:
            events = list(all_events(session, Selection(action="delete")))
        # Each image that is gone has its event, and no other has one.
        assert sum(event.record["object_count"] for event in events) == gone
        begun = Deletion(own.settings, engine.home, COLLECTION, EVEN, NOBODY, operation="delete")
        assert len(begun.matching.keys) == 8 - gone
        for keys in parts(begun.matching.keys):
            begun.delete(keys)
        assert engine.collection(COLLECTION).count == 16
        with engine.home.catalogue.read() as session:
            assert verify_trail(session).fault is None
