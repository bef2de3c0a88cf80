"""An encoder whose towers are computed by ONNX Runtime on the CPU."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime
import onnxruntime.capi.onnxruntime_pybind11_state as onnx_errors
from numpy.typing import NDArray

from training.common.errors import MissingModalityError
from training.models.bundle import BundleInfo
from training.models.config import Modality
from training.models.embeddings import TextEmbeddings
from training.models.inputs.images import ImageInput, Pixels
from training.models.inputs.texts import TextTokens
from training.models.inputs.tokenizer import Tokenizer
from training.models.onnx.files import REFERENCE_TEXTS, Graph, GraphName, agree, graph_file, reference_images

# Layers of a larger batch do not fit the processor's cache.
_ROWS: Final = 16
_FATAL: Final = 4
_NO_MEMORY: Final = "Failed to allocate memory"
# Exceptions of ONNX Runtime, whose only common base is Exception.
ONNX_ERRORS: Final = (
    onnx_errors.EPFail,
    onnx_errors.Fail,
    onnx_errors.InvalidArgument,
    onnx_errors.InvalidGraph,
    onnx_errors.InvalidProtobuf,
    onnx_errors.NotImplemented,
    onnx_errors.RuntimeException,
)


class OnnxEncoder(ImageInput):
    """Embeds images and texts as `training.models.encoder.Encoder` does; threads may share it.

    Args:
        info: Bundle of the graphs.
        tokenizer: Of the text tower; None: there is none.
        folder: Holds the graphs.
        graphs: Graphs to load.
        threads: Threads of a forward pass.
        regions: Whether the graph of images gives the embeddings of regions, too.
    """

    fixed_threads: Final = True

    def __init__(
        self,
        info: BundleInfo,
        tokenizer: Tokenizer | None,
        folder: Path,
        graphs: Collection[GraphName],
        threads: int = 1,
        *,
        regions: bool = False,
    ) -> None:
        self.regions = regions
        self.info: BundleInfo | None = info
        self.image_config = info.preprocessing.image
        self.dim = info.dim
        self.blades = info.config.blades
        self.unsigned = info.config.unsigned
        self.modalities: frozenset[Modality] = info.config.modalities
        self._tokens = None if tokenizer is None else TextTokens(info.preprocessing.text, tokenizer)
        self._sessions: Mapping[GraphName, onnxruntime.InferenceSession] = {
            name: _session(folder / graph_file(name), threads) for name in graphs
        }

    def embed_images(self, images: Pixels) -> NDArray[np.float32]:
        """Vectors (B, D) of prepared images (B, 3, S, S)."""
        vectors = np.empty((len(images), self.dim), np.float32)
        for start in range(0, len(images), _ROWS):
            rows = slice(start, start + _ROWS)
            vectors[rows] = self._run("image", {"images": images[rows]})
        return vectors

    def embed_regions(self, images: Pixels) -> NDArray[np.float32]:
        """Embeddings (B, K, D) of the regions of prepared images; see `Encoder.embed_regions`."""
        parts = [
            self._run("image", {"images": images[start : start + _ROWS]}, "regions")
            for start in range(0, len(images), _ROWS)
        ]
        return np.concatenate(parts)

    def embed_texts(self, texts: Sequence[str | Sequence[str]]) -> TextEmbeddings:
        """Vectors (B, D) of texts, each whole or as its sentences; those over the limit of tokens are cut.

        Raises:
            MissingModalityError: The model was trained without texts.
        """
        if self._tokens is None:
            raise MissingModalityError("text")
        tokens = self._tokens(texts)
        ids, mask = tokens.input_ids, tokens.attention_mask
        vectors = np.empty((len(texts), self.dim), np.float32)
        lengths = mask.sum(axis=1)
        # Texts of about equal length together have little padding.
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(texts), _ROWS):
            rows = order[start : start + _ROWS]
            length = lengths[rows].max()
            inputs = {"input_ids": ids[rows, :length], "attention_mask": mask[rows, :length]}
            vectors[rows] = self._run("text", inputs)
        return TextEmbeddings(vectors, tokens.truncations, tuple(lengths.tolist()))

    def agrees(self, graphs: Mapping[GraphName, Graph]) -> bool:
        """Whether reference inputs have their vectors, each alone: its shape is not that of the export."""
        for name in self._sessions:
            if name == "text":
                vectors = np.concatenate([self.embed_texts([text]).vectors for text in REFERENCE_TEXTS])
            else:
                vectors = self.embed_images(reference_images(self.image_config.size)[:1])
            if not agree(vectors, graphs[name].reference):
                return False
        return True

    def _run(
        self, name: GraphName, inputs: dict[str, NDArray[Any]], output: str = "vectors"
    ) -> NDArray[np.float32]:
        """One output of a batch: vectors (B, D), or regions (B, K, D).

        Raises:
            MissingModalityError: There is no such graph.
            MemoryError: The memory does not suffice.
        """
        if name not in self._sessions:
            raise MissingModalityError(name)
        options = onnxruntime.RunOptions()
        # The head of regions is computed for those who ask for them alone.
        options.only_execute_path_to_fetches = True
        try:
            vectors: NDArray[np.float32] = self._sessions[name].run([output], inputs, options)[0]
        except ONNX_ERRORS as error:
            # ONNX Runtime has no exception of its own for it.
            if _NO_MEMORY in str(error):
                raise MemoryError(str(error)) from error
            raise
        return vectors


def _session(file: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Errors come as exceptions.
    options.log_severity_level = _FATAL
    # Threads that spin between passes would take the cores from those of the service.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
