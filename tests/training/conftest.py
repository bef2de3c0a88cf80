"""What holds for all tests of training."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.training.models.tiny import write_bert


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Weights and inputs that a test draws do not depend on the tests before it."""
    torch.manual_seed(0)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Sums of a few numbers are slower on several threads, much slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def sentence_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a frozen BERT of 16 numbers; tests do not change it."""
    folder = tmp_path_factory.mktemp("sentence-encoder")
    write_bert(folder)
    return folder
