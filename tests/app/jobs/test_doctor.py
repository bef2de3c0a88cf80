"""The doctor says whether workers can be woken, and whether one is at work."""

import re
from pathlib import Path
from typing import Any

import pytest

from app.doctor import examine
from app.doctor.jobs import examine_jobs, examine_queue, examine_retraining
from app.settings import Settings
from index.catalogue.jobs import beat, claim_job
from tests.jobs import Jobs


def test_a_queue_that_can_be_reached(jobs: Jobs) -> None:
    jobs.give("tidy")
    found = examine_queue(jobs.settings)
    url = jobs.settings.queue_url
    assert found.state == "ok"
    if url is None:
        assert found.found == str(jobs.settings.home / "queue.sqlite3")
    else:
        assert re.fullmatch(rf"{re.escape(url)}, Redis \d+\.\d+\.\d+", found.found)


def test_a_queue_that_cannot_be_used_is_told_of_with_what_to_do(tmp_path: Path) -> None:
    away = examine_queue(Settings(home=tmp_path, queue_url=f"unix://:secret@{tmp_path}/no-redis"))
    assert (away.state, "cannot be reached" in away.found) == ("wrong", True)
    assert away.found.endswith(": start that Redis, or mend RECOQUEST_QUEUE_URL.")
    assert "secret" not in away.found
    assert examine_queue(Settings(home=tmp_path)).state == "ok"
    file = tmp_path / "queue.sqlite3"
    assert not file.exists()
    file.write_text("no database" * 100)
    damaged = examine_queue(Settings(home=tmp_path))
    assert (damaged.state, "remove it" in damaged.found) == ("wrong", True)
    file.unlink()
    # As it says: the next job makes it.
    assert examine_queue(Settings(home=tmp_path)).state == "ok"


def test_jobs_without_a_worker_are_told_of(jobs: Jobs) -> None:
    assert examine_jobs(jobs.catalogue).found == "0 running, 0 waiting"
    first, _ = jobs.give("tidy"), jobs.give("tidy")
    waiting = examine_jobs(jobs.catalogue, watch_s=0.5)
    assert (waiting.state, waiting.found.partition(",")[0]) == ("doubtful", "0 running")
    assert "2 waiting" in waiting.found
    assert "run `recoquest worker`" in waiting.found
    with jobs.catalogue.write() as session:
        claim_job(session, first, "a worker that is gone")
        beat(session, first, "a worker that is gone", None)
    silent = examine_jobs(jobs.catalogue, watch_s=0.5)
    assert (silent.state, silent.found.partition(",")[0]) == ("doubtful", "1 running")


@pytest.mark.parametrize(
    ("values", "state", "said"),
    [
        ({}, "ok", "workers retrain nothing by themselves"),
        ({"retrain": ("a", "b"), "retrain_at": "0 3 * * 0"}, "ok", "workers retrain a, b by themselves"),
        ({"retrain": ("a",), "retrain_feedback": 5}, "ok", "workers retrain a by themselves"),
        ({"retrain": ("a", "c"), "retrain_feedback": 5}, "doubtful", "names c, which is no collection"),
        ({"retrain": ("a",)}, "doubtful", "set RECOQUEST_RETRAIN_AT or RECOQUEST_RETRAIN_FEEDBACK"),
        ({"retrain_feedback": 5}, "doubtful", "name the collections in RECOQUEST_RETRAIN"),
        ({"retrain_at": "0 3 * * 0"}, "doubtful", "name the collections in RECOQUEST_RETRAIN"),
    ],
)
def test_retraining_that_never_happens_is_told_of(
    tmp_path: Path, values: dict[str, Any], state: str, said: str
) -> None:
    found = examine_retraining(Settings(home=tmp_path, **values), ["b", "a"])
    assert (found.state, said in found.found) == (state, True)


@pytest.mark.slow
def test_a_worker_that_takes_a_job_is_seen(jobs: Jobs) -> None:
    number = jobs.give("tidy")
    with jobs.worker():
        seen = examine_jobs(jobs.catalogue, watch_s=120)
        jobs.wait(number)
    assert (seen.state, seen.found) == ("ok", "0 running, 1 waiting; a worker is at work")
    found = {finding.subject: finding for finding in examine(jobs.settings)}
    assert (found["queue"].state, found["jobs"].found) == ("ok", "0 running, 0 waiting")
