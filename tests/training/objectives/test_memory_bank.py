"""The memory against slow loops: who is near, who is left out, and how rows move."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from training.common.errors import RecipeError
from training.objectives.memory_bank import MemoryBank

ITEMS = 12


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def slow_nearest(bank: MemoryBank, query: Tensor, item: int | None, count: int) -> list[int]:
    """Rows by falling cosine, without those of the item's image."""
    cosines = {}
    for row, values in enumerate(bank.rows):
        if item is None or bank.groups[row] != bank.groups[item]:
            cosines[row] = float(query @ values / (query.norm() * values.norm()))
    return sorted(cosines, key=lambda row: -cosines[row])[:count]


@settings(max_examples=40, deadline=None)
@given(
    groups=st.lists(st.integers(0, 4), min_size=ITEMS, max_size=ITEMS),
    items=st.lists(st.integers(0, ITEMS - 1), min_size=1, max_size=5),
    count=st.integers(1, 20),
    seed=st.integers(0, 99),
)
def test_nearest_rows_are_those_of_a_slow_search(
    groups: list[int], items: list[int], count: int, seed: int
) -> None:
    bank = MemoryBank(ITEMS, 4, seed=seed, groups=groups).double()
    queries = draw(len(items), 4, seed=seed + 1)
    near = bank.nearest(queries, torch.tensor(items), count)
    for i, item in enumerate(items):
        expected = slow_nearest(bank, queries[i], item, count)
        found = near.rows[i][near.found[i]]
        assert torch.equal(found, bank.rows[expected])


def test_own_image_is_never_a_neighbour_even_when_it_is_nearest() -> None:
    bank = MemoryBank(4, 3, groups=(7, 7, 2, 5)).double()
    queries = bank.rows[[0]].clone()
    bank.rows[1] = bank.rows[0]
    near = bank.nearest(queries, torch.tensor([0]), 4)
    assert near.found.tolist() == [[True, True, False, False]]
    assert not (near.rows[0][near.found[0]] == queries[0]).all(dim=1).any()


def test_without_groups_only_the_own_row_is_left_out() -> None:
    bank = MemoryBank(5, 3).double()
    near = bank.nearest(draw(1, 3), torch.tensor([2]), 9)
    assert near.found.sum() == 4


def test_a_query_from_outside_may_get_every_row() -> None:
    bank = MemoryBank(5, 3).double()
    queries = draw(2, 3)
    near = bank.nearest(queries, None, 9)
    assert near.found.all()
    assert torch.equal(near.rows[1], bank.rows[slow_nearest(bank, queries[1], None, 9)])


def test_one_item_has_no_neighbours() -> None:
    near = MemoryBank(1, 3).double().nearest(draw(1, 3), torch.tensor([0]), 10)
    assert near.found.tolist() == [[False]]
    assert near.rows.isfinite().all()


def test_rows_move_by_momentum_as_in_a_loop() -> None:
    bank = MemoryBank(ITEMS, 4, momentum=0.3).double()
    expected = bank.rows.clone()
    for step in range(4):
        items, new = (
            torch.randperm(ITEMS, generator=torch.Generator().manual_seed(step))[:5],
            draw(5, 4, seed=step),
        )
        bank.update(items, new.requires_grad_())
        for item, feature in zip(items.tolist(), new.detach(), strict=True):
            expected[item] = 0.7 * expected[item] + 0.3 * feature
    torch.testing.assert_close(bank.rows, expected, rtol=0, atol=1e-15)
    assert not bank.rows.requires_grad


def test_an_item_that_is_there_twice_counts_with_its_mean_in_any_order() -> None:
    one, other = MemoryBank(4, 3).double(), MemoryBank(4, 3).double()
    items, new = torch.tensor([2, 0, 2]), draw(3, 3)
    before = one.rows.clone()
    one.update(items, new)
    other.update(items.flip(0), new.flip(0))
    torch.testing.assert_close(one.rows[2], 0.5 * before[2] + 0.25 * (new[0] + new[2]))
    assert torch.equal(one.rows[[1, 3]], before[[1, 3]])
    torch.testing.assert_close(other.rows, one.rows)


def test_begins_with_normal_numbers_of_its_seed() -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    rows = MemoryBank(4000, 4, seed=3).rows
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(rows, MemoryBank(4000, 4, seed=3).rows)
    assert not torch.equal(rows, MemoryBank(4000, 4, seed=4).rows)
    assert abs(float(rows.mean())) < 0.03
    assert abs(float(rows.std()) - 1) < 0.03


def test_rows_are_in_the_state_and_groups_are_not() -> None:
    assert MemoryBank(4, 3, groups=(0, 0, 1, 1)).state_dict().keys() == {"rows"}


def test_half_precision_features_are_kept_in_full() -> None:
    bank = MemoryBank(4, 3)
    bank.update(torch.tensor([1]), torch.ones(1, 3, dtype=torch.bfloat16))
    assert bank.rows.dtype == torch.float32


def test_needs_items_and_a_group_for_each() -> None:
    with pytest.raises(RecipeError, match="there are none"):
        MemoryBank(0, 3)
    with pytest.raises(RecipeError, match="2 groups for 3"):
        MemoryBank(3, 3, groups=(0, 1))
