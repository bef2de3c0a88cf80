"""Activation and rollback that a job does: answered at once, done by a worker's command."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.engine import open_engine
from index.audit.listing import Selection, all_events
from index.catalogue.jobs import add_job, claim_job, end_job, list_jobs
from index.engine import SearchEngine
from index.generations.reindex import generation_for
from tests.access import bearer
from tests.app.conftest import COLLECTION, Indexed, make_bundle
from tests.app.images.test_writes import problem
from training.models.encoder import load_encoder

HERE = f"/v1/collections/{COLLECTION}"
LATER = {"Prefer": "wait=5, Respond-Async"}


@pytest.fixture
def engine(own: Indexed) -> Iterator[SearchEngine]:
    opened = open_engine(own.settings)
    yield opened
    opened.close()


@pytest.fixture
def other(own: Indexed, engine: SearchEngine) -> int:
    """A generation by another encoder that has no vectors yet."""
    folder = make_bundle(own.settings.home.parent / "other", seed=7)
    return generation_for(engine.home, COLLECTION, load_encoder(folder, "cpu")).id


def work(own: Indexed, job: dict[str, Any]) -> None:
    """Run the command of a job, as a worker does."""
    own.run(job["kind"], *job["arguments"], "--device", "cpu")
    with own.write() as session:
        assert claim_job(session, job["id"], "w") is not None
        end_job(session, job["id"], "w", "done")


def test_a_job_activates_what_is_far_from_complete_and_another_takes_it_back(
    own: Indexed, service: TestClient, engine: SearchEngine, other: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOQUEST_REFRESH_S", "0.01")
    first = engine.active(COLLECTION).generation
    activation = f"{HERE}/generations/{other}/activate"
    problem(service.post(activation), 409, "incomplete-generation")

    given = service.post(activation, headers=LATER)

    assert given.status_code == 202, given.text
    assert given.headers["Preference-Applied"] == "respond-async"
    assert given.json()["arguments"] == [COLLECTION, "--generation", str(other), "--activate"]
    assert service.get(given.headers["Location"]).json()["state"] == "queued"
    assert engine.active(COLLECTION).generation == first
    work(own, given.json())
    assert engine.active(COLLECTION).generation == other
    back = service.post(f"{HERE}/rollback", headers=LATER)
    assert (back.status_code, back.json()["arguments"][2]) == (202, str(first))
    work(own, back.json())
    assert engine.active(COLLECTION).generation == first
    with engine.home.catalogue.read() as session:
        events = list(all_events(session, Selection(action="activate", collection=COLLECTION)))
        queued = list(all_events(session, Selection(action="create", collection=COLLECTION)))
    # A queued job is no activation yet: the commands tell of these.
    assert [event.record["generation"] for event in events] == [other, first]
    assert [event.record["details"]["job"] for event in queued] == [given.json()["id"], back.json()["id"]]


def test_a_request_that_is_sent_again_queues_one_job(
    service: TestClient, engine: SearchEngine, other: int
) -> None:
    sent = {**LATER, "Idempotency-Key": "once"}
    activation = f"{HERE}/generations/{other}/activate"
    first, again = (service.post(activation, headers=sent) for _ in range(2))
    assert (first.status_code, again.status_code, again.json()) == (202, 202, first.json())
    assert again.headers["Location"] == first.headers["Location"]
    with engine.home.catalogue.read() as session:
        assert len(list_jobs(session)) == 1


def test_what_is_not_there_queues_nothing(service: TestClient, engine: SearchEngine) -> None:
    missing = service.post(f"{HERE}/generations/999/activate", headers=LATER)
    problem(missing, 404, "unknown-generation")
    problem(service.post(f"{HERE}/rollback", headers=LATER), 404, "unknown-generation")
    with engine.home.catalogue.read() as session:
        assert list_jobs(session) == []


def _admin_of(own: Indexed, collection: str) -> dict[str, str]:
    return bearer(own.key("admin", collection, name=collection))


def test_an_administrator_of_the_collection_alone_sees_the_job_and_begins_one_at_a_time(
    own: Indexed, service: TestClient, engine: SearchEngine, other: int
) -> None:
    of_photos, of_others = _admin_of(own, COLLECTION), _admin_of(own, "others")
    activation = f"{HERE}/generations/{other}/activate"
    given = service.post(activation, headers={**LATER, **of_photos})
    assert given.status_code == 202, given.text
    place = given.headers["Location"]
    assert service.get(place, headers=of_photos).json()["state"] == "queued"
    assert service.get(place, headers=of_others).status_code == 403
    for _ in range(3):
        second = service.post(activation, headers={**LATER, **of_photos})
        problem(second, 409, "job-exists")
        assert f"job {given.json()['id']} already, which is queued" in second.json()["detail"]
    with engine.home.catalogue.read() as session:
        assert len(list_jobs(session)) == 1
    assert service.post(f"{place}/cancel", headers=of_others).status_code == 403
    assert service.post(f"{place}/cancel", headers=of_photos).status_code == 202
    events = service.get(f"{place}/events", headers=of_photos)
    assert (events.status_code, events.text.count("event: job"), "cancelled" in events.text) == (200, 1, True)
    assert service.get(f"{place}/events", headers=of_others).status_code == 403
    assert service.post(activation, headers={**LATER, **of_photos}).status_code == 202


def test_other_jobs_of_the_collection_are_for_the_operator(
    own: Indexed, service: TestClient, engine: SearchEngine
) -> None:
    of_photos = _admin_of(own, COLLECTION)
    activation = [COLLECTION, "--generation", "1", "--activate"]
    others = [
        ("index", [COLLECTION, "--data", "/srv/films"], None),
        ("reindex", [COLLECTION, "--bundle", "/srv/bundle", "--activate"], None),
        ("reindex", activation, "/srv"),
        ("reindex", [*activation, "--home"], None),
        ("retrain", activation, None),
        ("reindex", ["--generation", "1", "--activate", COLLECTION], None),
        ("tidy", [], None),
    ]
    with engine.home.catalogue.write() as session:
        numbers = [add_job(session, kind, arguments, folder=folder).id for kind, arguments, folder in others]
    for number in (*numbers, 999, "x", "9" * 30, "\u0661"):
        for method, path in (("GET", ""), ("GET", "/events"), ("POST", "/cancel")):
            refused = service.request(method, f"/v1/jobs/{number}{path}", headers=of_photos)
            assert refused.status_code == 403, (number, path)
            assert "in all collections" in refused.json()["detail"]
    assert service.get("/v1/jobs", headers=of_photos).status_code == 403
