"""From feedback to a model that takes over and is taken back, while searches run and workers are killed."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.engine import open_engine
from app.jobs.folder import JobFolder
from index.catalogue.jobs import Job
from index.engine import SearchEngine
from index.generations.activation import generation_of
from tests.e2e.load import TEXTS, Load, check_all, reference_of
from tests.e2e.work import FURTHER, TINY, Work, service
from tests.jobs import Jobs, opened_jobs
from training.common.manifest import read_manifest
from training.models.encoder import load_encoder
from training.trainer.run_state.checkpoint import load_checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

RETRAINING = ("--gain", -1000, "--promote", "--batch-size", 1, *FURTHER)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """Sample scenes, and a tiny encoder of them."""
    work = Work(tmp_path_factory.mktemp("retraining"))
    sets = [part for setting in (*TINY, "train.checkpoint_minutes=0") for part in ("--set", setting)]
    work.run("sample-data", "samples", "--images", 60)
    work.run("train", "demo-scenes", "--data", work.data, "--out", "first", *sets)
    return work


@pytest.fixture
def jobs(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    with opened_jobs(tmp_path / "home", None, train_processes=request.param) as opened:
        yield opened


@pytest.fixture
def engine(trained: Work, jobs: Jobs) -> Iterator[SearchEngine]:
    """The collection that is searched by that encoder."""
    home = jobs.settings.home
    trained.run("index", "c", "--bundle", "first/bundle", "--data", trained.data, "--home", home)
    opened = open_engine(jobs.settings)
    yield opened
    opened.close()


def _judge_hits(client: httpx.Client) -> None:
    """Like the first and dislike the second hit of some searches."""
    for text in TEXTS:
        found = client.post("/v1/collections/c/search", json={"text": text, "limit": 2}).json()["hits"]
        for hit, relevant in zip(found, (True, False), strict=True):
            said = {"query": {"text": text}, "hit": hit["id"], "relevant": relevant}
            assert client.post("/v1/collections/c/feedback", json=said).status_code == 200


def _killed(jobs: Jobs, number: int, when: str) -> None:
    """Let a worker begin a job, and kill it in the middle of a stage."""
    folder = JobFolder.for_job(jobs.settings, number)

    def reached(job: Job) -> bool:
        # The file knows more than the catalogue, which is told every few seconds.
        progress = folder.read_progress() or {"what": "", "done": 0}
        if when == "training":
            return bool(progress["what"] == "training" and progress["done"] >= 5)
        return bool(progress["what"] == "Embedding c")

    with jobs.worker() as worker:
        job = jobs.wait(number, lambda job: job.has_ended or reached(job))
        worker.kill()
    assert not job.has_ended, f"it ended before it could be killed\n{jobs.log(number)}"


@pytest.mark.parametrize(
    ("jobs", "killed_in"),
    [
        (1, ""),
        (1, "training"),
        (1, "embedding"),
        (2, "training"),
    ],
    indirect=["jobs"],
)
def test_feedback_becomes_a_model_that_takes_over_and_is_taken_back_under_load(
    jobs: Jobs, engine: SearchEngine, tmp_path: Path, killed_in: str
) -> None:
    with service(Work(tmp_path), refresh_s=0.3, threads=1, log_level="error") as (client, _):
        _judge_hits(client)
        load = Load(str(client.base_url), 2)
        with load.search_only():
            number = jobs.give("retrain", "c", *RETRAINING)
            if killed_in:
                _killed(jobs, number, killed_in)
            with jobs.worker():
                done = jobs.wait(number)
            assert done.state == "done", jobs.log(number)
            assert done.lapses == (1 if killed_in else 0)
            # Few images judge: a person lets it take over.
            made = (done.result or {})["generation"]
            taken = client.post(f"/v1/collections/c/generations/{made}/activate")
            assert taken.status_code == 200, taken.text
            back = client.post("/v1/collections/c/rollback")
            assert back.status_code == 200, back.text
            served = len(load.answers)
            while len(load.answers) < served + 20:
                load.stop.wait(0.05)
    result = done.result or {}
    assert (result["verdict"], back.json()["number"]) == ("waiting", 1)
    retraining = jobs.settings.home / "jobs" / str(number) / "retraining"
    trained = load_checkpoint(retraining / "run" / "checkpoints" / "last.pt")
    assert len(trained.random) == jobs.settings.train_processes
    exported = read_manifest(retraining / "data")
    said = [record for record in exported.records if set(record.texts) & set(TEXTS) or record.not_texts]
    assert said
    assert {record.split for record in said} == {"train"}
    _check(load, engine, (1, result["generation"]))


def _check(load: Load, engine: SearchEngine, numbers: tuple[int, int]) -> None:
    """Every answer is right, and each generation has given some."""
    references = {}
    for number in numbers:
        with engine.home.catalogue.read() as session:
            generation = generation_of(session, "c", number)
        encoder = load_encoder(engine.home.bundles_folder / generation.digest, "cpu")
        references[number] = reference_of(engine, generation, encoder)
    right, wrong = check_all(load, references, {})
    assert wrong == []
    assert set(right) == set(numbers)
