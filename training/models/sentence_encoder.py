"""A frozen sentence encoder: what LTD's decoder has to recover from a caption's embedding."""

import inspect
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import torch
import transformers
from torch import Tensor, nn
from torch.nn.functional import normalize, pad

from training.common.errors import RecipeError
from training.models.config import TextPreprocessingConfig
from training.models.pooling import masked_mean
from training.models.preprocessing import TextPreprocessing, TokenBatch
from training.models.pretrained.architecture import load_pretrained
from training.models.pretrained.folder import local_folder
from training.models.pretrained.tokens import load_tokenizer

_ROWS = 16
_LENGTH_STEP = 16


class SentenceEncoder:
    """Texts to unit vectors of width `dim` by a frozen text model of transformers, such as all-mpnet-base-v2.

    The mean over real tokens, normalised. A text always gets the same vector, bit by bit, whatever it is
    encoded with: texts are run in blocks of a fixed number of rows and lengths, so that a resumed run sees
    what it saw. Threads may share one.
    """

    def __init__(
        self,
        model: nn.Module,
        dim: int,
        text: TextPreprocessing,
        device: torch.device | str = "cpu",
        *,
        cached_texts: int = 100_000,
    ) -> None:
        """Take a model with a `last_hidden_state` of this width; it is frozen."""
        self._model = model.to(device).eval().requires_grad_(False)
        self._text = text
        self._cache: OrderedDict[str, Tensor] = OrderedDict()
        self._cached_texts = cached_texts
        self._lock = threading.Lock()
        self.device = torch.device(device)
        self.dim = dim

    @classmethod
    def load(
        cls,
        pretrained: str | None,
        device: torch.device | str = "cpu",
        *,
        max_tokens: int = 128,
        cached_texts: int = 100_000,
    ) -> Self:
        """Load the text model of a folder or of the hub, safetensors only.

        Texts of more than `max_tokens`, or of more than the model takes, are cut. So many vectors are kept in
        memory; beyond that the longest unused is dropped.

        Raises:
            RecipeError: None is named, or what is named cannot be loaded.
        """
        if pretrained is None:
            raise RecipeError(
                "The objective needs the embeddings of a frozen sentence encoder: name its folder or hub "
                "name in data.target_encoder, such as sentence-transformers/all-mpnet-base-v2."
            )
        folder = local_folder(pretrained)
        config = _configuration(folder)
        kind = _model_kind(config, folder)
        without_pooler = "add_pooling_layer" in inspect.signature(kind.__init__).parameters
        settings = {"add_pooling_layer": False} if without_pooler else {}
        model = load_pretrained(kind, config, folder, **settings)
        positions = int(getattr(config, "max_position_embeddings", 512))
        if config.model_type in {"roberta", "xlm-roberta", "mpnet", "camembert"}:
            # Their positions begin behind the padding id.
            positions -= int(config.pad_token_id) + 1
        limit = min(max_tokens, positions)
        text = TextPreprocessing(TextPreprocessingConfig(max_tokens=limit), load_tokenizer(folder))
        return cls(model, int(config.hidden_size), text, device, cached_texts=cached_texts)

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Unit vectors (B, T) in float32 without gradient, on the device."""
        with self._lock:
            missing = list(dict.fromkeys(text for text in texts if text not in self._cache))
            vectors = {text: self._cache[text] for text in texts if text in self._cache}
            for block in self._blocks(missing):
                vectors |= zip(block, self._run(block), strict=False)
            for text, vector in vectors.items():
                self._cache[text] = vector
                self._cache.move_to_end(text)
            while len(self._cache) > self._cached_texts:
                self._cache.popitem(last=False)
        rows = [vectors[text] for text in texts]
        stacked = torch.stack(rows) if rows else torch.zeros((0, self.dim))
        return stacked.to(self.device, non_blocking=True)

    def _blocks(self, texts: Sequence[str]) -> list[list[str]]:
        """Texts of like length together, at most a block's rows each."""
        by_length: dict[int, list[str]] = {}
        for text in texts:
            length = self._text([text]).input_ids.shape[1]
            by_length.setdefault(-(-length // _LENGTH_STEP), []).append(text)
        return [
            members[start : start + _ROWS]
            for _, members in sorted(by_length.items())
            for start in range(0, len(members), _ROWS)
        ]

    def _run(self, block: Sequence[str]) -> Tensor:
        tokens = self._padded(self._text(block)).to(self.device)
        with torch.inference_mode(), torch.autocast(self.device.type, enabled=False):
            hidden = self._model(tokens.input_ids, attention_mask=tokens.attention_mask).last_hidden_state
            vectors = normalize(masked_mean(hidden, tokens.attention_mask.bool()), dim=1)
        return vectors[: len(block)].cpu().clone()

    def _padded(self, tokens: TokenBatch) -> TokenBatch:
        """The block filled up to a fixed shape: rows with copies of the first, lengths with padding."""
        ids, mask = tokens.input_ids, tokens.attention_mask
        length = -(-ids.shape[1] // _LENGTH_STEP) * _LENGTH_STEP
        more = (0, min(self._text.config.max_tokens, length) - ids.shape[1])
        ids, mask = pad(ids, more, value=self._text.tokenizer.pad_id), pad(mask, more)
        repeated = torch.arange(_ROWS) * (torch.arange(_ROWS) < len(ids))
        return TokenBatch(ids[repeated], mask[repeated], (None,) * _ROWS)


def _configuration(folder: Path) -> "transformers.PreTrainedConfig":
    try:
        config: transformers.PreTrainedConfig = transformers.AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise RecipeError(
            f"{folder} holds no text model that can be read: choose another data.target_encoder. ({error})"
        ) from error
    return config


def _model_kind(
    config: "transformers.PreTrainedConfig", folder: Path
) -> type["transformers.PreTrainedModel"]:
    kind = transformers.MODEL_MAPPING.get(type(config), None)
    if (
        not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel))
        or not hasattr(config, "hidden_size")
        or not hasattr(config, "vocab_size")
    ):
        raise RecipeError(
            f"{folder} holds a {config.model_type}, which embeds no sentences: choose a text encoder such as "
            "sentence-transformers/all-mpnet-base-v2 as data.target_encoder."
        )
    return kind
