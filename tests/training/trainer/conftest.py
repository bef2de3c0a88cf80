from pathlib import Path

import pytest

from tests.training.trainer.scenes import write_scenes


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder; tests do not change it."""
    return write_scenes(tmp_path_factory.mktemp("data") / "scenes")
