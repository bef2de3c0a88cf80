"""`recoquest retrain` while a job retrains the same collection."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli.errors import ended
from app.cli.main import build
from app.jobs.queue import refuse_second_retraining
from index.catalogue.jobs import add_job, cancel_job
from index.errors import JobExistsError
from tests.app.conftest import COLLECTION, Indexed
from training.common.progress import PROGRESS_VARIABLE

# What a retraining says next here: the model has no recipe.
BEGUN = "does not say how it was trained: give --recipe."
Said = Callable[[], str]


@pytest.fixture
def said(own: Indexed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Said:
    """Runs the command, and returns what it says of why it does not continue."""

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
    assert f"is already retrained by job {job}, which is queued" in refused
    assert not (tmp_path / "again").exists()
    # The process of the job is not refused for its own sake.
    with monkeypatch.context() as process:
        process.setenv(PROGRESS_VARIABLE, str(tmp_path / "progress.json"))
        assert BEGUN in said()
    assert BEGUN not in said()
    with own.write() as session:
        cancel_job(session, job)
    assert BEGUN in said()
