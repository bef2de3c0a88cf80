from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.training.trainer.scenes import write_scenes


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder; tests do not change it."""
    return write_scenes(tmp_path_factory.mktemp("data") / "scenes")


@pytest.fixture(scope="package", autouse=True)
def always_one_thread() -> Iterator[None]:
    """All of these tests are of small numbers, and shared runs have those of the tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
