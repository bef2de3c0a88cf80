"""`recoquest jobs`, as a user types it; no worker runs."""

import json
from pathlib import Path

import pytest

from app.settings import Settings
from index.catalogue import open_catalogue
from index.catalogue.jobs import beat, claim_job, end_job
from tests.e2e.work import Work


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def _begin(
    work: Work, number: int, *, result: dict[str, object] | None = None, error: str | None = None
) -> None:
    """Do a job as a worker would, up to its end if there is a result or an error."""
    catalogue = open_catalogue(Settings(home=work.folder / "home").catalogue_url)
    with catalogue.write() as session:
        claim_job(session, number, "w")
        beat(session, number, "w", {"what": "training", "done": 1200, "total": 5000, "note": "loss 1.5"})
        if result is not None or error is not None:
            end_job(session, number, "w", "failed" if error else "done", result=result, error=error)
    catalogue.close()


def test_a_job_is_given_as_it_would_be_typed_and_seen_on_its_way(work: Work) -> None:
    output = work.run("jobs", "start", "train", "demo-scenes", "--data", "scenes", "--set", "train.epochs=3")
    assert output.stdout == "1\n"
    assert "recoquest jobs watch 1" in output.stderr
    job = json.loads(work.run("jobs", "show", 1, "--json").stdout)
    assert job["arguments"] == ["demo-scenes", "--data", "scenes", "--set", "train.epochs=3"]
    assert (job["folder"], job["state"]) == (str(work.folder), "queued")
    assert "It has not begun yet" in work.run("jobs", "log", 1).stderr
    _begin(work, 1)
    assert "training: 1,200 of 5,000 loss 1.5" in work.run("jobs", "list").stdout
    assert work.run("jobs", "cancel", 1).stdout == "Job 1 is being cancelled.\n"
    shown = work.run("jobs", "show", 1).stdout.splitlines()
    assert shown[0] == "Command:  recoquest train demo-scenes --data scenes --set train.epochs=3"
    assert shown[2:4] == ["State:    being cancelled", "Progress: training: 1,200 of 5,000 loss 1.5"]
    assert shown[5].endswith(", attempt 1 by w")


def test_watching_ends_with_the_job(work: Work) -> None:
    for _ in range(2):
        work.run("jobs", "start", "tidy")
    _begin(work, 1, result={"rsum": 12.5})
    _begin(work, 2, error="No space.")
    assert work.run("jobs", "watch", 1).stdout == "done training: 1,200 of 5,000 loss 1.5\n"
    failed = work.run("jobs", "watch", 2, code=1)
    assert failed.stderr == "No space.\n"
    assert 'Result:   {"rsum": 12.5}\n' in work.run("jobs", "show", 1).stdout
    assert "Error:    No space.\n" in work.run("jobs", "show", 2).stdout
    assert work.run("jobs", "list", "--limit", 1).stdout.count("training") == 1
    assert [job["id"] for job in json.loads(work.run("jobs", "list", "--json").stdout)] == [2, 1]
    listed = json.loads(work.run("jobs", "list", "--state", "failed", "--json").stdout)
    assert [job["id"] for job in listed] == [2]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("start", "serve"), 2, "'serve' is not one of train"),
        (("start", "train", "demo-scenes"), 2, "Missing option '--data'"),
        (("start", "train", "demo-scenes", "--data", "x", "--out", "y"), 2, "--out is set by the worker"),
        (("start", "duplicates", "scenes", "--out", "x"), 2, "--out is set by the worker"),
        (("start", "reindex", "c", "--home=elsewhere"), 2, "--home is set by the worker"),
        (("start", "tidy", "more"), 2, "unexpected extra argument"),
        (("list", "--state", "dancing"), 2, "'dancing' is not one of 'queued'"),
        (("show", 7), 1, "There is no job 7"),
        (("cancel", 7), 1, "There is no job 7"),
        (("promote", 7), 1, "There is no job 7"),
    ],
)
def test_mistakes_are_told_and_no_job_is_made(
    work: Work, arguments: tuple[object, ...], code: int, words: str
) -> None:
    assert words in work.run("jobs", *arguments, code=code).stderr
    assert json.loads(work.run("jobs", "list", "--json").stdout) == []


def test_help_of_a_job_is_that_of_its_command(work: Work) -> None:
    assert "--generation" in work.run("jobs", "start", "reindex", "--help").stdout


def test_a_collection_has_one_retraining_at_a_time(work: Work) -> None:
    work.run("jobs", "start", "retrain", "--gain", 1, "--promote", "scenes", "--set", "train.epochs=3")
    for again in (("scenes",), ("--gain", "2", "scenes"), ("--promote", "--gain=2", "scenes")):
        refused = work.run("jobs", "start", "retrain", *again, code=1)
        assert "'scenes' is already retrained by job 1, which is queued" in refused.stderr
    assert work.run("jobs", "start", "retrain", "--metric", "scenes", "others").stdout == "2\n"
    work.run("jobs", "cancel", 1)
    assert work.run("jobs", "start", "retrain", "scenes").stdout == "3\n"


def test_only_a_retraining_that_waits_can_be_promoted(work: Work) -> None:
    work.run("jobs", "start", "tidy")
    _begin(work, 1, result={"verdict": "none"})
    assert "Job 1 has no model to promote" in work.run("jobs", "promote", 1, code=1).stderr
