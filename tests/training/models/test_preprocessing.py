"""What the towers take: squares of pixels, ids of texts with their sentences, and log-mel spectrograms."""

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError
from torch import Tensor
from transformers.audio_utils import mel_filter_bank, spectrogram, window_function

from tests.training.models.tiny import tiny_preprocessing
from training.imaging.resizing import Filter, Square, to_square
from training.models.config import AudioPreprocessingConfig, ImagePreprocessingConfig
from training.models.preprocessing import (
    AudioPreprocessing,
    ImagePreprocessing,
    TextPreprocessing,
    TokenBatch,
    frame_count,
    mel_filters,
    pad_spectrograms,
    sample_count,
)

LONG = "Two dogs run through tall green grass beside a red ball. " * 3


def gradient(width: int, height: int) -> Image.Image:
    """Red rises from left to right, green from top to bottom."""
    red, green = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([red, green, np.full_like(red, 77)], axis=-1).astype(np.uint8))


def build(**settings: object) -> ImagePreprocessing:
    return ImagePreprocessing(ImagePreprocessingConfig.model_validate({"size": 32, **settings}))


def assert_alike(image: Tensor, expected: Image.Image) -> None:
    """Up to rounding."""
    difference = image.permute(1, 2, 0).numpy().astype(int) - np.array(expected).astype(int)
    assert np.abs(difference).max() <= 1


_DECODE = """
import os, threading
from PIL import Image
import torch
from training.models.config import ImagePreprocessingConfig
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
    assert (image.shape, image.dtype) == ((3, 32, 32), torch.uint8)
    assert image.is_contiguous()
    if size == (32, 32):
        assert_alike(image, gradient(*size))


def test_a_crop_resizes_the_short_side_and_cuts_the_centre() -> None:
    """VSE++'s 224 of 256 at an eighth of the scale; random crops start from the whole square."""
    image, resized = gradient(160, 80), gradient(160, 80).resize((64, 32), Image.Resampling.BICUBIC)
    whole = build(resize="crop").to_uint8(image)
    assert_alike(whole, resized.crop((16, 0, 48, 32)))
    margin = build(size=28, resize="crop", resize_to=32)
    assert_alike(margin.to_uint8(image), resized.crop((18, 2, 46, 30)))
    assert torch.equal(margin.whole().to_uint8(image), build(size=28, resize="crop").to_uint8(image))


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
        sides = (to * width // min(width, height), to * height // min(width, height))
        left, top = ((side - size) // 2 for side in sides)
        whole = image.resize(sides, Image.Resampling[resampling.upper()])
        expected = np.asarray(whole.crop((left, top, left + size, top + size)), np.int16)
        actual = np.asarray(to_square(image, Square(size, "shortest_edge", to, resampling)), np.int16)
        assert np.abs(actual - expected).mean() <= difference


def test_a_long_strip_is_never_resized_as_a_whole() -> None:
    # Of 170 gigabytes.
    strip = Image.new("RGB", (2_000_000, 2), "red")
    assert to_square(strip, Square(224, "shortest_edge", 256)).getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.parametrize("wrong", [{"resize": "pad"}, {"resize": "squash"}, {"resize_to": 31}])
def test_a_margin_that_no_crop_cuts_off_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="resize_to"):
        build(**{"resize_to": 36, **wrong})


def test_squash_and_pad_keep_the_whole_image() -> None:
    red = build(resize="squash").to_uint8(gradient(128, 64))[0]
    assert red[:, 0].max() < 6
    assert red[:, -1].min() > 249
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


def test_normalises_a_batch() -> None:
    preprocessing = build(mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 2.0))
    batch = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 3, 1, 1)
    unit = preprocessing.to_unit(batch)
    torch.testing.assert_close(unit.flatten(), torch.tensor([0.0, 0.2, 1.0]))
    torch.testing.assert_close(preprocessing.normalise(unit).flatten(), torch.tensor([-1.0, -0.2, 0.5]))
    assert batch.flatten().tolist() == [0, 51, 255]


def test_bundles_of_before_decode_every_file_whole() -> None:
    before = ImagePreprocessingConfig.model_validate_json('{"size": 32, "resize": "squash"}')
    assert before.min_side is None
    assert before.model_copy(update={"scaled_decoding": True}).min_side == 40
    margin = {"size": 32, "resize_to": 40, "scaled_decoding": True}
    assert ImagePreprocessingConfig.model_validate(margin).min_side == 50


def test_texts_are_padded_to_the_longest() -> None:
    text = tiny_preprocessing().text
    batch = text(["x-ray", "two dogs run"])
    lengths = [len(encoding.ids) for encoding in text.tokenizer.encode(["x-ray", "two dogs run"])]
    assert batch.input_ids.shape == (2, max(lengths))
    assert batch.attention_mask.sum(dim=1).tolist() == lengths
    assert (batch.input_ids[batch.attention_mask == 0] == text.tokenizer.pad_id).all()
    assert batch.truncations == (None, None)
    assert text([]).input_ids.shape == (0, 0)


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


def in_sentences(limit: int = 32) -> TextPreprocessing:
    return tiny_preprocessing(text={"max_tokens": limit, "sentences": True}).text


def numbers_of(batch: TokenBatch) -> Tensor:
    assert batch.sentence_ids is not None
    return batch.sentence_ids


def sentences_of(batch: TokenBatch, row: int = 0) -> list[list[int]]:
    """The ids of each sentence of a text."""
    numbers = numbers_of(batch)[row]
    return [batch.input_ids[row][numbers == number].tolist() for number in range(int(numbers.max()) + 1)]


def words(text: TextPreprocessing, *sentences: str) -> list[list[int]]:
    """The ids of sentences without special tokens."""
    return [encoding.ids[1:-1] for encoding in text.tokenizer.encode(sentences)]


def test_each_token_knows_its_sentence() -> None:
    text = in_sentences()
    batch = text(["The cat sits. Two dogs run!", "x-ray"])
    assert sentences_of(batch) == words(text, "The cat sits.", "Two dogs run!")
    assert sentences_of(batch, 1) == words(text, "x-ray")
    ends = (batch.input_ids == text.tokenizer.cls_id) | (batch.input_ids == text.tokenizer.eos_id)
    assert torch.equal(numbers_of(batch) < 0, ends | (batch.attention_mask == 0))
    moved = batch.to("meta")
    assert all(part.is_meta for part in (moved.input_ids, moved.attention_mask, numbers_of(moved)))
    assert len(moved.truncations) == 2


def test_sentences_can_be_given() -> None:
    text, given_sentences = in_sentences(), ["The cat sits", "  ", "and the dogs run. A ball"]
    batch = text([given_sentences])
    assert sentences_of(batch) == words(text, given_sentences[0], given_sentences[2])
    letters = list("abcdefghijkl")
    assert sentences_of(text([letters])) == words(text, *letters)
    whole = tiny_preprocessing().text([given_sentences, "x"])
    assert whole.sentence_ids is None
    assert torch.equal(whole.input_ids[0], batch.input_ids[0])


@pytest.mark.parametrize("empty", ["", " \n ", [], [""], ()])
def test_a_text_without_words_is_one_sentence(empty: str | list[str]) -> None:
    batch = in_sentences()([empty, "The cat sits."])
    assert torch.equal(numbers_of(batch)[0] == 0, batch.attention_mask[0].bool())


def test_sentences_over_the_limit_are_cut_and_reported() -> None:
    text = in_sentences(limit=16)
    sentences = ["The cat sits.", LONG.strip(), "Never seen."]
    batch, joined = text([sentences]), " ".join(sentences)
    assert numbers_of(batch).shape == (1, 16)
    assert sorted(set(numbers_of(batch).flatten().tolist())) == [-1, 0, 1]
    assert numbers_of(batch)[0, -1] == -1
    truncation = batch.truncations[0]
    assert truncation is not None
    assert joined.startswith(truncation.searched_text)
    assert (truncation.tokens, truncation.kept) == (len(text.tokenizer.encode([joined])[0].ids), 16)


RATE = 16_000
DEVIATION = 9.1379948


def noise(count: int) -> Tensor:
    return 0.1 * torch.randn(count, generator=torch.Generator().manual_seed(0))


def spectrogram_of(waveform: Tensor, **settings: Any) -> Tensor:
    return AudioPreprocessing(AudioPreprocessingConfig(**settings)).to_spectrogram(waveform)


def test_filters_are_triangles_over_equal_steps_of_mel() -> None:
    # Two bands from 0 to 4000 Hz: mel(4000) = 1127 ln(1 + 4000 / 700), edges at thirds of it.
    config = AudioPreprocessingConfig(sample_rate=8_000, mels=2, min_frequency=0, max_frequency=4_000)
    filters = mel_filters(config)
    top = 1127 * math.log(1 + 4000 / 700)
    assert filters.shape == (2, 257)
    for place, frequency in ((0, 0.0), (40, 625.0), (100, 1562.5), (150, 2343.75), (256, 4000.0)):
        mel = 1127 * math.log(1 + frequency / 700)
        for band in (0, 1):
            expected = max(0.0, 1 - abs(mel - top * (band + 1) / 3) / (top / 3))
            assert filters[band, place].item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("settings", [{}, {"mels": 40, "hop": 200, "max_frequency": 7_000.0}])
def test_a_spectrogram_equals_the_reference_of_transformers(settings: dict[str, Any]) -> None:
    config = AudioPreprocessingConfig(**settings)
    bank = mel_filter_bank(
        num_frequency_bins=257,
        num_mel_filters=config.mels,
        min_frequency=20,
        max_frequency=config.max_frequency or 8_000,
        sampling_rate=RATE,
        norm=None,
        mel_scale="kaldi",
        triangularize_in_mel_space=True,
    )
    expected = spectrogram(
        noise(5_000).numpy(),
        window_function(400, "hann", periodic=False),
        frame_length=400,
        hop_length=config.hop,
        fft_length=512,
        power=2.0,
        center=False,
        preemphasis=0.97,
        mel_filters=bank,
        log_mel="log",
        mel_floor=1.192092955078125e-07,
        remove_dc_offset=True,
    )
    actual = spectrogram_of(noise(5_000), **settings)
    np.testing.assert_allclose(actual.numpy(), (expected + 4.2677393) / DEVIATION, atol=1e-4)


def test_a_later_sound_is_later_frames_and_a_louder_one_adds_to_the_logs() -> None:
    waveform = torch.zeros(8_000)
    waveform[4_000:4_400] = noise(400)
    actual = spectrogram_of(waveform)
    assert actual.mean(dim=0).argmax() * 160 in range(4_000 - 200, 4_400 - 100)
    torch.testing.assert_close(spectrogram_of(torch.cat([torch.zeros(1_600), waveform]))[:, 10:], actual)
    difference = spectrogram_of(10 * noise(4_000), mels=20) - spectrogram_of(noise(4_000), mels=20)
    louder = torch.full_like(difference, 2 * math.log(10))
    torch.testing.assert_close(difference * DEVIATION, louder, atol=1e-3, rtol=0)


def test_lengths_are_cut_and_short_sounds_filled() -> None:
    config = AudioPreprocessingConfig(seconds=0.1)
    assert (sample_count(config), frame_count(config)) == (1_600, 8)
    # The defaults fill no more than AST's frames.
    assert frame_count(AudioPreprocessingConfig()) == 1_022
    long, cut = (spectrogram_of(noise(5_000)[:count], seconds=0.1) for count in (5_000, 1_600))
    assert long.shape == (128, 8)
    assert torch.equal(long, cut)
    for count in (1, 399, 400):
        assert spectrogram_of(noise(count)).shape == (128, 1)
    assert spectrogram_of(torch.zeros(1_000)).isfinite().all()


def test_a_batch_of_spectrograms_is_padded_behind() -> None:
    batch = pad_spectrograms([torch.ones(2, 3), torch.full((2, 1), 5.0, dtype=torch.float16)])
    assert batch.values.dtype == torch.float32
    assert batch.values[1].tolist() == [[5, 0, 0], [5, 0, 0]]
    assert batch.mask.tolist() == [[True, True, True], [True, False, False]]
    assert batch.to("cpu").mask.equal(batch.mask)


@pytest.mark.parametrize(
    "settings",
    [
        {"n_fft": 256},
        {"seconds": 0.01},
        {"min_frequency": 9_000},
        {"max_frequency": 9_000.0},
        {"min_frequency": 500, "max_frequency": 400},
        {"mels": 0},
        {"hops": 3},
    ],
)
def test_settings_of_sounds_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        AudioPreprocessingConfig.model_validate(settings)
