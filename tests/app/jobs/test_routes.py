"""Jobs over HTTP, and followed by server-sent events."""

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.heartbeat import Heartbeat
from app.jobs import routes as jobs_over_http
from app.jobs.kinds import KINDS
from index.catalogue.jobs import add_job, beat, claim_job, end_job
from index.keys.api_keys import EVERY_COLLECTION, create_key, revoke_key
from tests.app.conftest import COLLECTION, Indexed
from tests.e2e.work import Work, service
from tests.jobs import Jobs


def _events(body: str) -> list[dict[str, Any]]:
    """The jobs that a stream tells of."""
    blocks = [block.split("\n") for block in body.strip().split("\n\n")]
    assert all(lines[0] == "event: job" for lines in blocks)
    return [json.loads(lines[1].removeprefix("data: ")) for lines in blocks]


def test_a_job_is_given_found_listed_and_cancelled(local: TestClient, on_either: Indexed) -> None:
    with on_either.engine() as engine:
        generation = engine.active(COLLECTION).generation
    payload = {"kind": "reindex", "collection": COLLECTION, "generation": generation, "activate": True}
    response = local.post("/v1/jobs", json=payload)
    assert response.status_code == 202
    job = response.json()
    assert response.headers["Location"] == f"/v1/jobs/{job['id']}"
    assert job["arguments"] == [COLLECTION, "--generation", str(generation), "--activate"]
    assert (job["state"], job["progress"], job["result"], job["error"]) == ("queued", None, None, None)
    assert local.get(response.headers["Location"]).json() == job
    other = local.post("/v1/jobs", json={"kind": "tidy"}).json()
    assert [each["id"] for each in local.get("/v1/jobs").json()["jobs"][:2]] == [other["id"], job["id"]]
    assert len(local.get("/v1/jobs", params={"limit": 1}).json()["jobs"]) == 1
    assert local.get("/v1/jobs").json()["workers"] == 0
    heartbeat = Heartbeat(on_either.settings)
    heartbeat.beat()
    assert local.get("/v1/jobs").json()["workers"] == 1
    heartbeat.end()
    assert local.get("/v1/jobs").json()["workers"] == 0
    cancelled = local.post(f"/v1/jobs/{job['id']}/cancel")
    assert (cancelled.status_code, cancelled.json()["state"]) == (202, "cancelled")
    states = {each["state"] for each in local.get("/v1/jobs?state=cancelled").json()["jobs"]}
    assert states == {"cancelled"}
    again = local.post(f"/v1/jobs/{job['id']}/cancel")
    assert (again.status_code, again.json()["type"]) == (409, "urn:recoquest:job-ended")


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"kind": "train", "recipe": "/etc/passwd"}, 422, "invalid-request"),
        ({"kind": "tidy", "home": "/elsewhere"}, 422, "invalid-request"),
        ({"kind": "reindex", "collection": "none", "generation": 1}, 404, "unknown-collection"),
        ({"kind": "reindex", "collection": "--bundle=/x", "generation": 1}, 404, "unknown-collection"),
        ({"kind": "duplicates"}, 422, "invalid-request"),
        ({"kind": "duplicates", "collection": COLLECTION, "out": "/elsewhere"}, 422, "invalid-request"),
        ({"kind": "duplicates", "collection": "none"}, 404, "unknown-collection"),
        # No setting describes a sync, and no caller may.
        ({"kind": "pacs_sync"}, 422, "invalid-request"),
        ({"kind": "pacs_sync", "url": "http://pacs/dicom-web"}, 422, "invalid-request"),
        ({"kind": "duplicates", "collection": "--out=/x"}, 404, "unknown-collection"),
        ({"kind": "reindex", "collection": COLLECTION, "generation": 99}, 404, "unknown-generation"),
    ],
)
def test_what_cannot_be_given_is_a_problem(
    local: TestClient, body: dict[str, Any], status: int, kind: str
) -> None:
    before = local.get("/v1/jobs").json()
    answer = local.post("/v1/jobs", json=body)
    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:recoquest:{kind}")
    assert local.get("/v1/jobs").json() == before


def test_a_second_retraining_of_a_collection_is_refused(local: TestClient) -> None:
    payload = {"kind": "retrain", "collection": COLLECTION}
    first = local.post("/v1/jobs", json=payload).json()
    second = local.post("/v1/jobs", json=payload)
    assert (second.status_code, second.json()["type"]) == (409, "urn:recoquest:job-exists")
    assert f"by job {first['id']}" in second.json()["detail"]
    local.post(f"/v1/jobs/{first['id']}/cancel")
    assert local.post("/v1/jobs", json=payload).status_code == 202


@pytest.mark.parametrize("path", ["/v1/jobs/999", "/v1/jobs/999/events"])
def test_a_job_that_is_not_there_is_a_problem(local: TestClient, path: str) -> None:
    answer = local.get(path)
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:recoquest:unknown-job")
    assert local.post("/v1/jobs/999/cancel").status_code == 404
    assert local.get("/v1/jobs/0").status_code == 422


def test_events_begin_with_the_job_and_end_with_its_end(local: TestClient, on_either: Indexed) -> None:
    with on_either.write() as session:
        job = add_job(session, "tidy", [])
        claim_job(session, job.id, "w")
        beat(session, job.id, "w", {"what": "tidying", "done": 1, "total": None, "note": ""})
        end_job(session, job.id, "w", "failed", error="No.")
    answer = local.get(f"/v1/jobs/{job.id}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    (event,) = _events(answer.text)
    assert (event["state"], event["error"], event["progress"]["done"]) == ("failed", "No.", 1)


@pytest.mark.slow
def test_a_stream_ends_with_the_key_of_its_caller(
    local: TestClient, on_either: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_over_http, "_RECHECK_SECONDS", 0.1)
    with on_either.write() as session:
        job = add_job(session, "tidy", [])
        new = create_key(session, "follower", {EVERY_COLLECTION: frozenset({"admin"})}, days=None)
    headers = {"Authorization": f"Bearer {new.text}"}
    with ThreadPoolExecutor(1) as threads:
        following = threads.submit(local.get, f"/v1/jobs/{job.id}/events", headers=headers)
        with pytest.raises(TimeoutError):
            following.result(timeout=2)
        with on_either.write() as session:
            revoke_key(session, new.key.id)
        answer = following.result(timeout=30)
    assert answer.status_code == 200
    first, last = answer.text.strip().split("\n\n")
    assert first.startswith("event: job\n")
    name, data = last.split("\n")
    assert name == "event: problem"
    problem = json.loads(data.removeprefix("data: "))
    assert (problem["type"], problem["status"]) == ("urn:recoquest:key-ended", 401)
    assert "revoked" in problem["detail"]
    local.post(f"/v1/jobs/{job.id}/cancel")


def test_jobs_are_listed_page_by_page_while_others_are_given(local: TestClient, on_either: Indexed) -> None:
    def give(kind: str) -> int:
        with on_either.write() as session:
            return add_job(session, kind, []).id

    numbers = [give(kind) for kind in ("tidy", "evaluate", "tidy", "tidy", "evaluate", "tidy", "tidy")]
    parameters = {"kind": "tidy", "state": "queued", "limit": "2"}
    pages, cursor = [], None
    while True:
        page = local.get("/v1/jobs", params={**parameters, **({"cursor": cursor} if cursor else {})}).json()
        assert all((job["kind"], job["state"]) == ("tidy", "queued") for job in page["jobs"])
        pages.append([job["id"] for job in page["jobs"]])
        give("tidy")
        cursor = page["next_cursor"]
        if cursor is None:
            break
    shown = [number for page in pages for number in page]
    assert shown[:5] == [numbers[position] for position in (6, 5, 3, 2, 0)]
    assert shown == sorted(set(shown), reverse=True)
    assert all(len(page) == 2 for page in pages[:-1])
    last = local.get("/v1/jobs", params={"limit": 1000}).json()
    assert last["next_cursor"] is None
    exact = local.get("/v1/jobs", params={"limit": len(last["jobs"])}).json()
    assert exact["next_cursor"] is None


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", "\u0661\u00b2", ""])
def test_a_cursor_that_is_none_is_refused(local: TestClient, cursor: str) -> None:
    answer = local.get("/v1/jobs", params={"cursor": cursor})
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:recoquest:invalid-cursor")


def test_kinds_of_jobs_are_those_that_workers_do(local: TestClient) -> None:
    assert all(local.get(f"/v1/jobs?kind={kind}").status_code == 200 for kind in KINDS)
    assert local.get("/v1/jobs?kind=dance").status_code == 422


@pytest.mark.slow
def test_a_job_is_followed_while_a_worker_does_it(jobs: Jobs, tmp_path: Path) -> None:
    with service(Work(tmp_path), database_url=jobs.settings.catalogue_url) as (client, _):
        number = client.post("/v1/jobs", json={"kind": "tidy"}).json()["id"]
        with client.stream("GET", f"/v1/jobs/{number}/events") as stream, jobs.worker():
            lines = [line for line in stream.iter_lines() if line.startswith("data: ")]
    told = [json.loads(line.removeprefix("data: ")) for line in lines]
    states = [event["state"] for event in told]
    assert states[0] == "queued"
    assert states[-1] == "done"
    assert "running" in states
    assert all(before != after for before, after in pairwise(told))
