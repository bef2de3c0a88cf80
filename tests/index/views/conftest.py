"""What tests of views share."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from index.engine import SearchEngine
from index.views.manager import Views
from tests.index.homes import open_home
from tests.index.samples import CpuAsGpu, make_records, put_records
from tests.index.views.held import COUNT, DIM


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder with a collection, to be copied."""
    folder = tmp_path_factory.mktemp("filled") / "home"
    with closing(open_home(folder)) as engine:
        put_records(engine, make_records(COUNT), DIM)
    return folder


@pytest.fixture
def home(filled: Path, tmp_path: Path) -> Iterator[SearchEngine]:
    """An engine with a collection, on a home folder that a test may change."""
    with closing(open_home(Path(shutil.copytree(filled, tmp_path / "home")))) as engine:
        yield engine


@pytest.fixture
def views(tmp_path: Path) -> Iterator[Views]:
    with closing(Views(tmp_path / "views")) as opened:
        yield opened


@pytest.fixture
def gpu_views(tmp_path: Path) -> Iterator[Views]:
    """Views that may use a GPU."""
    with closing(Views(tmp_path / "views", CpuAsGpu())) as opened:
        yield opened
