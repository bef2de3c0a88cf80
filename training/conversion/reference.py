"""Vectors of a published encoder by the processor and the model of transformers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from PIL import Image
from safetensors import SafetensorError
from torch import Tensor
from torch.nn import functional

from training.common.errors import RecipeError
from training.models.pretrained.architecture import COMPOSITES
from training.models.pretrained.folder import read_json, tensor_names
from training.models.pretrained.preprocessing import image_processor
from training.models.pretrained.quiet import quiet
from training.models.pretrained.tokens import knows_lower_case_only, transformers_tokenizer

# The pooler of a ViT belongs to a task that most checkpoints were not trained for.
_WITHOUT_POOLER: Final = "vit"


class Reference:
    """A published encoder as transformers computes it.

    Args:
        folder: In the format of Hugging Face.
        size: Side of images in pixels in place of the folder's; None: the folder's.

    Raises:
        RecipeError: transformers cannot load it.
    """

    name = "transformers"

    def __init__(self, folder: Path, size: int | None = None) -> None:
        self._folder = folder
        self._kind = str(read_json(folder / "config.json").get("model_type"))
        self._processor = image_processor(folder)
        self._sizes = {} if size is None else _sizes(self._processor, size)
        projects = self._kind == "clip_vision_model" and "visual_projection.weight" in tensor_names(folder)
        loader: Any = transformers.CLIPVisionModelWithProjection if projects else transformers.AutoModel
        try:
            with quiet():
                self._model = loader.from_pretrained(
                    folder,
                    dtype=torch.float32,
                    use_safetensors=True,
                    local_files_only=True,
                    trust_remote_code=False,
                ).eval()
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise RecipeError(f"transformers cannot load the model in {folder}: {error}") from error

    def embed_images(self, images: Sequence[Image.Image]) -> NDArray[np.float32]:
        """Unit vectors (B, D) of images of any size."""
        rgb = [image.convert("RGB") for image in images]
        pixels = self._processor(rgb, return_tensors="np", **self._sizes)["pixel_values"]
        with torch.inference_mode():
            inputs = {"pixel_values": torch.from_numpy(np.stack(pixels))}
            if self._kind in COMPOSITES:
                return _unit(self._model.get_image_features(**inputs).pooler_output)
            output = self._model(**inputs)
            pooled = output.last_hidden_state[:, 0] if self._kind == _WITHOUT_POOLER else _pooled(output)
            return _unit(pooled.flatten(1))

    def embed_texts(self, texts: Sequence[str], limit: int) -> NDArray[np.float32]:
        """Unit vectors (B, D) of texts, cut after `limit` tokens."""
        tokenizer = transformers_tokenizer(self._folder)
        settings: Mapping[str, Any] = {"truncation": True, "max_length": limit, "return_tensors": "pt"}
        if knows_lower_case_only(self._folder):
            # SigLIP was trained on lower-case texts padded to the right, with attention to the padding.
            tokenizer.padding_side = "right"
            lower = [text.lower() for text in texts]
            inputs = {"input_ids": tokenizer(lower, padding="max_length", **settings)["input_ids"]}
        else:
            inputs = dict(tokenizer(list(texts), padding=True, **settings))
        with torch.inference_mode():
            return _unit(self._model.get_text_features(**inputs).pooler_output)


def _pooled(output: Any) -> Tensor:
    """Projected feature of a vision model that has a projection, else its pooled one."""
    projected = getattr(output, "image_embeds", None)
    pooled: Tensor = output.pooler_output if projected is None else projected
    return pooled


def _sizes(processor: Any, size: int) -> dict[str, Any]:
    """Arguments of a processor for images of another size, the share that a crop keeps included."""
    square = {"height": size, "width": size}
    edge = processor.size.get("shortest_edge")
    if edge is None:
        return {"size": square}
    crop = getattr(processor, "crop_size", None)
    if crop is None:
        return {"size": {"shortest_edge": size}}
    return {"size": {"shortest_edge": round(edge * size / crop["height"])}, "crop_size": square}


def _unit(features: Tensor) -> NDArray[np.float32]:
    vectors: NDArray[np.float32] = functional.normalize(features.float(), dim=-1).numpy()
    return vectors
