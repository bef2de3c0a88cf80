"""The dual encoder: an image tower and those of texts and of sounds, with heads into one space."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from training.common.errors import MissingModalityError, RecipeError
from training.models.config import DualEncoderConfig, Modality, PreprocessingConfig, TowerConfig
from training.models.features import Features, ModalityFeatures, Source
from training.models.heads.projection import (
    ConceptHead,
    UniqueBranch,
    build_head,
    build_unique_branch,
    check_fork,
    local_norm,
    project_entries,
    retrieved,
)
from training.models.images.towers import ImageTower, build_image_tower, check_image_size
from training.models.inputs.tokenizer import Tokenizer
from training.models.logits import PretrainedLogits
from training.models.preprocessing import TokenBatch
from training.models.sounds.spectrogram import SpectrogramBatch
from training.models.sounds.towers import AudioTower, build_audio_tower, check_spectrograms
from training.models.texts.towers import TextTower, build_text_tower
from training.models.tower import Tower, TowerOutput

_STATISTICS: Final = ("running_mean", "running_var", "num_batches_tracked")


class DualEncoder(nn.Module):
    """Maps images, texts and sounds into one space of `config.dim` numbers; embeddings are not normalised.

    Attributes:
        config: Resolved: it rebuilds the architecture without any pretrained folder.
    """

    def __init__(
        self,
        config: DualEncoderConfig,
        image: ImageTower | None,
        text: TextTower | None = None,
        audio: AudioTower | None = None,
    ) -> None:
        super().__init__()
        towers = {"image": image, "text": text, "audio": audio}
        self.config = config.model_copy(
            update={name: tower.config for name, tower in towers.items() if tower is not None}
        )
        self.image = image
        self.text = text
        self.audio = audio
        self.image_head = _image_head(config, image)
        self.text_head = _head(config, config.text, text)
        self.audio_head = _head(config, config.audio, audio)
        self.image_local_head = _local_head(config, config.image, image)
        self.text_local_head = _local_head(config, config.text, text)
        self.audio_local_head = _local_head(config, config.audio, audio)
        heads: dict[Modality, nn.Module | None] = {
            "image": self.image_head,
            "text": self.text_head,
            "audio": self.audio_head,
        }
        self.local_norms = _local_norms(config, heads)
        self.image_unique = _unique_branch(config, config.image, image)
        self.text_unique = _unique_branch(config, config.text, text)
        self.audio_unique = _unique_branch(config, config.audio, audio)
        if config.branches is not None and image is not None:
            check_fork(config.branches, (self.image_unique, self.text_unique, self.audio_unique))

    @property
    def modalities(self) -> frozenset[Modality]:
        """Modalities that have a tower."""
        towers: dict[Modality, nn.Module | None] = {
            "image": self.image,
            "text": self.text,
            "audio": self.audio,
        }
        return frozenset(name for name, tower in towers.items() if tower is not None)

    def encode_image(self, pixels: Tensor, *, regions: bool = False) -> ModalityFeatures:
        """Features of normalised images (B, 3, S, S), or of the tower's pooled features of them (B, W).

        Args:
            pixels: Images or pooled features.
            regions: Embed the regions of images, too, of a model whose configuration has such.

        Raises:
            MissingModalityError: The model was built without its image encoder.
        """
        if self.image is None or self.image_head is None:
            raise MissingModalityError("image")
        output = _of_pooled(pixels) if pixels.ndim == 2 else self.image(pixels)
        features = self._project("image", output, self.image_head, self.image_local_head, self.image_unique)
        if regions:
            features = replace(features, regions=self.image_head(output.local))
        if isinstance(self.image_head, ConceptHead):
            return replace(features, concepts=self.image_head.predict(output.pooled))
        return features

    def encode_text(self, tokens: TokenBatch | Tensor) -> ModalityFeatures:
        """Features of a batch of texts, or of the tower's pooled features of them (B, W).

        Raises:
            MissingModalityError: The model has no text encoder.
        """
        if self.text is None or self.text_head is None:
            raise MissingModalityError("text")
        output = _of_pooled(tokens) if isinstance(tokens, Tensor) else self.text(tokens)
        return self._project("text", output, self.text_head, self.text_local_head, self.text_unique)

    def encode_audio(self, spectrograms: SpectrogramBatch) -> ModalityFeatures:
        """Features of a batch of sounds.

        Raises:
            MissingModalityError: The model has no audio encoder.
        """
        if self.audio is None or self.audio_head is None:
            raise MissingModalityError("audio")
        output = self.audio(spectrograms)
        return self._project("audio", output, self.audio_head, self.audio_local_head, self.audio_unique)

    def forward(
        self,
        pixels: Tensor | None = None,
        tokens: TokenBatch | Tensor | None = None,
        spectrograms: SpectrogramBatch | None = None,
    ) -> Features:
        """Features of what is given of aligned images, texts and sounds."""
        features: dict[Source, ModalityFeatures] = {}
        if pixels is not None:
            features["image"] = self.encode_image(pixels)
        if tokens is not None:
            features["text"] = self.encode_text(tokens)
        if spectrograms is not None:
            features["audio"] = self.encode_audio(spectrograms)
        return Features(features)

    def _project(
        self,
        modality: Modality,
        output: TowerOutput,
        head: nn.Module,
        local_head: nn.Module | None,
        unique_branch: UniqueBranch | None,
    ) -> ModalityFeatures:
        embedding: Tensor = head(output.pooled)
        if self.config.blades > 1:
            embedding = embedding.reshape(-1, self.config.blades, self.config.dim)
        features = ModalityFeatures(embedding)
        if unique_branch is not None:
            unique = unique_branch(output)
            chosen = retrieved(embedding, unique, self.config.retrieval)
            features = ModalityFeatures(chosen, shared=embedding, unique=unique)
        if not self.config.local_features:
            return features
        norm = dict(self.local_norms.items()).get(modality)
        return replace(
            features,
            local=project_entries(
                local_head or head, output.local, output.local_mask, norm, output.local_count
            ),
            local_mask=output.local_mask,
            local_weights=output.local_weights,
        )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load weights of earlier releases as well, where local features had no statistics of their own.

        They take those of the shared head, by which those releases normalised them.
        """
        for modality in self.local_norms:
            shared = next(
                name
                for name, part in self.get_submodule(f"{modality}_head").named_children()
                if isinstance(part, _BatchNorm)
            )
            for statistic in _STATISTICS:
                found = state_dict.get(f"{prefix}{modality}_head.{shared}.{statistic}")
                if found is not None:
                    state_dict.setdefault(f"{prefix}local_norms.{modality}.{statistic}", found)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def drop_unused_branches(self) -> None:
        """Give up unique branches that are not searched by; the embeddings stay, for less work."""
        if self.config.retrieval != "shared":
            return
        self.image_unique = self.text_unique = self.audio_unique = None
        for tower in (self.image, self.text, self.audio):
            if tower is not None:
                tower.backbone.fork_after = None

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
        if self.image is not None:
            check_image_size(self.image.backbone, config.image.size)
        if self.text is not None and config.text.max_tokens > self.text.backbone.max_tokens:
            longest = self.text.backbone.max_tokens
            raise RecipeError(
                f"The text tower takes {longest} tokens, not {config.text.max_tokens}: "
                f"set preprocessing.text.max_tokens to {longest} or less."
            )
        if self.audio is not None:
            check_spectrograms(self.audio.backbone, config.audio)


def _of_pooled(features: Tensor) -> TowerOutput:
    """Output of a tower for heads that take nothing but its pooled features (B, W)."""
    return TowerOutput(features, features.new_empty(len(features), 0, features.shape[1]))


def _image_head(config: DualEncoderConfig, image: ImageTower | None) -> nn.Sequential | ConceptHead | None:
    if image is None:
        return None
    if config.concepts is not None:
        return ConceptHead(image.width, config.concepts, config.dim)
    return build_head(config.image.head, image.width, config.blades * config.dim, image.projection)


def _head(
    config: DualEncoderConfig, settings: TowerConfig | None, tower: Tower | None
) -> nn.Sequential | None:
    if settings is None or tower is None:
        return None
    return build_head(settings.head, tower.width, config.blades * config.dim, tower.projection)


def _local_head(
    config: DualEncoderConfig, settings: TowerConfig | None, tower: Tower | None
) -> nn.Sequential | None:
    """The head of the local features where they have one of their own."""
    if settings is None or tower is None or not config.local_features:
        return None
    if not config.share_local_head:
        return build_head(config.local_head or settings.head, tower.local_width, config.dim)
    if tower.width != tower.local_width:
        raise RecipeError(
            f"The pooled feature has {tower.width} numbers and the local ones have {tower.local_width}, so "
            "they cannot share a head: set share_local_head to false, or choose another pooling."
        )
    return None


def _local_norms(config: DualEncoderConfig, heads: Mapping[Modality, nn.Module | None]) -> nn.ModuleDict:
    """Statistics of the local features that share a head with a batch norm, by modality."""
    if not config.share_local_head:
        return nn.ModuleDict()
    norms = {name: None if head is None else local_norm(head) for name, head in heads.items()}
    return nn.ModuleDict({name: norm for name, norm in norms.items() if norm is not None})


def _unique_branch(
    config: DualEncoderConfig, settings: TowerConfig | None, tower: Tower | None
) -> UniqueBranch | None:
    if config.branches is None or settings is None or tower is None:
        return None
    return build_unique_branch(config.branches, settings.head, tower, config.dim)


def pretrained_logits(config: DualEncoderConfig) -> PretrainedLogits | None:
    """How both towers were trained to make logits; None unless they are one model's, projections included.

    Behind random heads cosines have another spread, which no pretrained temperature fits.
    """
    image, text = config.image, config.text
    if text is None or text.pretrained is None or text.pretrained != image.pretrained:
        return None
    if image.architecture not in ("clip_resnet", "clip_vision_model", "siglip_vision_model"):
        return None
    projected = {image.head.kind, text.head.kind} <= {"linear", "identity"} and config.concepts is None
    if image.pooling != "tower" or not projected or config.blades > 1 or config.audio is not None:
        return None
    # The import of transformers takes seconds.
    from training.models.pretrained.architecture import read_logits
    from training.models.pretrained.folder import local_folder
    from training.models.texts.backbones import PROJECTED_POOLING, pretrained_width

    if text.pooling != PROJECTED_POOLING.get(text.architecture):
        return None
    folder = local_folder(text.pretrained)
    return read_logits(folder) if pretrained_width(text.architecture, folder) == config.dim else None


def build_dual_encoder(
    config: DualEncoderConfig,
    tokenizer: Tokenizer | None,
    *,
    load_pretrained: bool,
    only: Modality | None = None,
) -> DualEncoder:
    """The dual encoder of a configuration.

    Args:
        config: Of the towers, their heads and the space.
        tokenizer: Whose ids the text tower reads; None for a model without one.
        load_pretrained: Load the weights that the towers' `pretrained` name; False: random weights.
        only: Build the tower of this modality alone; None: all.

    Raises:
        RecipeError: A setting does not fit.
    """
    image = text = audio = None
    if only in (None, "image"):
        image = build_image_tower(config.image, load_pretrained=load_pretrained)
    if config.text is not None and only in (None, "text"):
        if tokenizer is None:
            raise RecipeError("A model of texts needs a tokenizer: learn one from the train split.")
        text = build_text_tower(config.text, tokenizer, load_pretrained=load_pretrained)
    if config.audio is not None and only in (None, "audio"):
        audio = build_audio_tower(config.audio, load_pretrained=load_pretrained)
    return DualEncoder(config, image, text, audio)
