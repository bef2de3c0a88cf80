"""Texts meet the images that they seem to fit in their batch."""

from dataclasses import replace

import numpy as np
import pytest

from tests.training.data.test_pairs import record, records, rows_of_epoch
from training.common.record import Record
from training.data.pairs import PairSampler

BATCH = 4


def _with_negatives(count: int = 24) -> list[Record]:
    """Images 0, 1 and 2 have one text each, which 20; 21 and 22; and 23 do not fit."""
    made = records(count)
    for row in range(3):
        made[row] = record(row, f"q{row}")
    for row, text in ((20, "q0"), (21, "q1"), (22, "q1"), (23, "q2")):
        made[row] = replace(made[row], not_texts=(text,))
    return made


@pytest.mark.parametrize("seed", range(10))
def test_each_text_meets_one_of_its_hard_negatives_every_epoch(seed: int) -> None:
    sampler = PairSampler(_with_negatives(), BATCH, seed)
    for epoch in range(5):
        found = set()
        for index in range(sampler.batches_per_epoch):
            pairs = sampler.draw(epoch, index)
            rows = set(pairs.rows.tolist())
            for text, negatives in (("q0", {20}), ("q1", {21, 22}), ("q2", {23})):
                if text in pairs.texts:
                    assert rows & negatives, (epoch, text)
                    found.add(text)
            assert len(rows) == BATCH
        assert found == {"q0", "q1", "q2"}
        assert sorted(rows_of_epoch(sampler, epoch)) == list(range(24))


def test_batches_are_the_same_whenever_they_are_drawn() -> None:
    ahead, back = (PairSampler(_with_negatives(), BATCH, seed=3) for _ in range(2))
    places = [(epoch, index) for epoch in range(3) for index in range(6)]
    drawn = {place: ahead.draw(*place) for place in places}
    for place in reversed(places):
        np.testing.assert_array_equal(back.draw(*place).rows, drawn[place].rows)


def test_all_but_those_that_are_moved_stay() -> None:
    plain = [replace(each, not_texts=()) for each in _with_negatives()]
    with_them, without = PairSampler(_with_negatives(), BATCH, 0), PairSampler(plain, BATCH, 0)
    for epoch in range(5):
        moved = np.count_nonzero(
            np.array(rows_of_epoch(with_them, epoch)) != np.array(rows_of_epoch(without, epoch))
        )
        assert moved <= 2 * 3


def test_a_batch_full_of_pairs_and_a_negative_that_many_need_are_no_harm() -> None:
    made = [record(row, "q") for row in range(7)] + [replace(record(7, "other"), not_texts=("q",))]
    for seed in range(20):
        sampler = PairSampler(made, BATCH, seed)
        assert sorted(rows_of_epoch(sampler, 0)) == list(range(8))
