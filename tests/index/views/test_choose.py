"""The choice of a view by size, memory, and the operator's wish."""

import pytest

from index.vectors.protocol import ViewName
from index.views.manager import choose_view


@pytest.mark.parametrize(
    ("count", "memory", "wanted", "chosen"),
    [
        (1000, 1 << 40, None, "exact"),
        (1_000_000, 1 << 40, None, "ivf"),
        (1_000_000, 1 << 30, None, "mapped"),
        # The view would fit, and leave nothing.
        (1_000_000, 1_200_000_000, None, "mapped"),
        (1000, 0, None, "exact"),
        (1_000_000, 0, "exact", "exact"),
        (1_000_000, 1 << 40, "mapped", "mapped"),
        (1000, 1 << 40, "ivf", "ivf"),
        (1_000_000, 1 << 40, "exact", "exact"),
    ],
)
def test_size_memory_and_wish_choose_the_view(
    count: int, memory: int, wanted: ViewName | None, chosen: str
) -> None:
    choices = choose_view(count, 512, memory, wanted)
    assert [choice.name for choice in choices if choice.chosen] == [chosen]
    assert all(choice.reason for choice in choices)


@pytest.mark.parametrize(
    ("count", "memory", "wanted", "chosen"),
    [
        (1_000_000, 1 << 40, None, "gpu"),
        # A scan by the CPU is quick enough.
        (1000, 1 << 40, None, "exact"),
        # The CPU ranks hits by vectors that it has in memory.
        (1_000_000, 1 << 30, None, "mapped"),
        (1_000_000, 1 << 40, "ivf", "ivf"),
    ],
)
def test_a_gpu_that_is_there_is_used_without_asking(
    count: int, memory: int, wanted: ViewName | None, chosen: str
) -> None:
    choices = choose_view(count, 512, memory, wanted, 1 << 40)
    assert [choice.name for choice in choices if choice.chosen] == [chosen]
    assert all(choice.reason for choice in choices)


@pytest.mark.parametrize(
    ("count", "memory", "gpu", "chosen", "reason"),
    [
        (1_000_000, 1 << 40, 1 << 40, "gpu", "chosen for this collection; takes 0.95 GiB"),
        (1000, 1 << 40, 1 << 40, "gpu", "chosen for this collection"),
        (1_000_000, 1 << 40, 3_446_494_551, "gpu", "chosen for this collection"),
        # The vectors would fit, but not twice.
        (1_000_000, 1 << 40, 3_446_494_548, "ivf", "2.41 GiB while rows are added, of which 3.21 GiB"),
        (1_000_000, 1 << 40, 0, "ivf", "of which 0.00 GiB are free"),
        (1_000_000, 1 << 40, "FAISS finds no GPU", "ivf", "FAISS finds no GPU"),
        (1_000_000, 1 << 30, "FAISS finds no GPU", "mapped", "FAISS finds no GPU"),
        (1000, 1 << 40, "FAISS finds no GPU", "exact", "FAISS finds no GPU"),
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
