"""Ids of a split: how they are drawn, written into captions, and pasted into images."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.common.errors import DataError
from training.data.pairs import Text
from training.models.learned_tokenizer import learn_tokenizer, learn_word_tokenizer
from training.models.text_input import Tokenizer
from training.shortcuts.config import ShortcutConfig
from training.shortcuts.glyphs import draw_glyphs
from training.shortcuts.shortcuts import (
    MAX_IDS,
    DigitOverlay,
    FixedShortcuts,
    Shortcuts,
    with_digits,
    with_every_digit,
)

SEED, VARIANTS = 4, 3


def shortcuts(kind: object, *, seed: int = 0, images: int = 100) -> Shortcuts:
    return Shortcuts(ShortcutConfig.model_validate(kind), seed, images)


def rows(count: int) -> NDArray[np.int64]:
    return np.arange(count, dtype=np.int64)


def glyphs_of(plan: Shortcuts, epoch: int, places: NDArray[np.int64], ids: NDArray[np.int64]) -> Tensor:
    glyphs = plan.glyphs(epoch, places, ids)
    assert glyphs is not None
    return glyphs


@pytest.mark.parametrize("images", [1, 2, 3_000])
@pytest.mark.parametrize(("seed", "epoch"), [(0, 0), (1, 7), (2**40, 50), (2**63 - 1, 10_000)])
def test_unique_ids_are_contiguous(images: int, epoch: int, seed: int) -> None:
    ids = shortcuts("unique", seed=seed, images=images).ids(epoch, rows(images))
    np.testing.assert_array_equal(ids, ids[0] + np.arange(images))
    assert ids[0] >= 0
    assert ids[-1] < MAX_IDS


def test_unique_ids_are_shifted_every_epoch_over_all_that_six_digits_count() -> None:
    plan = shortcuts("unique", images=500)
    first = [int(plan.ids(epoch, rows(1))[0]) for epoch in range(200)]
    assert len(set(first)) > 195
    assert min(first) < 50_000
    assert max(first) > 950_000
    full = shortcuts("unique", images=MAX_IDS)
    assert full.ids(9, np.array([0, MAX_IDS - 1])).tolist() == [0, MAX_IDS - 1]
    with pytest.raises(DataError, match="six digits count only 1,000,000: use bits instead"):
        shortcuts("unique", images=MAX_IDS + 1)
    assert shortcuts("bits:13", images=MAX_IDS + 1).images == MAX_IDS + 1


@pytest.mark.parametrize("bits", [0, 1, 4, 8, 13])
def test_all_ids_of_so_many_bits_are_equally_likely(bits: int) -> None:
    plan = shortcuts(f"bits:{bits}", seed=2**31 + 3, images=5_000)
    ids = np.concatenate([plan.ids(epoch, rows(5_000)) for epoch in range(8)])
    counts = np.bincount(ids, minlength=2**bits)
    expected = len(ids) / 2**bits
    assert len(counts) == 2**bits
    # Six standard deviations.
    assert np.abs(counts - expected).max() <= 6 * np.sqrt(expected)


@pytest.mark.parametrize("kind", ["unique", "bits:13"])
def test_an_id_depends_on_seed_epoch_and_row_alone(kind: str) -> None:
    plan, every = shortcuts(kind, seed=7), rows(100)
    ids = plan.ids(5, every)
    glyphs = glyphs_of(plan, 5, every, ids)
    order = np.random.default_rng(0).permutation(100)

    def draw(batch: NDArray[np.int64]) -> None:
        again = shortcuts(kind, seed=7)
        np.testing.assert_array_equal(again.ids(5, batch), ids[batch])
        assert glyphs_of(again, 5, batch, ids[batch]).equal(glyphs[batch])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(draw, [order[start : start + 7] for start in range(0, 100, 7)]))
    for other in (plan.ids(6, every), shortcuts(kind, seed=8).ids(5, every)):
        assert (other != ids).mean() > 0.9
    assert (glyphs_of(plan, 6, every, ids) != glyphs).float().mean() > 0.9


def test_the_ids_of_a_run_stay_what_they_are() -> None:
    # A run that is resumed by a later release must see the same ids.
    assert shortcuts("unique").ids(2, rows(3)).tolist() == [372033, 372034, 372035]
    assert shortcuts("bits:13", seed=1).ids(1, rows(4)).tolist() == [5512, 2243, 548, 5485]


@pytest.mark.parametrize("number", [0, 9, 10, 12_345, 100_000, 678_901, MAX_IDS - 1])
def test_digits_in_a_caption_and_in_the_glyphs_are_the_same(number: int) -> None:
    written = with_digits("Two dogs.", number).removeprefix("Two dogs. ").split(" ")
    assert [len(digit) for digit in written] == [1] * 6
    assert int("".join(written)) == number
    glyphs = glyphs_of(shortcuts("unique"), 0, rows(1), np.array([number]))
    assert (glyphs[0] // 100).tolist() == [int(digit) for digit in written]


def test_every_place_has_its_own_handwriting() -> None:
    plan = shortcuts("bits:0", images=400)
    assert plan.ids(3, rows(2)).tolist() == [0, 0]
    glyphs = glyphs_of(plan, 0, rows(400), plan.ids(0, rows(400))).numpy()
    assert set(glyphs.ravel().tolist()) == set(range(100))
    assert (glyphs == glyphs[:, :1]).all(axis=1).sum() == 0


def test_captions_have_digits_in_their_last_sentence_and_each_modality_may_be_alone() -> None:
    texts: list[Text] = [("One.", "Two."), "Three.", ("Four.",)]
    expected = [("One.", "Two. 0 0 0 0 0 0"), "Three. 0 0 0 0 0 0", ("Four. 0 0 0 0 0 0",)]
    ids = np.zeros(3, dtype=np.int64)
    assert shortcuts("bits:0").captions(texts, ids) == expected
    image, text = (shortcuts({"kind": "bits", "bits": 0, "modalities": [m]}) for m in ("image", "text"))
    assert image.captions(texts, ids) == texts
    assert text.captions(texts, ids) == expected
    assert image.glyphs(0, rows(3), ids) is not None and image.overlay() is not None
    assert text.glyphs(0, rows(3), ids) is None and text.overlay() is None


@pytest.mark.parametrize("learn", [learn_tokenizer, learn_word_tokenizer])
def test_a_tokenizer_that_has_seen_every_digit_tells_ids_apart(
    learn: Callable[[Iterable[str], int], Tokenizer],
) -> None:
    tokenizer = learn(with_every_digit(["a dog", "a cat on a mat"]), 400)
    texts = [with_digits("a dog", number) for number in (0, 1, 10, 123456, 987650)]
    ids = [encoding.ids for encoding in tokenizer.encode(texts)]
    assert len({tuple(one) for one in ids}) == len(ids)
    # One token a digit, so that captions grow little.
    (bare,) = tokenizer.encode(["a dog"])
    assert {len(one) - len(bare.ids) for one in ids} == {6}


@pytest.fixture(scope="module")
def overlay() -> DigitOverlay:
    return DigitOverlay(SEED, VARIANTS)


@pytest.mark.parametrize("size", [168, 200, 224])
@pytest.mark.parametrize("unit", [False, True])
def test_pasting_against_a_loop(overlay: DigitOverlay, size: int, unit: bool) -> None:
    generator = torch.Generator().manual_seed(size)
    images = torch.randint(0, 256, (4, 3, size, size), dtype=torch.uint8, generator=generator)
    glyphs = torch.randint(0, 10 * VARIANTS, (4, 6), generator=generator)
    given = images / 255.0 if unit else images
    bank, expected = torch.from_numpy(draw_glyphs(SEED, VARIANTS).reshape(-1, 28, 28)), given.clone()
    for row in range(4):
        for place in range(6):
            glyph, left = bank[int(glyphs[row, place])], place * (size // 6)
            expected[row, :, :28, left : left + 28] = glyph / 255.0 if unit else glyph
    before = given.clone()
    stamped = overlay(given, glyphs)
    assert stamped.dtype == given.dtype
    assert torch.equal(given, before)
    torch.testing.assert_close(stamped, expected)


def test_uint8_and_unit_range_agree_and_a_smaller_digit_keeps_its_ink(overlay: DigitOverlay) -> None:
    images = torch.randint(0, 256, (2, 3, 96, 96), dtype=torch.uint8, generator=torch.Generator())
    glyphs = torch.arange(12).view(2, 6)
    from_bytes = overlay(images, glyphs).float() / 255.0
    torch.testing.assert_close(overlay(images / 255.0, glyphs), from_bytes, atol=0.5 / 255 + 1e-6, rtol=0)
    black, glyphs = torch.zeros(1, 3, 224, 224), torch.tensor([[24, 0, 3, 6, 9, 12]])
    large = overlay(black, glyphs)[0, 0, :28, :28].mean()
    small = overlay(black[..., :84, :84], glyphs)[0, 0, :14, :14].mean()
    torch.testing.assert_close(small, large, rtol=0.03, atol=0)


@pytest.mark.parametrize(("size", "side"), [(167, 27), (64, 10), (32, 5), (7, 1), (6, 1)])
def test_small_images_get_small_digits(overlay: DigitOverlay, size: int, side: int) -> None:
    images = torch.full((1, 3, size, size), 0.25)
    stamped = overlay(images, torch.arange(6)[None])
    stride = size // 6
    changed = (stamped != images).any(dim=1)[0]
    assert not changed[side:].any()
    assert not changed[:, 6 * stride :].any()
    for place in range(6):
        assert changed[:side, place * stride : place * stride + side].any()
    assert 0 <= float(stamped.min()) <= float(stamped.max()) <= 1


def test_no_image_and_too_small_an_image(overlay: DigitOverlay) -> None:
    empty = overlay(torch.zeros(0, 3, 32, 32), torch.zeros(0, 6, dtype=torch.int64))
    assert empty.shape == (0, 3, 32, 32)
    with pytest.raises(DataError, match="Images of 5 pixels have no room for 6 digits"):
        overlay(torch.zeros(1, 3, 5, 5), torch.zeros(1, 6, dtype=torch.int64))


def test_a_fixed_row_has_the_same_digits_in_any_batch_and_text() -> None:
    unique = FixedShortcuts(ShortcutConfig.model_validate("unique"), images=20)
    first, second = unique.mark_texts(["a dog", "a cat"], 3)
    number = int(first.removeprefix("a dog ").replace(" ", ""))
    assert second == with_digits("a cat", number)
    assert unique.mark_texts(["a dog"], 4) == [with_digits("a dog", number + 1)]
    assert unique.mark_texts([], 4) == []
    images = torch.zeros(3, 3, 64, 64, dtype=torch.uint8)
    marked = unique.mark_images(images, [2, 7, 11])
    assert torch.equal(unique.mark_images(images[:2], [11, 2]), marked[[2, 0]])
    assert not torch.equal(marked[0], marked[1])
    assert not images.any()


@pytest.mark.slow
@pytest.mark.parametrize("modality", ["image", "text"])
def test_a_fixed_row_has_digits_in_one_modality_alone(modality: str) -> None:
    config = ShortcutConfig.model_validate({"kind": "bits", "bits": 2, "modalities": [modality]})
    fixed, images = FixedShortcuts(config, images=20), torch.zeros(1, 3, 64, 64, dtype=torch.uint8)
    assert fixed.mark_images(images, [0]).any() == (modality == "image")
    assert (fixed.mark_texts(["a"], 0) != ["a"]) == (modality == "text")
