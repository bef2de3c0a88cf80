"""The dual encoder: an image tower and those of texts and of sounds, with heads into one space."""

from collections.abc import Iterator

from torch import Tensor, nn

from training.errors import MissingModalityError, RecipeError
from training.models.audio_towers import AudioTower, build_audio_tower, check_spectrograms
from training.models.config import DualEncoderConfig, PreprocessingConfig, TowerConfig
from training.models.features import Features, Modality, ModalityFeatures
from training.models.heads import build_head
from training.models.image_towers import ImageTower, build_image_tower
from training.models.preprocessing import TokenBatch
from training.models.spectrogram import SpectrogramBatch
from training.models.text_towers import TextTower, build_text_tower
from training.models.tokenizer import Tokenizer
from training.models.tower import TowerOutput

Tower = ImageTower | TextTower | AudioTower


class DualEncoder(nn.Module):
    """Maps images, texts and sounds into one space of `config.dim` numbers; embeddings are not normalised.

    Attributes:
        config: Resolved: it rebuilds the architecture without any pretrained folder.
    """

    def __init__(
        self,
        config: DualEncoderConfig,
        image: ImageTower,
        text: TextTower | None = None,
        audio: AudioTower | None = None,
    ) -> None:
        super().__init__()
        towers = {"image": image, "text": text, "audio": audio}
        self.config = config.model_copy(
            update={name: None if tower is None else tower.config for name, tower in towers.items()}
        )
        self.image = image
        self.text = text
        self.audio = audio
        self.image_head = build_head(config.image.head, image.width, config.dim, image.projection)
        self.text_head = _head(config.text, text, config.dim)
        self.audio_head = _head(config.audio, audio, config.dim)
        self.image_local_head: nn.Module | None = None
        self.text_local_head: nn.Module | None = None
        self.audio_local_head: nn.Module | None = None
        if config.local_features:
            self.image_local_head = _local_head(config.image, image, config.dim)
            self.text_local_head = _local_head(config.text, text, config.dim)
            self.audio_local_head = _local_head(config.audio, audio, config.dim)

    @property
    def modalities(self) -> frozenset[Modality]:
        """What it has towers for."""
        others: dict[Modality, nn.Module | None] = {"text": self.text, "audio": self.audio}
        return frozenset(["image", *(name for name, tower in others.items() if tower is not None)])

    def encode_image(self, pixels: Tensor) -> ModalityFeatures:
        """Features of normalised images (B, 3, S, S)."""
        return _project(self.image(pixels), self.image_head, self.image_local_head)

    def encode_text(self, tokens: TokenBatch) -> ModalityFeatures:
        """Features of a batch of texts.

        Raises:
            MissingModalityError: The model has no text encoder.
        """
        if self.text is None or self.text_head is None:
            raise MissingModalityError("text")
        return _project(self.text(tokens), self.text_head, self.text_local_head)

    def encode_audio(self, spectrograms: SpectrogramBatch) -> ModalityFeatures:
        """Features of a batch of sounds.

        Raises:
            MissingModalityError: The model has no audio encoder.
        """
        if self.audio is None or self.audio_head is None:
            raise MissingModalityError("audio")
        return _project(self.audio(spectrograms), self.audio_head, self.audio_local_head)

    def forward(
        self,
        pixels: Tensor | None = None,
        tokens: TokenBatch | None = None,
        spectrograms: SpectrogramBatch | None = None,
    ) -> Features:
        """Features of what is given of aligned images, texts and sounds."""
        features: dict[Modality, ModalityFeatures] = {}
        if pixels is not None:
            features["image"] = self.encode_image(pixels)
        if tokens is not None:
            features["text"] = self.encode_text(tokens)
        if spectrograms is not None:
            features["audio"] = self.encode_audio(spectrograms)
        return Features(features)

    def tower_parameters(self) -> Iterator[nn.Parameter]:
        """The trainable parameters of the backbones, which a pretrained model brings."""
        for tower in (self.image, self.text, self.audio):
            if tower is not None:
                yield from (p for p in tower.backbone.parameters() if p.requires_grad)

    def head_parameters(self) -> Iterator[nn.Parameter]:
        """All other trainable parameters: poolings and heads."""
        towers = {id(parameter) for parameter in self.tower_parameters()}
        yield from (
            parameter
            for parameter in self.parameters()
            if parameter.requires_grad and id(parameter) not in towers
        )

    def check_preprocessing(self, config: PreprocessingConfig) -> None:
        """Make sure that the towers can take what this preprocessing makes.

        Raises:
            RecipeError: The images have another size, the texts or sounds may be too long, or the sounds have
                another number of bands.
        """
        size = self.image.backbone.image_size
        if size is not None and size != config.image.size:
            raise RecipeError(
                f"The image tower takes images of {size} pixels, not {config.image.size}: "
                f"set preprocessing.image.size to {size}."
            )
        if self.text is not None and config.text.max_tokens > self.text.backbone.max_tokens:
            longest = self.text.backbone.max_tokens
            raise RecipeError(
                f"The text tower takes {longest} tokens, not {config.text.max_tokens}: "
                f"set preprocessing.text.max_tokens to {longest} or less."
            )
        if self.audio is not None:
            check_spectrograms(self.audio.backbone, config.audio)


def _head(config: TowerConfig | None, tower: Tower | None, dim: int) -> nn.Sequential | None:
    if config is None or tower is None:
        return None
    return build_head(config.head, tower.width, dim, tower.projection)


def _local_head(config: TowerConfig | None, tower: Tower | None, dim: int) -> nn.Sequential | None:
    return None if config is None or tower is None else build_head(config.head, tower.local_width, dim)


def _project(output: TowerOutput, head: nn.Module, local_head: nn.Module | None) -> ModalityFeatures:
    if local_head is None:
        return ModalityFeatures(head(output.pooled))
    return ModalityFeatures(
        head(output.pooled),
        local=local_head(output.local),
        local_mask=output.local_mask,
        local_weights=output.local_weights,
    )


def build_dual_encoder(
    config: DualEncoderConfig, tokenizer: Tokenizer | None, *, load_pretrained: bool
) -> DualEncoder:
    """The dual encoder of a configuration.

    Args:
        config: Of the towers, their heads and the space.
        tokenizer: Whose ids the text tower reads; None for a model without one.
        load_pretrained: Load the weights that the towers' `pretrained` name; False: random weights.

    Raises:
        RecipeError: A setting does not fit.
    """
    image = build_image_tower(config.image, load_pretrained=load_pretrained)
    text = audio = None
    if config.text is not None:
        if tokenizer is None:
            raise RecipeError("A model of texts needs a tokenizer: learn one from the train split.")
        text = build_text_tower(config.text, tokenizer, load_pretrained=load_pretrained)
    if config.audio is not None:
        audio = build_audio_tower(config.audio, load_pretrained=load_pretrained)
    return DualEncoder(config, image, text, audio)
