"""The choice of a view by size, memory, and the operator's wish."""

import pytest

from index.vectors.protocol import ViewName
from index.views.choose import choose_view


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
        # The vectors would fit, and leave too little to other work.
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
