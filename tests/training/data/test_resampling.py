import math

import pytest
import torch
from torch import Tensor

from training.data.resampling import resample

RATES = [
    (44_100, 16_000),
    (48_000, 16_000),
    (22_050, 16_000),
    (8_000, 16_000),
    (16_000, 44_100),
    (11_127, 16_000),
]


def sine(frequency: float, rate: int, count: int) -> Tensor:
    return torch.sin(2 * math.pi * frequency * torch.arange(count, dtype=torch.float64) / rate).float()


@pytest.mark.parametrize(("rate", "target"), RATES)
@pytest.mark.parametrize("share", [0.03, 0.5, 0.85])
def test_a_tone_in_the_band_keeps_level_time_and_pitch(rate: int, target: int, share: float) -> None:
    frequency = share * min(rate, target) / 2
    found = resample(sine(frequency, rate, rate // 4), rate, target)
    expected = sine(frequency, target, len(found))
    assert abs(len(found) - target / 4) <= 2
    inner = slice(target // 32, -target // 32)
    torch.testing.assert_close(found[inner], expected[inner], atol=3e-4, rtol=0)


@pytest.mark.parametrize(("rate", "target"), [pair for pair in RATES if pair[0] > pair[1]])
def test_a_tone_above_the_new_band_is_taken_away_and_not_folded(rate: int, target: int) -> None:
    frequency = target / 2 * 1.05
    found = resample(sine(frequency, rate, rate // 4), rate, target)
    assert found[target // 32 : -target // 32].abs().max() < 1e-4


@pytest.mark.parametrize(("rate", "target"), RATES)
def test_a_constant_stays_itself_away_from_the_ends(rate: int, target: int) -> None:
    found = resample(torch.full((rate // 4,), 0.3), rate, target)
    torch.testing.assert_close(
        found[target // 32 : -target // 32],
        torch.tensor(0.3).expand(target // 4)[: len(found[target // 32 : -target // 32])],
    )


def test_an_impulse_stays_where_it_is() -> None:
    waveform = torch.zeros(4_410)
    waveform[2_205] = 1.0
    found = resample(waveform, 44_100, 16_000)
    assert len(found) == 1_600
    assert found.argmax() == 800
    torch.testing.assert_close(found[801:1_000], found[600:800].flip(0)[:199], atol=1e-6, rtol=0)


def test_is_linear() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 900, generator=generator)
    whole = resample(2 * first - second, 22_050, 16_000)
    parts = 2 * resample(first, 22_050, 16_000) - resample(second, 22_050, 16_000)
    torch.testing.assert_close(whole, parts, atol=1e-5, rtol=0)


def test_the_same_rate_changes_nothing_and_any_length_works() -> None:
    waveform = torch.randn(5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(resample(waveform, 16_000, 16_000), waveform)
    for count in (0, 1, 2, 3):
        found = resample(waveform[:count], 44_100, 16_000)
        assert len(found) == math.ceil(count * 160 / 441)
        assert found.isfinite().all()
