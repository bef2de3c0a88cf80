"""Batches of items: every one once an epoch, and any position goes on where it was."""

from collections.abc import Sequence
from itertools import chain, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data.pairs import Position
from training.tasks.loader import ItemLoader
from training.trainer.run_state.processes import Processes


class Numbers(ItemLoader[int, list[int]]):
    """The numbers of the items themselves."""

    def batch(self, places: Sequence[int]) -> list[int]:
        return list(places)

    def length(self, place: int) -> int:
        return place**2


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
        def length(self, place: int) -> int:
            return lengths[place]

    found = [lengths[place] for place in Texts(range(len(lengths)), size).largest()]
    assert sorted(found, reverse=True) == sorted(lengths, reverse=True)[:size]
    for few in (2, 4):
        if few < len(found):
            assert sum(found[:few]) * len(found) >= sum(found) * few
            assert sum(found[few - 2 : few]) * (len(found) - few) >= 2 * sum(found[few:]) or few == 2
