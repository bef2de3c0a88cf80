"""The dual encoder: towers of images, texts and sounds with heads into one space."""

from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor, nn

from training.common.errors import MissingModalityError, RecipeError
from training.models.audio_towers import AudioTower, build_audio_tower, check_spectrograms
from training.models.config import DualEncoderConfig, Modality, PreprocessingConfig
from training.models.features import Features, ModalityFeatures, PretrainedLogits, Source
from training.models.heads import (
    ConceptHead,
    UniqueBranch,
    build_head,
    build_unique_branch,
    check_fork,
    local_norm,
    project_entries,
    retrieved,
)
from training.models.image_towers import ImageTower, build_image_tower, check_image_size
from training.models.preprocessing import SpectrogramBatch, TokenBatch
from training.models.text_input import Tokenizer
from training.models.text_towers import TextTower, build_text_tower
from training.models.tower import Tower, TowerOutput


class DualEncoder(nn.Module):
    """Maps images, texts and sounds into one space of `config.dim` numbers; embeddings are not normalised.

    Attributes:
        config: Resolved: rebuilds the architecture without any pretrained folder.
    """

    def __init__(
        self,
        config: DualEncoderConfig,
        image: ImageTower | None,
        text: TextTower | None = None,
        audio: AudioTower | None = None,
    ) -> None:
        super().__init__()
        towers: dict[Modality, Tower | None] = {"image": image, "text": text, "audio": audio}
        self.config = config.model_copy(
            update={name: tower.config for name, tower in towers.items() if tower is not None}
        )
        self.image, self.text, self.audio = image, text, audio
        self.image_head = _image_head(config, image)
        self.text_head, self.audio_head = (_head(config, tower) for tower in (text, audio))
        self.image_local_head, self.text_local_head, self.audio_local_head = (
            _local_head(config, tower) for tower in towers.values()
        )
        self.local_norms = nn.ModuleDict()
        for name in towers if config.share_local_head else ():
            head: nn.Module | None = getattr(self, f"{name}_head")
            norm = None if head is None else local_norm(head)
            if norm is not None:
                self.local_norms[name] = norm
        self.image_unique, self.text_unique, self.audio_unique = (
            _unique_branch(config, tower) for tower in towers.values()
        )
        if config.branches is not None and image is not None:
            check_fork(config.branches, (self.image_unique, self.text_unique, self.audio_unique))

    @property
    def towers(self) -> dict[Modality, Tower]:
        """Existing towers by modality."""
        towers: dict[Modality, Tower | None] = {"image": self.image, "text": self.text, "audio": self.audio}
        return {name: tower for name, tower in towers.items() if tower is not None}

    @property
    def modalities(self) -> frozenset[Modality]:
        """Modalities that have a tower."""
        return frozenset(self.towers)

    def encode_image(self, pixels: Tensor, *, regions: bool = False) -> ModalityFeatures:
        """Features of normalised images (B, 3, S, S), or of their precomputed pooled features (B, W).

        `regions` also embeds the images' regions; requires `config.regions`.

        Raises:
            MissingModalityError: The model was built without its image encoder.
        """
        if self.image is None or self.image_head is None:
            raise MissingModalityError("image")
        output = _pooled_output(pixels) if pixels.ndim == 2 else self.image(pixels)
        features = self._project("image", output)
        if regions:
            features = replace(features, regions=self.image_head(output.local))
        if isinstance(self.image_head, ConceptHead):
            return replace(features, concepts=self.image_head.predict(output.pooled))
        return features

    def encode_text(self, tokens: TokenBatch | Tensor) -> ModalityFeatures:
        """Features of a batch of texts, or of their precomputed pooled features (B, W).

        Raises:
            MissingModalityError: The model has no text encoder.
        """
        if self.text is None:
            raise MissingModalityError("text")
        return self._project(
            "text", _pooled_output(tokens) if isinstance(tokens, Tensor) else self.text(tokens)
        )

    def encode_audio(self, spectrograms: SpectrogramBatch) -> ModalityFeatures:
        """Features of a batch of sounds.

        Raises:
            MissingModalityError: The model has no audio encoder.
        """
        if self.audio is None:
            raise MissingModalityError("audio")
        return self._project("audio", self.audio(spectrograms))

    def forward(
        self,
        pixels: Tensor | None = None,
        tokens: TokenBatch | Tensor | None = None,
        spectrograms: SpectrogramBatch | None = None,
    ) -> Features:
        """Features of aligned images, texts and sounds, each of which is optional."""
        features: dict[Source, ModalityFeatures] = {}
        if pixels is not None:
            features["image"] = self.encode_image(pixels)
        if tokens is not None:
            features["text"] = self.encode_text(tokens)
        if spectrograms is not None:
            features["audio"] = self.encode_audio(spectrograms)
        return Features(features)

    def _project(self, modality: Modality, output: TowerOutput) -> ModalityFeatures:
        head: nn.Module = getattr(self, f"{modality}_head")
        local_head: nn.Module | None = getattr(self, f"{modality}_local_head")
        unique_branch: UniqueBranch | None = getattr(self, f"{modality}_unique")
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
        mask, count = output.local_mask, output.local_count
        local = project_entries(local_head or head, output.local, mask, norm, count)
        return replace(features, local=local, local_mask=mask, local_weights=output.local_weights)

    def drop_unused_branches(self) -> None:
        """Remove unique branches if embeddings don't use them."""
        if self.config.retrieval != "shared":
            return
        self.image_unique = self.text_unique = self.audio_unique = None
        for tower in self.towers.values():
            tower.backbone.fork_after = None

    def tower_parameters(self) -> Iterator[nn.Parameter]:
        """Trainable parameters of the backbones, which may be pretrained."""
        for tower in self.towers.values():
            yield from (p for p in tower.backbone.parameters() if p.requires_grad)

    def head_parameters(self) -> Iterator[nn.Parameter]:
        """All other trainable parameters: of poolings and heads."""
        towers = {id(parameter) for parameter in self.tower_parameters()}
        yield from (p for p in self.parameters() if p.requires_grad and id(p) not in towers)

    def check_preprocessing(self, config: PreprocessingConfig) -> None:
        """Check that the towers accept what this preprocessing produces.

        Raises:
            RecipeError: The image size or the number of bands differs, or texts or sounds may be too long.
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


def _pooled_output(features: Tensor) -> TowerOutput:
    """A tower's output, for heads that only use its pooled features (B, W)."""
    return TowerOutput(features, features.new_empty(len(features), 0, features.shape[1]))


def _image_head(config: DualEncoderConfig, image: ImageTower | None) -> nn.Sequential | ConceptHead | None:
    if image is None or config.concepts is None:
        return _head(config, image)
    return ConceptHead(image.width, config.concepts, config.dim)


def _head(config: DualEncoderConfig, tower: Tower | None) -> nn.Sequential | None:
    if tower is None:
        return None
    return build_head(tower.config.head, tower.width, config.blades * config.dim, tower.projection)


def _local_head(config: DualEncoderConfig, tower: Tower | None) -> nn.Sequential | None:
    """The separate head of local features, if there is one."""
    if tower is None or not config.local_features:
        return None
    if not config.share_local_head:
        return build_head(config.local_head or tower.config.head, tower.local_width, config.dim)
    if tower.width != tower.local_width:
        raise RecipeError(
            f"The pooled feature has {tower.width} numbers and the local ones have {tower.local_width}, so "
            "they cannot share a head: set share_local_head to false, or choose another pooling."
        )
    return None


def _unique_branch(config: DualEncoderConfig, tower: Tower | None) -> UniqueBranch | None:
    if config.branches is None or tower is None:
        return None
    return build_unique_branch(config.branches, tower, config.dim)


def pretrained_logits(config: DualEncoderConfig) -> PretrainedLogits | None:
    """The logits that both towers were trained for; None unless one model provides both, with projections.

    With random heads, cosines have another spread, which a pretrained temperature doesn't fit.
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
    from training.models.transformers_backbones import PROJECTED_POOLING, pretrained_width

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
    """A dual encoder with pretrained weights where its towers name some, otherwise random ones.

    `only` builds the tower of one modality. A text tower requires its tokenizer.

    Raises:
        RecipeError: A setting is invalid.
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
