"""Retrainings that workers give themselves, and `recoquest retrain` beside the job of a collection."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Update, update

from app.cli.errors import ended
from app.cli.main import build
from app.jobs.queue import give_job, refuse_second_retraining
from app.jobs.worker import give_retrainings
from app.radiology.jobs import give_sync
from app.settings import Settings, SettingsError, load_settings
from index.catalogue.jobs import Job, add_job, cancel_job, claim_job, end_job
from index.catalogue.tables import ImageRow, ModelRow
from index.errors import JobExistsError
from index.feedback import JudgedQuery, record_judgement
from tests.app.conftest import COLLECTION, Indexed
from training.common.progress import PROGRESS_VARIABLE

NIGHT = datetime(2100, 1, 3, 3, 0, 42, tzinfo=UTC)
Give = Callable[..., list[Job]]


@pytest.fixture
def give(own: Indexed) -> Iterator[Give]:
    """Gives what is due by these settings at this time, as a worker would that looks then."""
    with own.engine() as engine:

        def give_at(at: datetime = NIGHT, **settings: Any) -> list[Job]:
            settings.setdefault("retrain", (COLLECTION,))
            changed = Settings(home=own.settings.home, **settings)
            return give_retrainings(changed, engine.home.catalogue, at)

        yield give_at


def _end(own: Indexed, job: Job) -> None:
    with own.write() as session:
        claim_job(session, job.id, "w")
        end_job(session, job.id, "w", "done")


def _judge(own: Indexed, count: int, query: str) -> None:
    with own.write() as session:
        for record in own.manifest.records[:count]:
            record_judgement(session, COLLECTION, JudgedQuery(texts=(query,)), record.id, True, limit=1000)


def test_at_its_time_each_collection_is_retrained_once(own: Indexed, give: Give) -> None:
    at = {"retrain_at": "0 3 * * 0"}
    assert give(NIGHT - timedelta(minutes=1), **at) == []
    assert give(NIGHT + timedelta(days=1), **at) == []
    (job,) = give(NIGHT, **at, retrain_promote=True)
    assert (job.kind, job.arguments) == ("retrain", [COLLECTION, "--promote"])
    # As long as one is under way no other is given.
    assert give(NIGHT + timedelta(days=7), **at) == []
    _end(own, job)
    (again,) = give(NIGHT + timedelta(days=7), **at)
    assert again.arguments == [COLLECTION]


def test_none_is_given_beside_one_that_somebody_else_gave(own: Indexed, give: Give) -> None:
    with own.write() as session:
        other = add_job(session, "retrain", ["--gain", "1", COLLECTION])
    assert give(retrain_at="* * * * *") == []
    _end(own, other)
    assert len(give(retrain_at="* * * * *")) == 1


def test_in_the_same_minute_none_is_given_twice(own: Indexed, give: Give) -> None:
    now = datetime.now(UTC)
    (job,) = give(now, retrain_at="* * * * *")
    _end(own, job)
    assert give(now, retrain_at="* * * * *") == []
    assert len(give(now + timedelta(minutes=1), retrain_at="* * * * *")) == 1


def _change(own: Indexed, change: Update) -> None:
    with own.write() as session:
        session.execute(change)


def test_feedback_that_is_not_learned_from_gives_none(own: Indexed, give: Give) -> None:
    _judge(own, 5, "of images that are held out")
    assert give(retrain_feedback=5) == []
    _change(own, update(ImageRow).values(split="train"))
    _change(own, update(ModelRow).values(recipe="data: {text_unit: report}"))
    assert give(retrain_feedback=5) == []
    _change(own, update(ModelRow).values(recipe="data: {text_unit: sentence}"))
    assert len(give(retrain_feedback=5)) == 1


def test_enough_new_feedback_gives_one(own: Indexed, give: Give) -> None:
    _change(own, update(ImageRow).values(split="train"))
    _judge(own, 4, "first")
    assert give(retrain_feedback=5) == []
    _judge(own, 1, "second")
    (job,) = give(retrain_feedback=5)
    _end(own, job)
    assert give(retrain_feedback=5) == []
    _judge(own, 5, "third")
    assert len(give(retrain_feedback=5)) == 1


def test_nothing_is_due_by_default_or_for_a_collection_that_is_not_there(own: Indexed, give: Give) -> None:
    _judge(own, 5, "first")
    assert give() == []
    assert give(retrain=("none",), retrain_at="* * * * *") == []


@pytest.mark.parametrize(
    ("value", "said"), [("3 a.m.", "give 5 parts: minute, hour"), ("61 3 * * *", "RECOQUEST_RETRAIN_AT: ")]
)
def test_a_time_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, value: str, said: str) -> None:
    monkeypatch.setenv("RECOQUEST_RETRAIN_AT", value)
    with pytest.raises(SettingsError, match=said):
        load_settings()


def test_a_sync_with_the_archive_is_given_at_its_times_and_never_beside_another(own: Indexed) -> None:
    arguments = ["films", "--modality", "DX", "--quarantined", "/srv/a list.csv"]
    given = "films --modality DX --quarantined '/srv/a list.csv'"
    settings = Settings(home=own.settings.home, pacs_sync=given, pacs_sync_at="*/10 * * * *")
    ten, minutes = datetime(2100, 1, 3, 3, 10, 42, tzinfo=UTC), timedelta(minutes=1)
    with own.engine() as engine:
        catalogue = engine.home.catalogue
        assert give_sync(settings, catalogue, ten - minutes) is None
        assert give_sync(own.settings, catalogue, ten) is None
        job = give_sync(settings, catalogue, ten)
        assert job is not None
        assert (job.kind, job.arguments) == ("pacs_sync", arguments)
        assert give_sync(settings, catalogue, ten + 10 * minutes) is None
        with pytest.raises(JobExistsError, match="waits to sync the same"):
            give_job(catalogue, "pacs_sync", arguments)
        assert give_job(catalogue, "pacs_sync", ["others"]).arguments == ["others"]
        _end(own, job)
        assert give_sync(settings, catalogue, ten + 10 * minutes) is not None


# What a retraining says next here: the model has no recipe.
BEGUN = "does not say how it was trained: give --recipe."
Said = Callable[[], str]


@pytest.fixture
def said(own: Indexed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Said:
    """Runs the command, and returns what it says of why it does not go on."""

    def retrain() -> str:
        arguments = ["retrain", COLLECTION, "--out", str(tmp_path / "again")]
        with pytest.raises(SystemExit) as left:
            ended(lambda: build()([*arguments, "--home", str(own.settings.home)]))
        assert left.value.code == 1
        return capsys.readouterr().err

    return retrain


def _give(own: Indexed, *arguments: str) -> int:
    with own.write() as session:
        job = add_job(session, "retrain", arguments)
    return job.id


def test_the_command_is_refused_until_the_job_has_ended(
    own: Indexed, said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _give(own, "another-collection")
    assert BEGUN in said()
    job = _give(own, "--gain", "1", COLLECTION)
    refused = said()
    with pytest.raises(JobExistsError) as second, own.write() as session:
        refuse_second_retraining(session, [COLLECTION])
    assert refused == f"recoquest: {second.value}\n"
    assert f"is retrained by job {job} already, which is queued" in refused
    assert not (tmp_path / "again").exists()
    # The process of the job is not refused for its own sake.
    with monkeypatch.context() as process:
        process.setenv(PROGRESS_VARIABLE, str(tmp_path / "progress.json"))
        assert BEGUN in said()
    assert BEGUN not in said()
    with own.write() as session:
        cancel_job(session, job)
    assert BEGUN in said()
