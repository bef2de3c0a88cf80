import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from transformers.audio_utils import mel_filter_bank, spectrogram, window_function

from training.models.config import AudioPreprocessingConfig
from training.models.sounds.spectrogram import (
    AudioPreprocessing,
    SpectrogramBatch,
    frame_count,
    mel_filters,
    pad_spectrograms,
    sample_count,
)

RATE = 16_000


def noise(count: int) -> Tensor:
    return 0.1 * torch.randn(count, generator=torch.Generator().manual_seed(0))


def test_filters_are_triangles_over_equal_steps_of_mel() -> None:
    # Two bands from 0 to 4000 Hz: mel(4000) = 1127 ln(1 + 4000 / 700), edges at thirds of it.
    config = AudioPreprocessingConfig(
        sample_rate=8_000, n_fft=512, window=400, mels=2, min_frequency=0, max_frequency=4_000
    )
    filters = mel_filters(config)
    top = 1127 * math.log(1 + 4000 / 700)
    assert filters.shape == (2, 257)
    for place, frequency in ((0, 0.0), (40, 625.0), (100, 1562.5), (150, 2343.75), (256, 4000.0)):
        mel = 1127 * math.log(1 + frequency / 700)
        for band in (0, 1):
            expected = max(0.0, 1 - abs(mel - top * (band + 1) / 3) / (top / 3))
            assert filters[band, place].item() == pytest.approx(expected, abs=1e-6)
    # Between the two peaks the triangles add up to one.
    low, high = (700 * (math.exp(top * part / 3 / 1127) - 1) for part in (1, 2))
    between = slice(math.ceil(low / 8_000 * 512), math.floor(high / 8_000 * 512))
    torch.testing.assert_close(filters[:, between].sum(dim=0), torch.ones(between.stop - between.start))


@pytest.mark.parametrize("settings", [{}, {"mels": 40, "hop": 200, "max_frequency": 7_000.0}])
def test_equals_the_reference_of_transformers(settings: dict[str, float]) -> None:
    config = AudioPreprocessingConfig.model_validate(settings)
    waveform = noise(5_000)
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
        waveform.numpy(),
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
    found = AudioPreprocessing(config).to_spectrogram(waveform)
    np.testing.assert_allclose(found.numpy(), (expected + 4.2677393) / (2 * 4.5689974), atol=1e-4)


@pytest.mark.parametrize("frequency", [300.0, 1_000.0, 3_500.0, 7_000.0])
def test_a_pure_tone_is_loudest_in_the_band_around_it(frequency: float) -> None:
    config = AudioPreprocessingConfig(mels=40)
    tone = torch.sin(2 * math.pi * frequency * torch.arange(4_000) / RATE)
    found = AudioPreprocessing(config).to_spectrogram(tone)
    low, high = (1127 * math.log(1 + end / 700) for end in (20, 8_000))
    centres = [700 * (math.exp((low + (high - low) * (band + 1) / 41) / 1127) - 1) for band in range(40)]
    nearest = min(range(40), key=lambda band: abs(centres[band] - frequency))
    assert (found.argmax(dim=0) - nearest).abs().max() <= 1
    assert (found.mean(dim=1).argmax() - nearest).abs() <= 1


def test_a_later_sound_is_later_frames() -> None:
    preprocessing = AudioPreprocessing(AudioPreprocessingConfig())
    waveform = torch.zeros(8_000)
    waveform[4_000:4_400] = noise(400)
    loud = preprocessing.to_spectrogram(waveform).mean(dim=0)
    assert loud.argmax() * 160 in range(4_000 - 200, 4_400 - 100)
    moved = preprocessing.to_spectrogram(torch.cat([torch.zeros(1_600), waveform]))
    torch.testing.assert_close(moved[:, 10:], preprocessing.to_spectrogram(waveform))


def test_louder_by_ten_adds_two_logs_of_ten() -> None:
    preprocessing = AudioPreprocessing(AudioPreprocessingConfig(mels=20))
    difference = preprocessing.to_spectrogram(10 * noise(4_000)) - preprocessing.to_spectrogram(noise(4_000))
    torch.testing.assert_close(
        difference * 9.1379948, torch.full_like(difference, 2 * math.log(10)), atol=1e-3, rtol=0
    )


def test_lengths_are_cut_and_short_sounds_filled() -> None:
    config = AudioPreprocessingConfig(seconds=0.1)
    preprocessing = AudioPreprocessing(config)
    assert (sample_count(config), frame_count(config)) == (1_600, 8)
    assert preprocessing.to_spectrogram(noise(5_000)).shape == (128, 8)
    assert torch.equal(preprocessing.to_spectrogram(noise(5_000)), preprocessing.to_spectrogram(noise(1_600)))
    for count in (1, 399, 400):
        assert preprocessing.to_spectrogram(noise(count)).shape == (128, 1)
    assert preprocessing.to_spectrogram(torch.zeros(1_000)).isfinite().all()


def test_the_defaults_fill_no_more_than_asts_frames() -> None:
    assert frame_count(AudioPreprocessingConfig()) == 1_022


def test_a_batch_is_padded_behind() -> None:
    batch = pad_spectrograms([torch.ones(2, 3), torch.full((2, 1), 5.0, dtype=torch.float16)])
    assert isinstance(batch, SpectrogramBatch)
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
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        AudioPreprocessingConfig.model_validate(settings)
