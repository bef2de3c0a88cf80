"""The choice of a view by size, memory, GPU and the operator's wish."""

import pytest

from index.vectors.protocol import ViewName
from index.views.manager import choose_view

NONE = "FAISS finds no GPU"
TB, GB = 1 << 40, 1 << 30


@pytest.mark.parametrize(
    ("count", "memory", "gpu", "wanted", "chosen"),
    [
        (1000, TB, None, None, "exact"),
        (1_000_000, TB, None, None, "ivf"),
        (1_000_000, GB, None, None, "mapped"),
        # The view would fit, and leave nothing.
        (1_000_000, 1_200_000_000, None, None, "mapped"),
        (1000, 0, None, None, "exact"),
        (1_000_000, 0, None, "exact", "exact"),
        (1_000_000, TB, None, "mapped", "mapped"),
        (1000, TB, None, "ivf", "ivf"),
        (1_000_000, TB, None, "exact", "exact"),
        # A GPU that is there is used without asking.
        (1_000_000, TB, TB, None, "gpu"),
        # A scan by the CPU is quick enough.
        (1000, TB, TB, None, "exact"),
        # The CPU ranks hits by vectors that it has in memory.
        (1_000_000, GB, TB, None, "mapped"),
        (1_000_000, TB, TB, "ivf", "ivf"),
    ],
)
def test_size_memory_and_wish_choose_the_view(
    count: int, memory: int, gpu: int | None, wanted: ViewName | None, chosen: str
) -> None:
    choices = choose_view(count, 512, memory, wanted, *(() if gpu is None else (gpu,)))
    assert [choice.name for choice in choices if choice.chosen] == [chosen]
    assert all(choice.reason for choice in choices)


@pytest.mark.parametrize(
    ("count", "memory", "gpu", "chosen", "reason"),
    [
        (1_000_000, TB, TB, "gpu", "chosen for this collection; takes 0.95 GiB"),
        (1000, TB, TB, "gpu", "chosen for this collection"),
        (1_000_000, TB, 3_446_494_551, "gpu", "chosen for this collection"),
        # The vectors would fit, but not twice.
        (1_000_000, TB, 3_446_494_548, "ivf", "2.41 GiB while rows are added, of which 3.21 GiB"),
        (1_000_000, TB, 0, "ivf", "of which 0.00 GiB are free"),
        (1_000_000, TB, NONE, "ivf", NONE),
        (1_000_000, GB, NONE, "mapped", NONE),
        (1000, TB, NONE, "exact", NONE),
    ],
)
def test_a_gpu_that_cannot_be_used_is_explained_and_size_and_memory_choose(
    count: int, memory: int, gpu: int | str, chosen: str, reason: str
) -> None:
    choices = choose_view(count, 512, memory, "gpu", gpu)
    assert [choice.name for choice in choices if choice.chosen] == [chosen]
    reasons = {choice.name: choice.reason for choice in choices}
    assert reason in reasons["gpu"]
    assert all(reasons.values())
