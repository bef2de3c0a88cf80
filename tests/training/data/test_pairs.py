from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training.common.errors import DataError
from training.common.record import Record
from training.data.pairs import PairSampler, Position, describable, positive_mask


def record(number: int, *texts: str, labels: tuple[str, ...] = (), study: str | None = None) -> Record:
    metadata = {} if study is None else {"study": study}
    return Record(
        id=str(number), image=f"{number}.png", split="train", texts=texts, labels=labels, metadata=metadata
    )


def records(count: int, texts: int = 3) -> list[Record]:
    return [record(number, *(f"{number}/{text}" for text in range(texts))) for number in range(count)]


def rows_of_epoch(sampler: PairSampler, epoch: int) -> list[int]:
    return [
        row for index in range(sampler.batches_per_epoch) for row in sampler.draw(epoch, index).rows.tolist()
    ]


@settings(deadline=None)
@given(st.integers(4, 40), st.integers(2, 4), st.integers(0, 5))
def test_epoch_draws_each_image_at_most_once_and_drops_the_last_incomplete_batch(
    count: int, batch: int, epoch: int
) -> None:
    sampler = PairSampler(records(count), batch, seed=1)
    rows = rows_of_epoch(sampler, epoch)
    assert len(rows) == count // batch * batch
    assert len(set(rows)) == len(rows)


@settings(deadline=None)
@given(st.integers(4, 40), st.integers(2, 4), st.integers(0, 5))
def test_filled_up_batches_draw_every_image_and_none_twice_in_a_batch(
    count: int, batch: int, epoch: int
) -> None:
    sampler = PairSampler(records(count), batch, seed=1, fill_up=True)
    drawn = [sampler.draw(epoch, index).rows.tolist() for index in range(sampler.batches_per_epoch)]
    assert all(len(set(rows)) == len(rows) == batch for rows in drawn)
    assert {row for rows in drawn for row in rows} == set(range(count))
    assert len(drawn) == -(-count // batch)


@settings(deadline=None)
@given(st.lists(st.integers(1, 5), min_size=4, max_size=12), st.integers(2, 4), st.integers(0, 5))
def test_an_epoch_of_texts_draws_each_text_once_with_its_image(
    counts: list[int], batch: int, epoch: int
) -> None:
    known = [record(row, *(f"{row}/{turn}" for turn in range(count))) for row, count in enumerate(counts)]
    sampler = PairSampler(known, batch, seed=1, every_text=True)
    drawn = [sampler.draw(epoch, index) for index in range(sampler.batches_per_epoch)]
    texts = [text for pairs in drawn for text in pairs.texts]
    assert sampler.batches_per_epoch == sum(counts) // batch
    assert len(set(texts)) == len(texts) == sum(counts) // batch * batch
    for pairs in drawn:
        assert pairs.turns is not None
        actual = [f"{row}/{turn}" for row, turn in zip(pairs.rows, pairs.turns, strict=True)]
        assert list(pairs.texts) == actual


def test_two_texts_of_an_image_in_a_batch_match_it_both() -> None:
    sampler = PairSampler(records(2), 6, seed=0, every_text=True)
    pairs = sampler.draw(0, 0)
    same = pairs.rows[:, None] == pairs.rows
    assert same.sum() == 18
    assert pairs.positive_mask is not None
    assert pairs.positive_mask.numpy().tolist() == same.tolist()
    parts = [sampler.draw(0, 0, slice(first, first + 2)) for first in (0, 2, 4)]
    assert [text for part in parts for text in part.texts] == list(pairs.texts)
    masks = [part.positive_mask for part in parts if part.positive_mask is not None]
    assert torch.equal(torch.cat(masks), pairs.positive_mask)
    assert [part.turns is not None and len(part.turns) for part in parts] == [2, 2, 2]


@pytest.mark.parametrize("every_text", [False, True])
@pytest.mark.parametrize("negatives", [False, True])
def test_any_batch_can_be_drawn_at_any_time(every_text: bool, negatives: bool) -> None:
    known = _with_negatives() if negatives else records(24)
    ahead, back, other = (PairSampler(known, BATCH, seed, every_text=every_text) for seed in (3, 3, 4))
    places = [(epoch, index) for epoch in range(3) for index in range(ahead.batches_per_epoch)]
    drawn = {place: ahead.draw(*place) for place in places}
    for place in reversed(places):
        pairs = back.draw(*place)
        assert pairs.texts == drawn[place].texts
        assert np.array_equal(pairs.rows, drawn[place].rows)
    assert drawn[0, 0].texts != drawn[1, 0].texts != other.draw(1, 0).texts


def test_texts_belong_to_their_image_and_all_have_their_turn() -> None:
    sampler = PairSampler(records(10), 5, seed=0)
    seen: Counter[str] = Counter()
    for epoch in range(60):
        for index in range(2):
            pairs = sampler.draw(epoch, index)
            for row, text in zip(pairs.rows, pairs.texts, strict=True):
                assert isinstance(text, str)
                assert text.startswith(f"{row}/")
                seen[text] += 1
    assert len(seen) == 30
    assert min(seen.values()) > 5


@pytest.mark.parametrize(("every_text", "message"), [(False, "3 images.*batch of 10"), (True, "9 texts")])
def test_too_few_items_for_a_batch_are_named(every_text: bool, message: str) -> None:
    with pytest.raises(DataError, match=rf"{message}.*train\.batch_size"):
        PairSampler(records(3), 10, seed=0, every_text=every_text)


def test_one_image_of_each_study() -> None:
    several = [record(number, f"t{number}", study=f"s{number // 3}") for number in range(12)]
    alone = [record(number, f"t{number}") for number in range(12, 16)]
    sampler = PairSampler([*several, *alone], 4, seed=0, one_image_per="study")
    assert sampler.batches_per_epoch == 2
    drawn = set()
    for epoch in range(30):
        rows = rows_of_epoch(sampler, epoch)
        studies = [row // 3 if row < 12 else row for row in rows]
        assert len(set(studies)) == 8
        drawn |= set(rows)
    assert drawn == set(range(16))


def test_mask_marks_texts_that_belong_to_another_image_of_the_batch() -> None:
    choices = [("a", "b"), ("b",), ("c",), ("b", "c")]
    mask = positive_mask(choices, ("a", "b", "c", "b"))
    expected = [[1, 1, 0, 1], [0, 1, 0, 1], [0, 0, 1, 0], [0, 1, 1, 1]]
    assert mask is not None
    assert mask.to(torch.int64).tolist() == expected
    assert positive_mask([r.texts for r in records(4)], ("0/1", "1/0", "2/2", "3/0")) is None


def test_a_report_is_all_texts_of_an_image_in_their_order() -> None:
    same = [record(0, "a", "b"), record(1, "b", "a"), record(2, "a", "b")]
    pairs = PairSampler(same, 3, seed=0, text_unit="report").draw(0, 0)
    assert pairs.texts == tuple(same[row].texts for row in pairs.rows)
    assert pairs.positive_mask is not None
    alike = [row != 1 for row in pairs.rows]
    expected = [[i == j or (alike[i] and alike[j]) for j in range(3)] for i in range(3)]
    assert pairs.positive_mask.tolist() == expected


def test_images_without_texts_are_drawn_without_drawing_texts() -> None:
    pairs = PairSampler([record(number) for number in range(4)], 2, seed=0, text_unit=None).draw(0, 1)
    assert (len(pairs.rows), pairs.texts, pairs.positive_mask) == (2, (), None)


def test_images_without_a_text_are_described_by_their_labels_or_left_out() -> None:
    given_records = [record(0, "text", labels=("x",)), record(1, labels=("x", "y")), record(2)]
    assert [r.id for r in describable(given_records, None)] == ["0"]
    described = describable(given_records, "showing {labels}")
    assert [(r.id, r.texts) for r in described] == [("0", ("text",)), ("1", ("showing x, y",))]
    (braced,) = describable([record(1, labels=("{x}",))], "} {labels}")
    assert braced.texts == ("} {x}",)


@given(st.integers(1, 6), st.integers(0, 40))
def test_position_counts_epochs(per_epoch: int, steps: int) -> None:
    position = Position()
    for _ in range(steps):
        position = position.next(per_epoch)
    assert position == Position(steps, *divmod(steps, per_epoch))


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
        actual = set()
        for index in range(sampler.batches_per_epoch):
            pairs = sampler.draw(epoch, index)
            rows = set(pairs.rows.tolist())
            for text, negatives in (("q0", {20}), ("q1", {21, 22}), ("q2", {23})):
                if text in pairs.texts:
                    assert rows & negatives, (epoch, text)
                    actual.add(text)
            assert len(rows) == BATCH
        assert actual == {"q0", "q1", "q2"}
        assert sorted(rows_of_epoch(sampler, epoch)) == list(range(24))


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
