"""What tests of words share."""

from collections.abc import Iterator

import pytest

from index.engine import SearchEngine
from tests.index.homes import open_home


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SearchEngine]:
    """An engine on either database for all tests of a module."""
    url = None
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql").new_database()
    opened = open_home(tmp_path_factory.mktemp("words"), url)
    yield opened
    opened.close()
