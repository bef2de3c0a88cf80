"""A running service on loopback, with a collection and a key; an address of it."""

import runpy
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.application import create_app
from tests.app.conftest import Indexed, make_indexed, pattern
from tests.browser.service import running

__all__ = ["indexed", "make_indexed", "pattern", "service"]

# The client without asyncio is not in git.
runpy.run_path(str(Path(__file__).parents[1] / "setup.py"))["write_client"]()


@pytest.fixture(scope="module")
def indexed(make_indexed: Callable[..., Indexed]) -> Indexed:
    """A home folder of a module's own."""
    return make_indexed()


@pytest.fixture(scope="module")
def service(indexed: Indexed) -> Iterator[str]:
    """Address of a service that can be searched by everybody and written to with the key."""
    with running(create_app(indexed.settings)) as address:
        yield address
