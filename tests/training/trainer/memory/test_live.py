"""Bytes of tensors counted while a computation runs, and what they say of a larger one."""

import torch
from torch import nn

from training.trainer.memory.live import Growth, LiveMemory

CPU = torch.device("cpu")
FLOAT = 4


def test_storages_are_counted_once_and_until_they_are_freed() -> None:
    older = torch.zeros(1000)
    with LiveMemory(CPU) as live:
        made = older + 1
        made.view(10, 100).add_(older.view(10, 100))
        older.mul_(2)
        twice = made * 2
        del made
        rest = twice[:1]
    assert live.trace == [FLOAT * size for size in (1000, 1000, 1000, 1000, 1000, 2000, 1000)]
    assert rest.numel() == 1


def test_gradients_and_what_a_backward_pass_frees_are_counted() -> None:
    weight = nn.Parameter(torch.ones(50))
    with LiveMemory(CPU) as live:
        torch.autograd.backward((weight.exp() * 2).sum())
    assert max(live.trace) >= 2 * 50 * FLOAT
    assert weight.grad is not None
    # The gradients of the sum and of its scale are still held.
    assert live.trace[-1] == weight.grad.nbytes + 2 * FLOAT


def test_the_largest_operation_of_many_items_need_not_be_that_of_few() -> None:
    growth = Growth(2, 4, [100, 20, 10], [100, 40, 10])
    assert [growth.at(items) for items in (2, 4, 8, 100)] == [100, 100, 100, 1000]


def test_without_operations_to_compare_all_is_taken_to_grow() -> None:
    assert Growth(2, 4, [10, 10], [30, 30, 20]).at(16) == 120
    assert Growth(2, 2, [10], [10]).at(7) == 35
    assert Growth(2, 2, [10], [10]).at(1) == 10


def test_a_convolutional_network_grows_as_few_items_tell() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))

    def trace(items: int) -> list[int]:
        model.zero_grad()
        with LiveMemory(CPU) as live:
            model(torch.ones(items, 3, 8, 8)).sum().backward()
        return live.trace

    assert Growth(2, 4, trace(2), trace(4)).at(64) == max(trace(64))
