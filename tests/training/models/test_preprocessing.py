import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.training.models.tiny import TEXTS, tiny_preprocessing
from training.imaging.resizing import Filter, Square, to_square
from training.models.config import ImagePreprocessingConfig
from training.models.preprocessing import ImagePreprocessing, TextPreprocessing, TokenBatch

LONG = "Two dogs run through tall green grass beside a red ball. " * 3


def gradient(width: int, height: int) -> Image.Image:
    """Red rises from left to right, green from top to bottom."""
    red, green = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([red, green, np.full_like(red, 77)], axis=-1).astype(np.uint8))


def build(**settings: object) -> ImagePreprocessing:
    return ImagePreprocessing(ImagePreprocessingConfig.model_validate({"size": 32, **settings}))


_DECODE = """
import os, threading
from PIL import Image
import torch
from training.models.config import ImagePreprocessingConfig
from training.imaging.resizing import Filter, Square, to_square
from training.models.preprocessing import ImagePreprocessing

torch.set_num_threads(4)
preprocessing = ImagePreprocessing(ImagePreprocessingConfig(size=256))
made = []
thread = threading.Thread(target=lambda: made.append(preprocessing.to_uint8(Image.new("RGB", (300, 300)))))
before = len(os.listdir("/proc/self/task"))
thread.start()
thread.join()
assert made[0].is_contiguous()
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.slow
def test_a_thread_that_decodes_begins_no_pool_of_threads() -> None:
    command = [sys.executable, "-c", _DECODE]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    # A pool has three; the thread itself may still be on its way out.
    assert int(shown.stdout) <= 1


@pytest.mark.parametrize("resize", ["crop", "squash", "pad"])
@pytest.mark.parametrize("size", [(64, 48), (10, 90), (32, 32), (1, 5000), (500, 3)])
def test_makes_a_square(resize: str, size: tuple[int, int]) -> None:
    image = build(resize=resize).to_uint8(gradient(*size))
    assert image.shape == (3, 32, 32)
    assert image.dtype == torch.uint8
    assert image.is_contiguous()


def test_crop_equals_resizing_the_short_side_and_cutting_the_centre() -> None:
    image = gradient(128, 64)
    expected = image.resize((64, 32), Image.Resampling.BICUBIC).crop((16, 0, 48, 32))
    found = build(resize="crop").to_uint8(image).permute(1, 2, 0).numpy()
    assert np.abs(found.astype(int) - np.array(expected).astype(int)).max() <= 1


def test_crop_of_a_larger_resized_image_cuts_its_centre() -> None:
    """VSE++'s 224 of 256 at an eighth of the scale; random crops start from the whole square."""
    image, preprocessing = gradient(160, 80), build(size=28, resize="crop", resize_to=32)
    resized = image.resize((64, 32), Image.Resampling.BICUBIC)
    found = preprocessing.to_uint8(image).permute(1, 2, 0).numpy()
    assert np.abs(found.astype(int) - np.array(resized.crop((18, 2, 46, 30))).astype(int)).max() <= 1
    whole = preprocessing.whole().to_uint8(image)
    assert torch.equal(whole, build(size=28, resize="crop").to_uint8(image))
    assert not np.array_equal(whole.permute(1, 2, 0).numpy(), found)


@pytest.mark.parametrize("resampling", ["bicubic", "bilinear", "lanczos"])
@pytest.mark.parametrize(("shortest", "difference"), [(60, 0), (1, 3)])
def test_the_shortest_edge_is_resized_and_the_centre_cropped_in_whole_pixels(
    shortest: int, difference: int, resampling: Filter
) -> None:
    """A long strip, of which the centre alone is computed, has other rounding."""
    generator = np.random.default_rng(0)
    for _ in range(40):
        width, height = (int(side) for side in generator.integers(shortest, 300, 2))
        size = int(generator.integers(8, 40))
        to = size + int(generator.integers(0, 12))
        image = Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8))
        short = min(width, height)
        sides = (to * width // short, to * height // short)
        left, top = ((side - size) // 2 for side in sides)
        whole = image.resize(sides, Image.Resampling[resampling.upper()])
        expected = np.asarray(whole.crop((left, top, left + size, top + size)), np.int16)
        found = np.asarray(to_square(image, Square(size, "shortest_edge", to, resampling)), np.int16)
        assert np.abs(found - expected).mean() <= difference


def test_a_long_strip_is_never_resized_as_a_whole() -> None:
    # Of 170 gigabytes.
    strip = Image.new("RGB", (2_000_000, 2), "red")
    square = to_square(strip, Square(224, "shortest_edge", 256))
    assert square.getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.parametrize("wrong", [{"resize": "pad"}, {"resize": "squash"}, {"resize_to": 31}])
def test_a_margin_that_no_crop_cuts_off_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="resize_to"):
        build(**{"resize_to": 36, **wrong})


def test_squash_keeps_the_whole_image() -> None:
    red = build(resize="squash").to_uint8(gradient(128, 64))[0]
    assert red[:, 0].max() < 6
    assert red[:, -1].min() > 249


def test_pad_keeps_the_whole_image_between_black_bars() -> None:
    image = build(resize="pad").to_uint8(gradient(128, 64))
    assert (image[:, :8] == 0).all()
    assert (image[:, 24:] == 0).all()
    assert (image[2, 8:24] == 77).all()
    assert image[0, 8:24, -1].min() > 249


def test_resizing_is_antialiased() -> None:
    checkers = np.indices((256, 256)).sum(axis=0) % 2 * 255
    image = Image.fromarray(np.repeat(checkers[..., None], 3, axis=-1).astype(np.uint8))
    values = build().to_uint8(image).float()
    assert values.std() < 2
    assert abs(values.mean() - 127.5) < 2


def test_an_image_of_the_right_size_keeps_its_pixels() -> None:
    image = gradient(32, 32)
    for resize in ("crop", "squash", "pad"):
        assert np.array_equal(build(resize=resize).to_uint8(image).permute(1, 2, 0).numpy(), np.array(image))


def test_normalises_a_batch() -> None:
    preprocessing = build(mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 2.0))
    batch = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 3, 1, 1)
    unit = preprocessing.to_unit(batch)
    torch.testing.assert_close(unit.flatten(), torch.tensor([0.0, 0.2, 1.0]))
    torch.testing.assert_close(preprocessing.normalise(unit).flatten(), torch.tensor([-1.0, -0.2, 0.5]))
    assert batch.flatten().tolist() == [0, 51, 255]


def test_pads_texts_to_the_longest() -> None:
    text = tiny_preprocessing().text
    batch = text(["x-ray", "two dogs run"])
    lengths = [len(encoding.ids) for encoding in text.tokenizer.encode(["x-ray", "two dogs run"])]
    assert batch.input_ids.shape == (2, max(lengths))
    assert batch.attention_mask.sum(dim=1).tolist() == lengths
    assert (batch.input_ids[batch.attention_mask == 0] == text.tokenizer.pad_id).all()
    assert batch.truncations == (None, None)


def test_a_long_text_is_cut_and_says_how() -> None:
    text = tiny_preprocessing(text={"max_tokens": 8}).text
    whole = text.tokenizer.encode([LONG])[0].ids
    batch = text([LONG, "x-ray"])
    assert batch.input_ids[0].tolist() == [*whole[:7], text.tokenizer.eos_id]
    truncation = batch.truncations[0]
    assert truncation is not None
    assert (truncation.tokens, truncation.kept) == (len(whole), 8)
    assert LONG.startswith(truncation.searched_text)
    assert text.tokenizer.encode([truncation.searched_text])[0].ids == batch.input_ids[0].tolist()
    assert batch.truncations[1] is None


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=60), st.integers(3, 12))
def test_never_more_than_the_limit_and_always_a_beginning_of_the_text(content: str, limit: int) -> None:
    batch = tiny_preprocessing(text={"max_tokens": limit}).text([content])
    assert 1 <= batch.input_ids.shape[1] <= limit
    truncation = batch.truncations[0]
    if truncation is not None:
        assert batch.input_ids.shape[1] == limit == truncation.kept < truncation.tokens
        assert content.startswith(truncation.searched_text)
        assert len(truncation.searched_text) < len(content) or not content.isascii()


def test_an_empty_list_of_texts() -> None:
    assert tiny_preprocessing().text([]).input_ids.shape == (0, 0)


def test_moves_to_a_device() -> None:
    batch = tiny_preprocessing().text(TEXTS).to("meta")
    assert batch.input_ids.is_meta
    assert batch.attention_mask.is_meta
    assert len(batch.truncations) == len(TEXTS)


def in_sentences(limit: int = 32) -> TextPreprocessing:
    return tiny_preprocessing(text={"max_tokens": limit, "sentences": True}).text


def sentences_of(batch: TokenBatch, row: int) -> list[list[int]]:
    """The ids of each sentence of a text."""
    assert batch.sentence_ids is not None
    numbers = batch.sentence_ids[row]
    return [batch.input_ids[row][numbers == number].tolist() for number in range(int(numbers.max()) + 1)]


def words(text: TextPreprocessing, sentence: str) -> list[int]:
    """The ids of a sentence without special tokens."""
    return text.tokenizer.encode([sentence])[0].ids[1:-1]


def test_each_token_knows_its_sentence() -> None:
    text = in_sentences()
    batch = text(["The cat sits. Two dogs run!", "x-ray"])
    assert sentences_of(batch, 0) == [words(text, "The cat sits."), words(text, "Two dogs run!")]
    assert sentences_of(batch, 1) == [words(text, "x-ray")]
    assert batch.sentence_ids is not None
    ends = (batch.input_ids == text.tokenizer.cls_id) | (batch.input_ids == text.tokenizer.eos_id)
    assert torch.equal(batch.sentence_ids < 0, ends | (batch.attention_mask == 0))


def test_sentences_can_be_given() -> None:
    text = in_sentences()
    given_sentences = ["The cat sits", "  ", "and the dogs run. A ball"]
    batch = text([given_sentences])
    assert sentences_of(batch, 0) == [words(text, given_sentences[0]), words(text, given_sentences[2])]
    letters = list("abcdefghijkl")
    assert sentences_of(text([letters]), 0) == [words(text, letter) for letter in letters]
    whole = tiny_preprocessing().text([given_sentences, "x"])
    assert whole.sentence_ids is None
    assert torch.equal(whole.input_ids[0], batch.input_ids[0])


@pytest.mark.parametrize("empty", ["", " \n ", [], [""], ()])
def test_a_text_without_words_is_one_sentence(empty: str | list[str]) -> None:
    batch = in_sentences()([empty, "The cat sits."])
    assert batch.sentence_ids is not None
    assert torch.equal(batch.sentence_ids[0] == 0, batch.attention_mask[0].bool())


def test_sentences_over_the_limit_are_cut_and_reported() -> None:
    text = in_sentences(limit=16)
    sentences = ["The cat sits.", LONG.strip(), "Never seen."]
    batch = text([sentences])
    joined = " ".join(sentences)
    assert batch.sentence_ids is not None
    assert batch.sentence_ids.shape == (1, 16)
    assert sorted(set(batch.sentence_ids.flatten().tolist())) == [-1, 0, 1]
    assert batch.sentence_ids[0, -1] == -1
    truncation = batch.truncations[0]
    assert truncation is not None
    assert joined.startswith(truncation.searched_text)
    assert (truncation.tokens, truncation.kept) == (len(text.tokenizer.encode([joined])[0].ids), 16)


def test_sentences_move_to_a_device() -> None:
    moved = in_sentences()(TEXTS).to("meta").sentence_ids
    assert moved is not None
    assert moved.is_meta


def test_bundles_of_before_decode_every_file_whole() -> None:
    before = ImagePreprocessingConfig.model_validate_json('{"size": 32, "resize": "squash"}')
    assert before.min_side is None
    assert before.model_copy(update={"scaled_decoding": True}).min_side == 40
    margin = {"size": 32, "resize_to": 40, "scaled_decoding": True}
    assert ImagePreprocessingConfig.model_validate(margin).min_side == 50
