"""Log-mel spectrograms of sounds, computed as Kaldi's filter banks and as AST expects them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from training.models.config import AudioPreprocessingConfig

# The smallest energy of a band, so that silence has a logarithm.
_FLOOR = torch.finfo(torch.float32).eps


@dataclass(frozen=True, slots=True)
class SpectrogramBatch:
    """Spectrograms of a batch.

    Attributes:
        values: (B, M, T) float32, normalised; the numbers at padding mean nothing.
        mask: (B, T) bool, True where a frame is real; the first frame always is.
    """

    values: Tensor
    mask: Tensor

    def to(self, device: torch.device | str) -> "SpectrogramBatch":
        """The same batch on a device."""
        return SpectrogramBatch(
            self.values.to(device, non_blocking=True), self.mask.to(device, non_blocking=True)
        )


def pad_spectrograms(spectrograms: Sequence[Tensor]) -> SpectrogramBatch:
    """A batch (B, M, T) of spectrograms (M, T_i), padded behind to the longest."""
    lengths = torch.tensor([spectrogram.shape[1] for spectrogram in spectrograms])
    longest = int(lengths.max())
    values = torch.stack([functional.pad(s.float(), (0, longest - s.shape[1])) for s in spectrograms])
    return SpectrogramBatch(values, torch.arange(longest) < lengths[:, None])


class AudioPreprocessing:
    """Cuts a waveform to its length and computes its normalised log-mel spectrogram; thread-safe."""

    def __init__(self, config: AudioPreprocessingConfig) -> None:
        self.config = config
        self._filters = mel_filters(config)
        self._window = torch.hann_window(config.window, periodic=False)

    def to_spectrogram(self, waveform: Tensor) -> Tensor:
        """The spectrogram (M, T) of a mono waveform (N,) from -1 to 1 at `sample_rate`, N > 0."""
        config = self.config
        samples = waveform[: sample_count(config)].float()
        samples = functional.pad(samples, (0, max(0, config.window - len(samples))))
        frames = samples.unfold(0, config.window, config.hop)
        frames = frames - frames.mean(dim=1, keepdim=True)
        # The sample before the first is taken to be the first.
        before = torch.cat([frames[:, :1], frames[:, :-1]], dim=1)
        frames = (frames - config.preemphasis * before) * self._window
        power = torch.fft.rfft(frames, config.n_fft).abs().square()
        energy = (self._filters @ power.T).clamp(min=_FLOOR)
        normalised: Tensor = (energy.log() - config.mean) / config.std
        return normalised


def sample_count(config: AudioPreprocessingConfig) -> int:
    """Most samples of a waveform that are looked at."""
    return round(config.seconds * config.sample_rate)


def frame_count(config: AudioPreprocessingConfig) -> int:
    """Most frames T of a spectrogram."""
    return 1 + (sample_count(config) - config.window) // config.hop


def mel_filters(config: AudioPreprocessingConfig) -> Tensor:
    """Triangular filters (M, n_fft // 2 + 1) of height 1, equally wide in mel (O'Shaughnessy 1987).

    A band between two frequencies of the transform is empty and stays at the floor.
    """
    bins = torch.arange(config.n_fft // 2 + 1, dtype=torch.float64) * config.sample_rate / config.n_fft
    ends = torch.tensor([config.min_frequency, config.max_frequency or config.sample_rate / 2])
    low, high = _mel(ends.double()).tolist()
    edges = torch.linspace(low, high, config.mels + 2, dtype=torch.float64)
    step = (high - low) / (config.mels + 1)
    distance = (_mel(bins)[None, :] - edges[1:-1, None]).abs() / step
    filters: Tensor = (1 - distance).clamp(min=0).float()
    return filters


def _mel(frequency: Tensor) -> Tensor:
    return 1127 * torch.log1p(frequency / 700)
