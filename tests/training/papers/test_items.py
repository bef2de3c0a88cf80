"""Items of a task: which choose the checkpoint, every one once an epoch, and any position of a run."""

from collections.abc import Sequence
from itertools import chain, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.classification.data import whole_groups
from training.common.errors import DataError
from training.data.pairs import Position
from training.papers.items import ItemLoader, kept_share, train_and_validation
from training.recipes.tasks import ChoosingDataConfig, TaskDataConfig
from training.trainer.run_state.processes import Processes

LETTERS = tuple("abcdefghijk")
ITEMS = tuple((group, number) for group in range(25) for number in range(4))


class Numbers(ItemLoader[int, list[int]]):
    """The numbers of the items themselves."""

    def batch(self, indices: Sequence[int]) -> list[int]:
        return list(indices)

    def length(self, index: int) -> int:
        return index**2


def drawn(source: Numbers, position: Position, count: int) -> list[list[int]]:
    return list(islice(source.from_position(position), count))


def test_an_epoch_has_every_item_once_in_an_order_of_its_own() -> None:
    source = Numbers(range(11), 4)
    assert (len(source), source.batches_per_epoch) == (11, 3)
    batches = drawn(source, Position(), 6)
    assert [len(batch) for batch in batches] == [4, 4, 3, 4, 4, 3]
    first, second = list(chain(*batches[:3])), list(chain(*batches[3:]))
    assert sorted(first) == sorted(second) == list(range(11))
    assert first != second
    assert drawn(Numbers(range(11), 4, seed=1), Position(), 1) != batches[:1]


def test_any_position_goes_on_where_it_was() -> None:
    everything, position = drawn(Numbers(range(11), 4), Position(), 7), Position()
    for start in range(6):
        assert drawn(Numbers(range(11), 4), position, 7 - start) == everything[start:]
        position = position.next(3)


def test_in_order_goes_through_all() -> None:
    assert list(Numbers(range(11), 5).in_order()) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10]]


def test_processes_share_a_batch_in_its_order_and_all_have_one_that_is_too_small() -> None:
    whole = Numbers(range(9), 4)
    first, second = (Numbers(range(9), 4, processes=Processes(rank, 2)) for rank in range(2))
    assert first.batches_per_epoch == second.batches_per_epoch == 3
    batches = zip(*(drawn(source, Position(), 3) for source in (whole, first, second)), strict=True)
    for number, (together, left, right) in enumerate(batches):
        assert (left == right == together) if number == 2 else (left + right == together)
    assert (whole.smallest_share, first.smallest_share, Numbers(range(11), 4).smallest_share) == (1, 1, 3)
    assert list(second.in_order()) == list(whole.in_order())
    uneven = [Numbers(range(11), 4, processes=Processes(rank, 2)) for rank in range(2)]
    assert [len(drawn(source, Position(), 3)[-1]) for source in uneven] == [2, 1]


@pytest.mark.parametrize(
    ("items", "size", "processes", "expected"),
    [
        (100, 4, 1, [98, 99, 97, 96]),
        # The mean of the squares from 6 to 9 is 57.5.
        (10, 4, 1, [8, 9, 7, 6]),
        (10, 8, 2, [8, 9, 7, 6]),
        (3, 8, 1, [2, 1, 0]),
        (3, 8, 2, [2, 1]),
        (3, 8, 4, [2, 1, 0]),
    ],
)
def test_the_largest_batch_begins_with_items_that_tell_of_all(
    items: int, size: int, processes: int, expected: list[int]
) -> None:
    for rank in range(processes):
        source = Numbers(range(items), size, processes=Processes(rank=rank, count=processes))
        assert source.largest() == expected


@given(st.lists(st.integers(0, 200), min_size=1, max_size=60), st.integers(1, 12))
def test_no_batch_takes_more_than_the_first_items_of_the_largest_tell(lengths: list[int], size: int) -> None:
    class Texts(Numbers):
        def length(self, index: int) -> int:
            return lengths[index]

    found = [lengths[index] for index in Texts(range(len(lengths)), size).largest()]
    assert sorted(found, reverse=True) == sorted(lengths, reverse=True)[:size]
    for few in (2, 4):
        if few < len(found):
            assert sum(found[:few]) * len(found) >= sum(found) * few
            assert sum(found[few - 2 : few]) * (len(found) - few) >= 2 * sum(found[few:]) or few == 2


def config(validation: float, **settings: float) -> ChoosingDataConfig:
    return ChoosingDataConfig.model_validate({"validation_share": validation, **settings})


def test_whole_groups_are_held_out_and_the_share_is_of_the_rest() -> None:
    train, chosen = train_and_validation(ITEMS, lambda item: item[0], config(0.21))
    assert len(chosen) == 20
    assert {group for group, _ in train}.isdisjoint(group for group, _ in chosen)
    assert sorted((*train, *chosen)) == list(ITEMS)
    assert list(train) == sorted(train)
    half, same = train_and_validation(ITEMS, lambda item: item[0], config(0.21, share=0.5))
    assert same == chosen
    assert len(half) == 40
    assert set(half) < set(train)
    _, other = train_and_validation(ITEMS, lambda item: item[0], config(0.21, share_seed=1))
    assert other != chosen


def test_a_group_that_is_too_large_is_trained_on() -> None:
    assert whole_groups("aaaabc", 2, seed=0) == [4, 5]


@pytest.mark.parametrize(("validation", "items"), [(0.01, ITEMS[:40]), (0.9, ITEMS[:4]), (0.5, ITEMS[:4])])
def test_a_part_that_would_be_empty_is_named(validation: float, items: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(DataError, match=r"data\.validation_share"):
        train_and_validation(items, lambda item: item[0], config(validation))


def test_a_share_is_drawn_by_its_own_seed_and_keeps_the_order() -> None:
    half = kept_share(LETTERS, TaskDataConfig(share=0.5))
    assert len(half) == 5
    assert list(half) == sorted(half)
    assert half == kept_share(LETTERS, TaskDataConfig(share=0.5))
    assert half != kept_share(LETTERS, TaskDataConfig(share=0.5, share_seed=1))
    assert len(kept_share(LETTERS, TaskDataConfig(share=0.001))) == 1
    assert kept_share(LETTERS, TaskDataConfig()) == LETTERS
