from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from training.common.errors import DataError
from training.data.pairs import Text
from training.models.learned_tokenizer import learn_tokenizer, learn_word_tokenizer
from training.models.text_input import Tokenizer
from training.shortcuts.config import ShortcutConfig
from training.shortcuts.shortcuts import MAX_IDS, Shortcuts, with_digits, with_every_digit

Learn = Callable[[Iterable[str], int], Tokenizer]


def shortcuts(kind: str, *, seed: int = 0, images: int = 100) -> Shortcuts:
    return Shortcuts(ShortcutConfig.model_validate(kind), seed, images)


def rows(count: int) -> NDArray[np.int64]:
    return np.arange(count, dtype=np.int64)


@pytest.mark.parametrize("images", [1, 2, 3_000])
@pytest.mark.parametrize(("seed", "epoch"), [(0, 0), (1, 7), (2**40, 50), (2**63 - 1, 10_000)])
def test_unique_ids_are_contiguous(images: int, epoch: int, seed: int) -> None:
    ids = shortcuts("unique", seed=seed, images=images).ids(epoch, rows(images))
    np.testing.assert_array_equal(ids, ids[0] + np.arange(images))
    assert ids[0] >= 0
    assert ids[-1] < MAX_IDS


def test_unique_ids_are_shifted_every_epoch() -> None:
    plan = shortcuts("unique", images=500)
    first = [int(plan.ids(epoch, rows(1))[0]) for epoch in range(200)]
    assert len(set(first)) > 195
    # The offsets spread over all that six digits can count.
    assert min(first) < 50_000
    assert max(first) > 950_000


@pytest.mark.parametrize("bits", range(14))
@pytest.mark.parametrize(("seed", "epoch"), [(0, 0), (2**31, 50)])
def test_bits_bound_the_ids(bits: int, epoch: int, seed: int) -> None:
    ids = shortcuts(f"bits:{bits}", seed=seed, images=2_000).ids(epoch, rows(2_000))
    assert ids.min() >= 0
    assert ids.max() < 2**bits


@pytest.mark.parametrize("bits", [0, 1, 4, 8])
def test_all_ids_of_so_many_bits_are_equally_likely(bits: int) -> None:
    plan = shortcuts(f"bits:{bits}", seed=3, images=5_000)
    ids = np.concatenate([plan.ids(epoch, rows(5_000)) for epoch in range(8)])
    counts = np.bincount(ids, minlength=2**bits)
    expected = len(ids) / 2**bits
    assert len(counts) == 2**bits
    # Six standard deviations.
    assert np.abs(counts - expected).max() <= 6 * np.sqrt(expected)


def test_with_no_bits_the_id_is_0_and_still_written() -> None:
    plan = shortcuts("bits:0")
    ids = plan.ids(3, rows(2))
    assert ids.tolist() == [0, 0]
    assert plan.captions(["a dog", "a cat"], ids) == ["a dog 0 0 0 0 0 0", "a cat 0 0 0 0 0 0"]
    glyphs = plan.glyphs(3, rows(2), ids)
    assert glyphs is not None
    assert ((glyphs >= 0) & (glyphs < 100)).all()


@pytest.mark.parametrize("kind", ["unique", "bits:13"])
def test_an_id_depends_on_seed_epoch_and_row_alone(kind: str) -> None:
    plan = shortcuts(kind, seed=7)
    every = rows(100)
    ids, glyphs = plan.ids(5, every), plan.glyphs(5, every, plan.ids(5, every))
    assert glyphs is not None
    order = np.random.default_rng(0).permutation(100)
    batches = [order[start : start + 7] for start in range(0, 100, 7)]

    def draw(batch: NDArray[np.int64]) -> None:
        again = shortcuts(kind, seed=7)
        np.testing.assert_array_equal(again.ids(5, batch), ids[batch])
        drawn = again.glyphs(5, batch, ids[batch])
        assert drawn is not None
        assert drawn.equal(glyphs[batch])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(draw, batches))
    other_epoch, other_seed = plan.ids(6, every), shortcuts(kind, seed=8).ids(5, every)
    for other in (other_epoch, other_seed):
        assert (other != ids).mean() > 0.9
    hands = plan.glyphs(6, every, ids)
    assert hands is not None
    assert (hands != glyphs).float().mean() > 0.9


@pytest.mark.parametrize("number", [0, 9, 10, 12_345, 100_000, 678_901, MAX_IDS - 1])
def test_digits_in_a_caption_and_in_the_glyphs_are_the_same(number: int) -> None:
    caption = with_digits("Two dogs.", number)
    assert caption.startswith("Two dogs. ")
    written = caption.removeprefix("Two dogs. ").split(" ")
    assert [len(digit) for digit in written] == [1] * 6
    assert int("".join(written)) == number
    glyphs = shortcuts("unique").glyphs(0, rows(1), np.array([number]))
    assert glyphs is not None
    assert (glyphs[0] // 100).tolist() == [int(digit) for digit in written]


def test_every_place_has_its_own_handwriting() -> None:
    plan = shortcuts("bits:0", images=400)
    glyphs = plan.glyphs(0, rows(400), np.zeros(400, dtype=np.int64))
    assert glyphs is not None
    hands = (glyphs % 100).numpy()
    assert set(hands.ravel().tolist()) == set(range(100))
    assert (hands == hands[:, :1]).all(axis=1).sum() == 0


def test_one_modality_alone() -> None:
    image = Shortcuts(ShortcutConfig(kind="bits", bits=4, modalities=("image",)), 0, 10)
    text = Shortcuts(ShortcutConfig(kind="bits", bits=4, modalities=("text",)), 0, 10)
    ids = image.ids(0, rows(2))
    np.testing.assert_array_equal(ids, text.ids(0, rows(2)))
    assert image.captions(["a", "b"], ids) == ["a", "b"]
    assert image.glyphs(0, rows(2), ids) is not None
    assert text.glyphs(0, rows(2), ids) is None
    assert text.overlay() is None
    assert image.overlay() is not None
    assert text.captions(["a", "b"], ids) == [with_digits("a", int(ids[0])), with_digits("b", int(ids[1]))]


def test_of_a_text_in_sentences_the_last_one_has_the_digits() -> None:
    plan = shortcuts("bits:0")
    texts: list[Text] = [("One.", "Two."), "Three.", ("Four.",)]
    expected = [("One.", "Two. 0 0 0 0 0 0"), "Three. 0 0 0 0 0 0", ("Four. 0 0 0 0 0 0",)]
    assert plan.captions(texts, np.zeros(3, dtype=np.int64)) == expected


@pytest.mark.parametrize("learn", [learn_tokenizer, learn_word_tokenizer])
def test_a_tokenizer_that_has_seen_every_digit_tells_ids_apart(learn: Learn) -> None:
    tokenizer = learn(with_every_digit(["a dog", "a cat on a mat"]), 400)
    texts = [with_digits("a dog", number) for number in (0, 1, 10, 123456, 987650)]
    ids = [encoding.ids for encoding in tokenizer.encode(texts)]
    assert len({tuple(one) for one in ids}) == len(ids)
    # One token a digit, so that captions grow little.
    (bare,) = tokenizer.encode(["a dog"])
    assert {len(one) - len(bare.ids) for one in ids} == {6}


def test_the_ids_of_a_run_stay_what_they_are() -> None:
    # A run that is resumed by a later release must see the same ids.
    assert shortcuts("unique").ids(2, rows(3)).tolist() == [372033, 372034, 372035]
    assert shortcuts("bits:13", seed=1).ids(1, rows(4)).tolist() == [5512, 2243, 548, 5485]


def test_as_many_images_as_ids_and_one_more() -> None:
    full = shortcuts("unique", images=MAX_IDS)
    assert full.ids(9, np.array([0, MAX_IDS - 1])).tolist() == [0, MAX_IDS - 1]
    with pytest.raises(DataError, match="six digits count only 1,000,000: use bits instead"):
        shortcuts("unique", images=MAX_IDS + 1)
    assert shortcuts("bits:13", images=MAX_IDS + 1).images == MAX_IDS + 1
