"""What holds for all tests of training."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import torch

from tests.training.models.tiny import write_bert
from tests.training.waiting import DEVICES, copied, no_autocast


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Weights and inputs that a test draws do not depend on the tests before it."""
    torch.manual_seed(0)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """A device that no step may wait for: one without data, and the GPU where there is one."""
    chosen = torch.device(request.param)
    if chosen.type == "meta":
        monkeypatch.setattr(torch, "autocast", no_autocast)
        # References to a parameter of a module find it on this device as well, as on a GPU.
        monkeypatch.setattr(torch.__future__, "_swap_module_params_on_conversion", True)
        # Kornia copies without waiting to a GPU alone.
        monkeypatch.setattr(import_module("kornia.filters.gaussian"), "_to_device_nonblocking", copied)
    return chosen


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
