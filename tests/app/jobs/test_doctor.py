"""The doctor says how many jobs wait, and whether a worker is at work."""

from pathlib import Path
from typing import Any

import pytest

from app.health.doctor import examine, examine_jobs, examine_retraining
from app.settings import Settings
from index.catalogue.jobs import beat, claim_job
from tests.jobs import Jobs


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


def test_a_retraining_of_a_renamed_collection_is_told_with_its_new_name(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, retrain=("old",), retrain_at="0 3 * * 0")
    found = examine_retraining(settings, ["new"], {"old": "new"})
    assert (found.state, "old (called new now)" in found.found) == ("doubtful", True)


@pytest.mark.slow
def test_a_worker_that_takes_a_job_is_seen(jobs: Jobs) -> None:
    number = jobs.give("tidy")
    with jobs.worker():
        seen = examine_jobs(jobs.catalogue, watch_s=120)
        jobs.wait(number)
    assert (seen.state, seen.found) == ("ok", "0 running, 1 waiting; a worker is at work")
    found = {finding.subject: finding for finding in examine(jobs.settings)}
    assert (found["jobs"].state, found["jobs"].found) == ("ok", "0 running, 0 waiting")
