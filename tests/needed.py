"""What some tests need of the machine: without it they are skipped, or fail where all of it must be there."""

import os
from importlib import import_module
from typing import Any, Final, NoReturn, TypeVar

import pytest

# `.ci/run` sets it to "required", so that what could not be installed is seen.
VARIABLE: Final = "RECOQUEST_TEST_SERVERS"

_Found = TypeVar("_Found")


def needed(found: _Found | None, what: str, install: str) -> _Found:
    """Return what was looked for; without it the test that needs it does not run."""
    return _without(what, install) if found is None else found


def needed_module(name: str, install: str) -> Any:
    """Import a module, also where a file of tests begins; without it the tests that need it do not run."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        return _without(f"The module {name}", install)


def _without(what: str, install: str) -> NoReturn:
    said = f"{what} is not installed: {install}"
    if os.environ.get(VARIABLE) == "required":
        pytest.fail(said, pytrace=False)
    pytest.skip(said, allow_module_level=True)
