"""What tests of jobs share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.engine import open_engine
from index.engine import SearchEngine
from tests.jobs import Jobs
from training.samples import write_sample_data


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
