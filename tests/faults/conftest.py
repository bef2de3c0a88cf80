"""What tests of faults share."""

import gc
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
MEGABYTES = 8


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory if there is one: a killed process loses nothing that it has handed to the system."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="recoquest-test-", dir=MEMORY))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root, and the right to mount")
    yield folder
    # What has failed may hold files open until it is collected.
    gc.collect()
    subprocess.run(["umount", str(folder)], check=True)
