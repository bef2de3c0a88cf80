"""From images and texts to what the towers take: one object for trainer, bulk embedder and service."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from PIL import Image
from torch import Tensor

from training.common.errors import MissingModalityError
from training.models.config import ImagePreprocessingConfig, PreprocessingConfig, TextPreprocessingConfig
from training.models.inputs.images import to_pixels
from training.models.inputs.texts import TextTokens, Truncation
from training.models.inputs.tokenizer import Tokenizer
from training.models.sounds.spectrogram import AudioPreprocessing


class ImagePreprocessing:
    """Resizes to a square, and normalises in batches on the device."""

    def __init__(self, config: ImagePreprocessingConfig) -> None:
        self.config = config

    def to_uint8(self, image: Image.Image) -> Tensor:
        """An image as a uint8 tensor (3, S, S), resized with an antialiased filter."""
        return torch.from_numpy(to_pixels(image, self.config))

    def whole(self) -> "ImagePreprocessing":
        """The same without the margin that a centre crop cuts off, for random crops to be taken from."""
        return ImagePreprocessing(self.config.model_copy(update={"resize_to": None}))

    def to_unit(self, images: Tensor) -> Tensor:
        """Images (B, 3, S, S) uint8 as float32 in [0, 1]."""
        return images.to(torch.float32).div_(255.0)

    def normalise(self, images: Tensor) -> Tensor:
        """Images (B, 3, S, S) in [0, 1] with the mean and standard deviation that the tower expects."""
        mean, std = (
            torch.tensor(values, dtype=images.dtype).view(3, 1, 1).to(images.device, non_blocking=True)
            for values in (self.config.mean, self.config.std)
        )
        return (images - mean) / std


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Texts as tensors of ids; see `TokenArrays`.

    Attributes:
        input_ids: (B, T) int64.
        attention_mask: (B, T) int64.
        truncations: Of each text.
        sentence_ids: (B, T) int64.
        sentence_count: Of the text with the most; a part of the batch keeps it. 0: as many as there are.
        local_counts: Number of real local features of each text; empty: not known without a look at the ids.
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
    """Tokenises texts, cuts those over the limit of tokens, and pads to the longest."""

    def __init__(self, config: TextPreprocessingConfig, tokenizer: Tokenizer) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self._tokens = TextTokens(config, tokenizer)

    def __call__(self, texts: Sequence[str | Sequence[str]]) -> TokenBatch:
        """Texts as a batch of ids that says what was cut.

        Args:
            texts: Each whole, or as its sentences, which are joined by spaces.
        """
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
    """Images, texts and sounds of one encoder; without a tokenizer, of one that has no text tower."""

    def __init__(self, config: PreprocessingConfig, tokenizer: Tokenizer | None) -> None:
        self.config = config
        self.image = ImagePreprocessing(config.image)
        self.audio = AudioPreprocessing(config.audio)
        self._text = None if tokenizer is None else TextPreprocessing(config.text, tokenizer)

    @property
    def text(self) -> TextPreprocessing:
        """Of texts.

        Raises:
            MissingModalityError: The encoder has no text tower.
        """
        if self._text is None:
            raise MissingModalityError("text")
        return self._text
