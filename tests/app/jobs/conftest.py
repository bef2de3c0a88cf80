"""Jobs in a catalogue on either database."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.engine import open_engine
from index.engine import SearchEngine
from tests.jobs import Jobs, opened_jobs
from training.samples import write_sample_data


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def jobs(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    url = None if request.param == "sqlite" else request.getfixturevalue("postgresql_url")
    with opened_jobs(tmp_path / "home", url) as opened:
        yield opened


@pytest.fixture
def engine(jobs: Jobs) -> Iterator[SearchEngine]:
    """The search engine on the home folder of the jobs."""
    opened = open_engine(jobs.settings)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    write_sample_data(folder, images=60)
    return folder / "scenes"
