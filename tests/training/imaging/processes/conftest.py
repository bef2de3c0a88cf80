"""Pools of real processes, closed behind each test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.training.imaging.processes.decoding import MIB, WORKER
from training.common.workers import LossReason
from training.imaging.processes.pool import DecodeOutcome, DecoderLimits, DecodingPool, PoolLimits


class Told:
    """Keeps what a pool tells."""

    def __init__(self) -> None:
        self.outcomes: list[DecodeOutcome] = []
        self.restarts: list[LossReason] = []

    def decoded(self, outcome: DecodeOutcome) -> None:
        self.outcomes.append(outcome)

    def decoder_restarted(self, reason: LossReason) -> None:
        self.restarts.append(reason)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def make_pool(told: Told) -> Iterator[Callable[..., DecodingPool]]:
    """Makes a pool; limits by keyword."""
    pools = []

    def make(**limits: Any) -> DecodingPool:
        decoder = DecoderLimits(limits.pop("memory_bytes", 560 * MIB), limits.pop("cpu_s", 30))
        given = {"worker": WORKER, "processes": 1, "waiting": 8, "deadline_s": 60.0, **limits}
        pools.append(DecodingPool(PoolLimits(decoder=decoder, **given), told))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()
