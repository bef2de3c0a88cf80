"""Training examples that are held out to choose a checkpoint."""

import pytest

from training.common.errors import DataError
from training.recipes.tasks import ChoosingDataConfig, TaskDataConfig
from training.tasks.held_out import kept_share, train_and_validation, whole_groups

LETTERS = tuple("abcdefghijk")
ITEMS = tuple((group, number) for group in range(25) for number in range(4))


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
