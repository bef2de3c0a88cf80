"""What holds for all tests of training."""

import pytest
import torch


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Weights and inputs that a test draws do not depend on the tests before it."""
    torch.manual_seed(0)
