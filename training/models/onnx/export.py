"""Export of a bundle's towers as ONNX graphs."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from training.atomic import atomic_folder
from training.errors import RecoquestError
from training.models.bundle import BundleInfo, file_sha256
from training.models.encoder import Encoder
from training.models.onnx.attention import with_exportable_attention
from training.models.onnx.encoder import ONNX_ERRORS, OnnxEncoder
from training.models.onnx.files import (
    FOLDER,
    MANIFEST_FILE,
    REFERENCE_TEXTS,
    TOLERANCE,
    Graph,
    GraphName,
    Manifest,
    agree,
    graph_file,
    reference_images,
)
from training.models.onnx.positions import fix_positions
from training.models.preprocessing import TokenBatch

_OPSET: Final = 18


class ExportError(RecoquestError):
    """Graphs that cannot be made, or do not give the vectors of their encoder."""


def export_towers(encoder: Encoder, bundle: Path) -> None:
    """Write the graphs of an encoder's towers into its bundle, or a copy of it.

    Raises:
        ExportError: The graphs cannot be made, written or computed, or give other vectors than the encoder.
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
    expected, found = encoder.embed_regions(images)[0], exported.embed_regions(images)[0]
    lengths = np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), TOLERANCE)
    return agree(found / lengths, (expected / lengths).tolist())


def _write(encoder: Encoder, name: GraphName, folder: Path) -> Graph:
    file = folder / graph_file(name)
    if name == "image":
        images = reference_images(encoder.image_config.size)
        image_graph = _ImageGraph(encoder)
        inputs = {"images": torch.from_numpy(images)}
        with _traceable(), torch.no_grad():
            fix_positions(image_graph, lambda: image_graph(inputs["images"])[0])
        module: nn.Module = image_graph
        axes = {"images": {0: "batch"}}
        outputs = ["vectors", "regions"] if encoder.regions else ["vectors"]
        reference = encoder.embed_images(images)
    else:
        tokens = encoder.preprocessing.text(REFERENCE_TEXTS)
        module = _TextGraph(encoder)
        inputs = {"input_ids": tokens.input_ids, "attention_mask": tokens.attention_mask}
        axes = {key: {0: "batch", 1: "length"} for key in inputs}
        outputs = ["vectors"]
        reference = encoder.embed_texts(REFERENCE_TEXTS).vectors
    axes |= {output: {0: "batch"} for output in outputs}
    _export(module, inputs, outputs, axes, file)
    return Graph(sha256=file_sha256(file), reference=reference.tolist())


def _export(
    module: nn.Module,
    inputs: Mapping[str, Tensor],
    outputs: Sequence[str],
    axes: Mapping[str, dict[int, str]],
    file: Path,
) -> None:
    with _traceable(), torch.inference_mode(False), torch.no_grad():
        torch.onnx.export(
            module.eval(),
            tuple(inputs.values()),
            file,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes=dict(axes),
            opset_version=_OPSET,
            dynamo=False,
        )


@contextmanager
def _traceable() -> Iterator[None]:
    """Layers of transformers as the operators that ONNX has, and no word about what tracing fixes."""
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
        self.model = with_exportable_attention(encoder.model).cpu()
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
        self.model = with_exportable_attention(encoder.model).cpu()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        features = self.model.encode_text(TokenBatch(input_ids, attention_mask, ()))
        return functional.normalize(features.embedding, dim=-1)
