"""Work in threads ahead of its caller ends with it."""

import threading

import pytest

from index.writes.intake import prefetch


def test_work_in_hand_is_given_up_where_the_caller_stops() -> None:
    given_up = threading.Event()

    def prepare(item: int) -> bool:
        return item == 0 or given_up.wait(60)

    batches = prefetch(range(3), prepare, 1, threads=2, give_up=given_up.set)
    assert next(batches) == [(0, True)]
    assert not given_up.is_set()
    batches.close()
    assert given_up.is_set()


def test_nothing_is_given_up_where_all_is_taken() -> None:
    assert len(list(prefetch(range(3), bool, 2, give_up=pytest.fail))) == 2
