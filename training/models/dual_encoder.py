"""The dual encoder: an image and a text tower with heads into one space."""

from collections.abc import Iterator

from torch import Tensor, nn

from training.errors import RecipeError
from training.models.config import DualEncoderConfig, PreprocessingConfig
from training.models.features import Features, ModalityFeatures
from training.models.heads import build_head
from training.models.image_towers import ImageTower, build_image_tower
from training.models.preprocessing import TokenBatch
from training.models.text_towers import TextTower, build_text_tower
from training.models.tokenizer import Tokenizer
from training.models.tower import TowerOutput


class DualEncoder(nn.Module):
    """Maps images and texts into one space of `config.dim` numbers; embeddings are not normalised.

    Attributes:
        config: Resolved: it rebuilds the architecture without any pretrained folder.
    """

    def __init__(self, config: DualEncoderConfig, image: ImageTower, text: TextTower) -> None:
        super().__init__()
        self.config = config.model_copy(update={"image": image.config, "text": text.config})
        self.image = image
        self.text = text
        self.image_head = build_head(config.image.head, image.width, config.dim, image.projection)
        self.text_head = build_head(config.text.head, text.width, config.dim, text.projection)
        self.image_local_head: nn.Module | None = None
        self.text_local_head: nn.Module | None = None
        if config.local_features:
            self.image_local_head = build_head(config.image.head, image.local_width, config.dim)
            self.text_local_head = build_head(config.text.head, text.local_width, config.dim)

    def encode_image(self, pixels: Tensor) -> ModalityFeatures:
        """Features of normalised images (B, 3, S, S)."""
        return _project(self.image(pixels), self.image_head, self.image_local_head)

    def encode_text(self, tokens: TokenBatch) -> ModalityFeatures:
        """Features of a batch of texts."""
        return _project(self.text(tokens), self.text_head, self.text_local_head)

    def forward(self, pixels: Tensor, tokens: TokenBatch) -> Features:
        """Features of aligned images and texts."""
        return Features({"image": self.encode_image(pixels), "text": self.encode_text(tokens)})

    def tower_parameters(self) -> Iterator[nn.Parameter]:
        """The trainable parameters of the backbones, which a pretrained model brings."""
        for backbone in (self.image.backbone, self.text.backbone):
            yield from (parameter for parameter in backbone.parameters() if parameter.requires_grad)

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
            RecipeError: The images have another size, or the texts may be too long.
        """
        size = self.image.backbone.image_size
        if size is not None and size != config.image.size:
            raise RecipeError(
                f"The image tower takes images of {size} pixels, not {config.image.size}: "
                f"set preprocessing.image.size to {size}."
            )
        longest = self.text.backbone.max_tokens
        if config.text.max_tokens > longest:
            raise RecipeError(
                f"The text tower takes {longest} tokens, not {config.text.max_tokens}: "
                f"set preprocessing.text.max_tokens to {longest} or less."
            )


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
    config: DualEncoderConfig, tokenizer: Tokenizer, *, load_pretrained: bool
) -> DualEncoder:
    """The dual encoder of a configuration.

    Args:
        config: Of both towers, their heads and the space.
        tokenizer: Whose ids the text tower reads.
        load_pretrained: Load the weights that the towers' `pretrained` name; False: random weights.

    Raises:
        RecipeError: A setting does not fit.
    """
    image = build_image_tower(config.image, load_pretrained=load_pretrained)
    text = build_text_tower(config.text, tokenizer, load_pretrained=load_pretrained)
    return DualEncoder(config, image, text)
