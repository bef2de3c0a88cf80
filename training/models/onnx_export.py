"""Export of a bundle's towers as ONNX graphs."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from training.common.atomic import atomic_folder
from training.common.errors import RecoquestError
from training.models.bundle import BundleInfo, file_sha256
from training.models.encoder import Encoder
from training.models.onnx import (
    FOLDER,
    MANIFEST_FILE,
    ONNX_ERRORS,
    REFERENCE_TEXTS,
    TOLERANCE,
    Graph,
    GraphName,
    Manifest,
    OnnxEncoder,
    agree,
    graph_file,
    reference_images,
)
from training.models.preprocessing import TokenBatch

Model = TypeVar("Model", bound=nn.Module)
_METHOD = "interpolate_pos_encoding"
_OPSET: Final = 18


class ExportError(RecoquestError):
    """Graphs that can't be exported, or whose vectors differ from the encoder's."""


def export_towers(encoder: Encoder, bundle: Path) -> None:
    """Export an encoder's towers into its bundle or a copy of it.

    Raises:
        ExportError: The graphs can't be exported, written or run, or their vectors differ from the encoder's.
    """
    info = encoder.info
    assert info is not None
    try:
        _write_graphs(encoder, info, bundle)
    except (MemoryError, OSError, RuntimeError) as error:
        raise ExportError(f"No ONNX graphs of {info.name} can be made: {error}") from error


def _write_graphs(encoder: Encoder, info: BundleInfo, bundle: Path) -> None:
    with atomic_folder(bundle / FOLDER, replace=True) as fresh:
        names: tuple[GraphName, ...] = ("image", "text")
        graphs = {name: _write(encoder, name, fresh) for name in names if name in encoder.modalities}
        tokenizer = encoder.preprocessing.text.tokenizer if "text" in graphs else None
        try:
            exported = OnnxEncoder(info, tokenizer, fresh, graphs, regions=encoder.regions)
            agrees = exported.agrees(graphs) and _regions_agree(encoder, exported)
        except ONNX_ERRORS as error:
            raise ExportError(f"ONNX Runtime does not compute the graphs of {info.name}: {error}") from error
        if not agrees:
            raise ExportError(f"The ONNX graphs of {info.name} give other vectors than its encoder.")
        manifest = Manifest(digest=info.digest, graphs=graphs, regions=encoder.regions)
        (fresh / MANIFEST_FILE).write_text(manifest.model_dump_json() + "\n", encoding="utf-8")


def _regions_agree(encoder: Encoder, exported: OnnxEncoder) -> bool:
    if not encoder.regions:
        return True
    images = reference_images(encoder.image_config.size)[:1]
    expected, regions = encoder.embed_regions(images)[0], exported.embed_regions(images)[0]
    lengths = np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), TOLERANCE)
    return agree(regions / lengths, (expected / lengths).tolist())


def _write(encoder: Encoder, name: GraphName, folder: Path) -> Graph:
    file, outputs = folder / graph_file(name), ["vectors"]
    module: nn.Module
    if name == "image":
        images = reference_images(encoder.image_config.size)
        module = image_graph = _ImageGraph(encoder)
        inputs = {"images": torch.from_numpy(images)}
        with _traceable(), torch.no_grad():
            _fix_positions(image_graph, lambda: image_graph(inputs["images"]))
        axes: dict[str, dict[int, str]] = {"images": {0: "batch"}}
        outputs += ["regions"] * encoder.regions
        reference = encoder.embed_images(images)
    else:
        tokens = encoder.preprocessing.text(REFERENCE_TEXTS)
        module = _TextGraph(encoder)
        inputs = {"input_ids": tokens.input_ids, "attention_mask": tokens.attention_mask}
        axes = {key: {0: "batch", 1: "length"} for key in inputs}
        reference = encoder.embed_texts(REFERENCE_TEXTS).vectors
    with _traceable(), torch.inference_mode(False), torch.no_grad():
        torch.onnx.export(
            module.eval(),
            tuple(inputs.values()),
            file,
            input_names=list(inputs),
            output_names=outputs,
            dynamic_axes=axes | {output: {0: "batch"} for output in outputs},
            opset_version=_OPSET,
            dynamo=False,
        )
    return Graph(sha256=file_sha256(file), reference=reference.tolist())


@contextmanager
def _traceable() -> Iterator[None]:
    """Make transformers' layers use operators that ONNX has, and silence tracing warnings."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


class _ImageGraph(nn.Module):
    """Prepared images (B, 3, S, S) to unit vectors (B, D), and to embeddings (B, K, D) of regions if any."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.model = _with_exportable_attention(encoder.model).cpu()
        self._preprocessing = encoder.preprocessing.image
        self._regions = encoder.regions

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        pixels = self._preprocessing.normalise(self._preprocessing.to_unit(images))
        features = self.model.encode_image(pixels, regions=self._regions)
        vectors = functional.normalize(features.embedding, dim=-1)
        return (vectors,) if features.regions is None else (vectors, features.regions)


class _TextGraph(nn.Module):
    """Ids and mask (B, T) to unit vectors (B, D)."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.model = _with_exportable_attention(encoder.model).cpu()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        features = self.model.encode_text(TokenBatch(input_ids, attention_mask, ()))
        return functional.normalize(features.embedding, dim=-1)


def _fix_positions(model: nn.Module, run: Callable[[], object]) -> None:
    """Precompute position embeddings that the model interpolates for its image size."""

    def first_result(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        results: list[Tensor] = []

        def kept(*arguments: Any) -> Tensor:
            if not results:
                results.append(function(*arguments).detach())
            return results[0]

        return kept

    for module in model.modules():
        if hasattr(module, _METHOD):
            setattr(module, _METHOD, first_result(getattr(module, _METHOD)))
    run()


def _with_exportable_attention(model: Model) -> Model:
    """A copy of a model with exportable attention: the export of PyTorch's fixes the number of tokens."""
    copy = deepcopy(model)
    for module in list(copy.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.MultiheadAttention):
                setattr(module, name, _Attention(child))
    return copy


class _Attention(nn.Module):
    """A `MultiheadAttention` (batch first) with the same interface."""

    def __init__(self, source: nn.MultiheadAttention) -> None:
        super().__init__()
        self.source = source

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        need_weights: bool = True,  # noqa: ARG002 - an argument of PyTorch's
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Attended values (B, Q, C), and the mean weights (B, Q, K) of the heads."""
        assert attn_mask is None
        assert not is_causal
        queries, keys, values = self._heads(query, key, value)
        scores = queries @ keys.transpose(2, 3) * (query.shape[2] // self.source.num_heads) ** -0.5
        if key_padding_mask is not None:
            # PyTorch's layers pass minus infinity instead of True.
            masked = key_padding_mask if key_padding_mask.dtype == torch.bool else key_padding_mask < 0
            scores = scores.masked_fill(masked[:, None, None], float("-inf"))
        weights = scores.softmax(dim=3)
        attended = (weights @ values).transpose(1, 2).flatten(2)
        return self.source.out_proj(attended), weights.mean(dim=1)

    def _heads(self, *inputs: Tensor) -> list[Tensor]:
        """Projected inputs (B, K, C) by head (B, H, K, C / H)."""
        source = self.source
        width = source.embed_dim // source.num_heads
        parts = zip(inputs, source.in_proj_weight.chunk(3), source.in_proj_bias.chunk(3), strict=True)
        return [
            functional.linear(states, weight, bias)
            .reshape(states.shape[0], -1, source.num_heads, width)
            .transpose(1, 2)
            for states, weight, bias in parts
        ]
