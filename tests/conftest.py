"""What holds for all tests."""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from training.host import keep_order_of_sums

# The same examples in every run and no limit of time, as a busy machine may take a second for any of them.
settings.load_profile("ci")
# As the command does, before anything computes.
keep_order_of_sums()


@pytest.fixture(scope="session", autouse=True)
def heed_interrupts() -> Iterator[None]:
    """Let processes that tests start heed SIGINT; a shell's background job passes on that it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
