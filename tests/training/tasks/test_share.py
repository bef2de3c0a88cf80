"""A share of the training examples."""

from training.recipes.tasks import TaskDataConfig
from training.tasks.share import kept_share

ITEMS = tuple("abcdefghijk")


def test_a_share_is_drawn_by_its_own_seed_and_keeps_the_order() -> None:
    half = kept_share(ITEMS, TaskDataConfig(share=0.5))
    assert len(half) == 5
    assert list(half) == sorted(half)
    assert half == kept_share(ITEMS, TaskDataConfig(share=0.5))
    assert half != kept_share(ITEMS, TaskDataConfig(share=0.5, share_seed=1))
    assert len(kept_share(ITEMS, TaskDataConfig(share=0.001))) == 1
    assert kept_share(ITEMS, TaskDataConfig()) == ITEMS
