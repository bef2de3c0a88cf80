"""A study of the archive indexed on demand: who may, and what the job does."""

from collections.abc import Callable, Iterator

import pytest
from fastapi.testclient import TestClient

from app.application import create_app
from tests.access import AS_ADMIN
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.app.radiology.conftest import FILMS, index_films, study_uid, with_key
from tests.app.search.test_search import problem

HERE = f"/v1/collections/{FILMS}/studies"
ABSENT = "1.2.826.0.1.9"


@pytest.fixture
def synced(make_indexed: Callable[..., Indexed]) -> Iterator[TestClient]:
    sync = f"{FILMS} --modality DX"
    home = make_indexed(open_reading=True, pacs_url="http://127.0.0.1:9/x", pacs_sync=sync)
    index_films(home)
    with serve(home, key=False) as client:
        yield client


def test_a_study_that_is_not_here_says_how_it_is_indexed(synced: TestClient) -> None:
    curator = with_key(synced, "curator", FILMS)
    for path in (f"{HERE}/{ABSENT}/similar", f"/v1/studies/{ABSENT}/instances/1.2.3/similar"):
        request = synced.get(path, headers=curator).json()["index_now"]
        assert request == {"method": "POST", "path": f"{HERE}/{ABSENT}/index"}
    given = synced.request(request["method"], request["path"], headers=curator)
    assert given.status_code == 202, given.text
    job = given.json()
    assert (job["kind"], job["state"]) == ("pacs_sync", "queued")
    assert job["arguments"] == [FILMS, "--modality", "DX", "--study", ABSENT]
    held = synced.get(f"{HERE}/{study_uid(1)}/similar", headers=curator).json()
    assert (held["state"], held["index_now"]) == ("indexed", None)


@pytest.mark.slow
def test_a_note_is_written_by_the_job_of_a_judge_where_the_settings_allow_it(synced: TestClient) -> None:
    path = f"{HERE}/{ABSENT}/index"
    curator, both = with_key(synced, "curator", FILMS), with_key(synced, "admin", FILMS)
    refused = problem(synced.post(path, params={"note": True}, headers=both), 409, "write-back-off")
    assert "RECOQUEST_PACS_WRITE_BACK" in refused["detail"]
    settings = synced.app.state.services.settings  # type: ignore[attr-defined]
    for forms, status in ((("selection",), 409), (("selection", "report"), 202)):
        changed = settings.model_copy(update={"pacs_write_back": forms})
        with TestClient(create_app(changed), "http://localhost") as client:
            lacking = client.post(path, params={"note": True}, headers=curator)
            assert "the role judge" in problem(lacking, 403, "role-needed")["detail"]
            response = client.post(path, params={"note": True}, headers=both)
            assert response.status_code == status, response.text
    assert response.json()["arguments"] == [FILMS, "--modality", "DX", "--note", "--study", ABSENT]
    position = response.headers["Location"]
    assert synced.get(position, headers=curator).status_code == 200


def test_whoever_may_put_images_in_begins_follows_and_cancels_the_job(synced: TestClient) -> None:
    curator, elsewhere = with_key(synced, "curator", FILMS), with_key(synced, "curator", COLLECTION)
    judge = with_key(synced, "judge", FILMS)
    for caller in (judge, elsewhere, {}):
        assert synced.get(f"/v1/studies/{ABSENT}/similar", headers=caller).json()["index_now"] is None
        assert synced.post(f"{HERE}/{ABSENT}/index", headers=caller).status_code in (401, 403)
    position = synced.post(f"{HERE}/{ABSENT}/index", headers=curator).headers["Location"]
    assert synced.get(position, headers=curator).json()["state"] == "queued"
    for caller in (judge, elsewhere):
        for method, path in (
            ("GET", position),
            ("GET", f"{position}/events"),
            ("POST", f"{position}/cancel"),
        ):
            assert synced.request(method, path, headers=caller).status_code == 403
    assert synced.post(f"{position}/cancel", headers=curator).status_code == 202
    events = synced.get(f"{position}/events", headers=curator)
    assert (events.status_code, "cancelled" in events.text) == (200, True)


def test_a_whole_sync_is_for_the_operator(synced: TestClient) -> None:
    curator = with_key(synced, "curator", FILMS)
    whole = synced.post("/v1/jobs", json={"kind": "pacs_sync"}, headers=AS_ADMIN)
    assert synced.get(whole.headers["Location"], headers=curator).status_code == 403
    assert synced.post("/v1/jobs", json={"kind": "pacs_sync"}, headers=curator).status_code == 403


def test_a_study_waits_once_and_a_request_sent_again_gives_one_job(synced: TestClient) -> None:
    sent = {**with_key(synced, "curator", FILMS), "Idempotency-Key": "once"}
    first, again = (synced.post(f"{HERE}/{ABSENT}/index", headers=sent) for _ in range(2))
    assert (first.status_code, again.json()) == (202, first.json())
    second = synced.post(f"{HERE}/{ABSENT}/index", headers={**sent, "Idempotency-Key": "twice"})
    problem(second, 409, "job-exists")
    other = synced.post(f"{HERE}/{ABSENT}.1/index", headers={**sent, "Idempotency-Key": "other"})
    assert other.status_code == 202


@pytest.mark.parametrize("study", ["9.9.9", "--home", "1.2.3.4 --home", "1.2.826.01.9"])
def test_what_is_no_uid_begins_nothing(synced: TestClient, study: str) -> None:
    assert synced.get(f"/v1/studies/{study}/similar", headers=AS_ADMIN).json()["index_now"] is None
    refused = synced.post(f"{HERE}/{study}/index", headers=AS_ADMIN)
    problem(refused, 422, "invalid-request", "study")


def test_collections_that_follow_no_archive_are_told_so(synced: TestClient) -> None:
    path = f"/v1/collections/{COLLECTION}/studies/{ABSENT}/index"
    problem(synced.post(path, headers=AS_ADMIN), 422, "invalid-request", "collection")


def test_without_an_archive_nothing_is_offered(client: TestClient) -> None:
    assert client.get(f"{HERE}/{ABSENT}/similar", headers=AS_ADMIN).json()["index_now"] is None
    problem(client.post(f"{HERE}/{ABSENT}/index", headers=AS_ADMIN), 422, "invalid-request", "collection")
