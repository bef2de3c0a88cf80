"""Near-duplicates by a job: a real worker finds them, and the service tells of them."""

import json

import pytest
from fastapi.testclient import TestClient

from app.application import create_app
from app.jobs.folder import JobFolder
from tests.access import AS_ADMIN
from tests.app.conftest import Indexed
from tests.app.images.test_writes import LOCAL
from tests.jobs import opened_jobs


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_worker_finds_copies_and_the_service_tells_of_them(with_a_copy: Indexed) -> None:
    app = create_app(with_a_copy.settings)
    home = with_a_copy.settings.home
    with (
        opened_jobs(home, None) as jobs,
        TestClient(app, "http://127.0.0.1", client=LOCAL, headers=AS_ADMIN) as local,
    ):
        given = local.post("/v1/jobs", json={"kind": "duplicates", "collection": "copied"})
        assert (given.status_code, given.json()["arguments"]) == (202, ["copied"])
        with jobs.worker():
            ended = jobs.wait(given.json()["id"])
        job = local.get(given.headers["Location"]).json()
        folder = JobFolder.of(jobs.settings, ended.id).path
        assert (job["state"], job["error"]) == ("done", None), jobs.log(ended.id)
    found = {"groups": [{"ids": ["image-3", "copy"], "same_file": True}], "unread": []}
    assert job["result"] == {**found, "left_out": {"groups": 0, "unread": 0}}
    assert json.loads((folder / "duplicates" / "groups.json").read_bytes()) == found
