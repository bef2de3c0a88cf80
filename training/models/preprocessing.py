"""From images and texts to what the towers take: one object for trainer, bulk embedder and service."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from PIL import Image
from torch import Tensor

from training.errors import MissingModalityError
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
        mean = torch.tensor(self.config.mean, device=images.device, dtype=images.dtype).view(3, 1, 1)
        std = torch.tensor(self.config.std, device=images.device, dtype=images.dtype).view(3, 1, 1)
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
    """

    input_ids: Tensor
    attention_mask: Tensor
    truncations: tuple[Truncation | None, ...]
    sentence_ids: Tensor | None = None
    sentence_count: int = 0

    def to(self, device: torch.device | str) -> "TokenBatch":
        """The same batch on a device."""
        return replace(
            self,
            input_ids=self.input_ids.to(device),
            attention_mask=self.attention_mask.to(device),
            sentence_ids=None if self.sentence_ids is None else self.sentence_ids.to(device),
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
