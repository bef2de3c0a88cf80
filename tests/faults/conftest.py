"""What tests of faults share."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory if there is one: a killed process loses nothing that it has handed to the system."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="recoquest-test-", dir=MEMORY))
    yield folder
    shutil.rmtree(folder)
