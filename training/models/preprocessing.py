"""Preprocessing of images, texts and sounds, shared by training and the service."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from training.common.errors import MissingModalityError
from training.models.config import (
    AudioPreprocessingConfig,
    ImagePreprocessingConfig,
    PreprocessingConfig,
    TextPreprocessingConfig,
)
from training.models.image_input import to_pixels
from training.models.text_input import TextTokens, Tokenizer, Truncation

# Floor of a band's energy, so that silence has a logarithm.
_FLOOR = torch.finfo(torch.float32).eps


@dataclass(frozen=True, slots=True)
class SpectrogramBatch:
    """Normalised spectrograms (B, M, T) float32 and which frames (B, T) are real; the first always is.

    Values at padding are arbitrary.
    """

    values: Tensor
    mask: Tensor

    def to(self, device: torch.device | str) -> "SpectrogramBatch":
        """The same batch on a device."""
        return SpectrogramBatch(
            self.values.to(device, non_blocking=True), self.mask.to(device, non_blocking=True)
        )


def pad_spectrograms(spectrograms: Sequence[Tensor]) -> SpectrogramBatch:
    """A batch (B, M, T) of spectrograms (M, T_i), padded at the end to the longest."""
    lengths = torch.tensor([spectrogram.shape[1] for spectrogram in spectrograms])
    longest = int(lengths.max())
    values = torch.stack([functional.pad(s.float(), (0, longest - s.shape[1])) for s in spectrograms])
    return SpectrogramBatch(values, torch.arange(longest) < lengths[:, None])


class AudioPreprocessing:
    """Truncate a waveform and compute its normalised log-mel spectrogram; thread-safe."""

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
        # The first sample is its own predecessor.
        before = torch.cat([frames[:, :1], frames[:, :-1]], dim=1)
        frames = (frames - config.preemphasis * before) * self._window
        power = torch.fft.rfft(frames, config.n_fft).abs().square()
        energy = (self._filters @ power.T).clamp(min=_FLOOR)
        normalised: Tensor = (energy.log() - config.mean) / config.std
        return normalised


def sample_count(config: AudioPreprocessingConfig) -> int:
    """Maximum number of samples of a waveform that are used."""
    return round(config.seconds * config.sample_rate)


def frame_count(config: AudioPreprocessingConfig) -> int:
    """Maximum number T of frames."""
    return 1 + (sample_count(config) - config.window) // config.hop


def mel_filters(config: AudioPreprocessingConfig) -> Tensor:
    """Triangular filters (M, n_fft // 2 + 1) of height 1, equally wide in mel (O'Shaughnessy 1987).

    A band between two adjacent frequencies of the transform is empty and stays at the floor.
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


class ImagePreprocessing:
    """Resize images to squares, and normalise batches on the device."""

    def __init__(self, config: ImagePreprocessingConfig) -> None:
        self.config = config

    def to_uint8(self, image: Image.Image) -> Tensor:
        """An image as a uint8 tensor (3, S, S), resized with an antialiased filter."""
        return torch.from_numpy(to_pixels(image, self.config))

    def whole(self) -> "ImagePreprocessing":
        """A copy without centre crop, as input for random crops."""
        return ImagePreprocessing(self.config.model_copy(update={"resize_to": None}))

    def to_unit(self, images: Tensor) -> Tensor:
        """Images (B, 3, S, S) uint8 as float32 in [0, 1]."""
        return images.to(torch.float32).div_(255.0)

    def normalise(self, images: Tensor) -> Tensor:
        """Normalise images (B, 3, S, S) in [0, 1] with the mean and standard deviation of the tower."""
        mean, std = (
            torch.tensor(values, dtype=images.dtype).view(3, 1, 1).to(images.device, non_blocking=True)
            for values in (self.config.mean, self.config.std)
        )
        return (images - mean) / std


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Texts as tensors of ids; see `TokenArrays`.

    Attributes:
        sentence_count: Most sentences in a text of the whole batch; 0: computed from `sentence_ids`.
        local_counts: Number of real local features of each text; empty: unknown.
    """

    input_ids: Tensor
    attention_mask: Tensor
    truncations: tuple[Truncation | None, ...]
    sentence_ids: Tensor | None = None
    sentence_count: int = 0
    local_counts: tuple[int, ...] = ()

    def to(self, device: torch.device | str) -> "TokenBatch":
        """The same batch on a device."""
        sentences = self.sentence_ids
        return replace(
            self,
            input_ids=self.input_ids.to(device, non_blocking=True),
            attention_mask=self.attention_mask.to(device, non_blocking=True),
            sentence_ids=None if sentences is None else sentences.to(device, non_blocking=True),
        )


class TextPreprocessing:
    """Tokenize texts, truncate those over the token limit, and pad to the longest."""

    def __init__(self, config: TextPreprocessingConfig, tokenizer: Tokenizer) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self._tokens = TextTokens(config, tokenizer)

    def __call__(self, texts: Sequence[str | Sequence[str]]) -> TokenBatch:
        """Tokenize texts, each given whole or as its sentences."""
        tokens = self._tokens(texts)
        return TokenBatch(
            torch.from_numpy(tokens.input_ids),
            torch.from_numpy(tokens.attention_mask),
            tokens.truncations,
            None if tokens.sentence_ids is None else torch.from_numpy(tokens.sentence_ids),
            tokens.sentence_count,
            tokens.local_counts,
        )


class Preprocessing:
    """Preprocessing of one encoder; without a tokenizer, of one without a text tower."""

    def __init__(self, config: PreprocessingConfig, tokenizer: Tokenizer | None) -> None:
        self.config = config
        self.image = ImagePreprocessing(config.image)
        self.audio = AudioPreprocessing(config.audio)
        self._text = None if tokenizer is None else TextPreprocessing(config.text, tokenizer)

    @property
    def text(self) -> TextPreprocessing:
        """Preprocessing of texts.

        Raises:
            MissingModalityError: The encoder has no text tower.
        """
        if self._text is None:
            raise MissingModalityError("text")
        return self._text
