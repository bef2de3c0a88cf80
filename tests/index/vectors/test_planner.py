import math
from dataclasses import replace

import pytest

from index.vectors.planner import Planner, Probe, Usual, ViewName, choose_view

USUAL = Usual(late=0.1, place=0.15)
PROBES = (
    Probe(10, 16, 100, 0.996, 1e5, USUAL),
    Probe(100, 64, 500, 0.996, 5e5, USUAL),
    Probe(1000, 256, 3000, 0.996, 2e6, USUAL),
)
PLANNER = Planner(PROBES, row_cost=50, pass_cost=2, candidate_cost=1000)


@pytest.mark.parametrize(
    ("rank", "passing", "met", "depth"),
    [
        (10, 1_000_000, 1, 10),
        (11, 1_000_000, 1, 100),
        # Half pass: hits may lie at the top, or as deep as they did before.
        (10, 500_000, 1, 100),
        (8, 500_000, 1, 10),
        (10, 500_000, 0.02, 1000),
        # Deeper than codes reach: as deep as usual.
        (10, 500_000, 0.001, 100),
        (10, 500_000, 0, 100),
        (10, 20_000, 1, 100),
        # What passes is scanned sooner than codes to the usual depth, or codes reach no deeper.
        (10, 10_000, 1, None),
        (10, 10, 1, None),
        (1001, 1_000_000, 1, None),
    ],
)
def test_the_cheapest_way_that_reaches_deep_enough(
    rank: int, passing: int, met: float, depth: int | None
) -> None:
    probe = PLANNER.first(rank, passing, 1_000_000, met)
    assert (None if probe is None else probe.depth) == depth


@pytest.mark.parametrize(
    ("share", "passing", "depth"),
    [
        (0.5, 500_000, 100),
        (0.1, 500_000, 1000),
        (0.001, 500_000, None),
        (0, 500_000, None),
        (0.1, 1500, None),
    ],
)
def test_the_next_search_goes_as_deep_as_what_was_met_tells(
    share: float, passing: int, depth: int | None
) -> None:
    probe = PLANNER.deeper(PROBES[0], share, 10, passing, 1_000_000)
    assert (None if probe is None else probe.depth) == depth
    assert PLANNER.deeper(PROBES[-1], share, 10, passing, 1_000_000) is None


def test_scans_that_cost_less_are_taken() -> None:
    assert not replace(PLANNER, row_cost=0.05, pass_cost=0.01).first(10, 1_000_000, 1_000_000)
    # What passes is copied out.
    assert not replace(PLANNER, pass_cost=1e9, candidate_cost=0.01).first(10, 20_000, 1_000_000)


@pytest.mark.parametrize(
    ("met", "copied", "depth"),
    [
        (1, 1e6, 100),
        # A copy is scanned before codes are searched as deep as that.
        (1, 4e5, None),
        (0.02, 1e6, None),
        # It is scanned sooner than codes are searched in vain.
        (0.001, 1e6, None),
        (0.001, None, 100),
    ],
)
def test_a_copy_is_scanned_where_that_was_quicker(
    met: float, copied: float | None, depth: int | None
) -> None:
    probe = PLANNER.first(10, 500_000, 1_000_000, met, copied=copied)
    assert (None if probe is None else probe.depth) == depth


def test_the_least_search_is_the_quickest() -> None:
    assert PLANNER.least == 1e5
    assert replace(PLANNER, probes=()).least == math.inf


@pytest.mark.parametrize(
    ("count", "memory", "wanted", "chosen"),
    [
        (1000, 1 << 40, None, "exact"),
        (1_000_000, 1 << 40, None, "ivf"),
        (1_000_000, 1 << 30, None, "mapped"),
        # It would fit, and leave nothing.
        (1_000_000, 1_200_000_000, None, "mapped"),
        (1000, 0, None, "exact"),
        (1_000_000, 0, "exact", "exact"),
        (1_000_000, 1 << 40, "mapped", "mapped"),
        (1000, 1 << 40, "ivf", "ivf"),
        (1_000_000, 1 << 40, "exact", "exact"),
        (1_000_000, 1 << 40, "hnsw", "hnsw"),
    ],
)
def test_size_memory_and_wish_choose_the_view(
    count: int, memory: int, wanted: ViewName | None, chosen: str
) -> None:
    # A GPU is never chosen unasked.
    for gpu in (None, 1 << 40):
        choices = choose_view(count, 512, memory, wanted, gpu)
        assert [choice.name for choice in choices if choice.chosen] == [chosen]
        assert all(choice.reason for choice in choices)


@pytest.mark.parametrize(
    ("count", "memory", "gpu", "chosen", "reason"),
    [
        (1_000_000, 1 << 40, 1 << 40, "gpu", "chosen for this collection; takes 1.45 GiB"),
        (1000, 1 << 40, 1 << 40, "gpu", "chosen for this collection"),
        (1_000_000, 1 << 40, 2_081_200_000, "gpu", "chosen for this collection"),
        # It would fit, and leave too little to other work.
        (1_000_000, 1 << 40, 2_081_100_000, "ivf", "takes 1.45 GiB of the GPU's memory, of which 1.94 GiB"),
        (1_000_000, 1 << 40, 0, "ivf", "of which 0.00 GiB are free"),
        (1_000_000, 1 << 40, None, "ivf", "there is no GPU here"),
        (1_000_000, 1 << 30, None, "mapped", "there is no GPU here"),
        (1000, 1 << 40, None, "exact", "there is no GPU here"),
    ],
)
def test_where_the_gpu_cannot_be_had_size_and_memory_choose_and_it_is_said_why(
    count: int, memory: int, gpu: int | None, chosen: str, reason: str
) -> None:
    choices = choose_view(count, 512, memory, "gpu", gpu)
    assert [choice.name for choice in choices if choice.chosen] == [chosen]
    reasons = {choice.name: choice.reason for choice in choices}
    assert reason in reasons["gpu"]
    assert all(reasons.values())
    if chosen != "gpu":
        without = {choice.name: choice.reason for choice in choose_view(count, 512, memory)}
        assert without == reasons | {"gpu": "only when it is asked for"}
