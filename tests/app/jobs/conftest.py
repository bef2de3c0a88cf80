"""Jobs that are queued in a file, or in Redis."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs import Jobs, opened_jobs


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.slow)])
def jobs(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    url = None if request.param == "sqlite" else request.getfixturevalue("redis_url")
    with opened_jobs(tmp_path / "home", url) as opened:
        yield opened
