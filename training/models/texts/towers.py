"""Text towers: a backbone and its pooling over real tokens."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, Final

import torch
from torch import nn

from training.errors import RecipeError
from training.models.config import TextTowerConfig
from training.models.freezing import Freezer, frozen_modules
from training.models.heads.pooling import build_pooling, pool_sentences
from training.models.inputs.tokenizer import Tokenizer
from training.models.preprocessing import TokenBatch
from training.models.slices import read_by_length
from training.models.texts.gru import build_gru
from training.models.texts.small_transformer import build_small_transformer
from training.models.texts.text_cnn import build_text_cnn
from training.models.tower import Fork, TextBackbone, TowerOutput

_OWN: Final[Mapping[str, Callable[[dict[str, Any], int], TextBackbone]]] = {
    "gru": build_gru,
    "small_transformer": build_small_transformer,
    "text_cnn": build_text_cnn,
}


class TextTower(nn.Module):
    """A text backbone and its pooling.

    Attributes:
        config: Resolved: it rebuilds the architecture without the pretrained folder.
        width: Of the pooled feature.
        local_width: Of the token features.
        projection: What the pretrained model projects the pooled feature with; None if there is none.
        fork_pooling: How a branch that leaves the backbone is pooled.
        fork_prefix: How many of its tokens come before those that are pooled.
    """

    fork_prefix = 0

    def __init__(self, config: TextTowerConfig, backbone: TextBackbone) -> None:
        super().__init__()
        if config.pooling == "cls" and backbone.causal:
            raise RecipeError(
                f"The first token of {config.architecture} does not know the text: choose pooling 'eos'."
            )
        own = config.pooling == "eos" and backbone.pools_itself
        self.config = config.model_copy(update={"pretrained": None, "options": backbone.options})
        self.backbone = backbone
        self.pooling = None if own else build_pooling(config.pooling, backbone.local_width)
        self.width = backbone.width if own else backbone.local_width
        self.local_width = backbone.local_width
        self.projection = backbone.projection if config.pooling == backbone.projected_pooling else None
        self.fork_pooling = config.pooling
        self._frozen = Freezer(frozen_modules(backbone, config.frozen_layers))

    def forward(self, tokens: TokenBatch) -> TowerOutput:
        """Features of a batch of texts; local features are its tokens, or its sentences where it tells them.

        The first and the last token are pooled from all tokens; any other pooling is one of local features.
        """
        with torch.no_grad() if self.config.frozen_layers == "all" else nullcontext():
            features = read_by_length(self.backbone, tokens.input_ids, tokens.attention_mask)
        mask = tokens.attention_mask.bool()
        fork = None if features.fork is None else Fork(features.fork, mask)
        local, local_mask = features.tokens, mask
        count = sum(tokens.local_counts) if tokens.local_counts else None
        if tokens.sentence_ids is not None:
            local, local_mask = pool_sentences(features.tokens, tokens.sentence_ids, tokens.sentence_count)
        if self.pooling is None:
            assert features.pooled is not None
            return TowerOutput(features.pooled, local, local_mask, fork=fork, local_count=count)
        if self.config.pooling in ("cls", "eos"):
            pooled, weights = self.pooling(features.tokens, mask)
        else:
            pooled, weights = self.pooling(local, local_mask)
        return TowerOutput(pooled, local, local_mask, weights, fork, count)

    def train(self, mode: bool = True) -> "TextTower":
        """Set the mode of all but the frozen parts."""
        super().train(mode)
        self._frozen.hold()
        return self


def build_text_tower(config: TextTowerConfig, tokenizer: Tokenizer, *, load_pretrained: bool) -> TextTower:
    """The text tower of a configuration.

    Args:
        config: Of the tower.
        tokenizer: Whose ids it reads.
        load_pretrained: Load the weights that `config.pretrained` names; False: only the architecture.

    Raises:
        RecipeError: The pretrained model, the tokenizer, an option, the pooling or frozen layers do not fit.
    """
    backbone: TextBackbone
    build = _OWN.get(config.architecture)
    if build is not None:
        if config.pretrained is not None:
            raise RecipeError(f"{config.architecture} has no pretrained weights: remove text.pretrained.")
        backbone = build(config.options, tokenizer.size)
    else:
        # The import of transformers takes seconds.
        from training.models.pretrained.folder import local_folder
        from training.models.texts.backbones import build_transformers_backbone

        folder = None if config.pretrained is None else local_folder(config.pretrained)
        backbone = build_transformers_backbone(
            config.architecture, config.options, folder, tokenizer, weights=load_pretrained
        )
    words = int(backbone.options["vocab_size"])
    if tokenizer.size > words:
        raise RecipeError(
            f"The tokenizer has {tokenizer.size} words, the text tower only {words}: they do not fit."
        )
    return TextTower(config, backbone)
