"""Run a bundle's towers as ONNX graphs on the CPU with ONNX Runtime, without PyTorch."""

import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import onnxruntime
import onnxruntime.capi.onnxruntime_pybind11_state as onnx_errors
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from training.common.errors import MissingModalityError
from training.common.host import has_gpu_driver
from training.models.bundle import CONFIG_FILE, BundleInfo, file_sha256, read_bundle, read_tokenizer
from training.models.config import DualEncoderConfig, Modality
from training.models.image_input import ImageInput, Pixels
from training.models.text_input import TextEmbeddings, TextTokens, Tokenizer

if TYPE_CHECKING:
    from training.models.encoder import Encoder

FOLDER: Final = "onnx"
MANIFEST_FILE: Final = "manifest.json"
# Largest allowed difference from PyTorch in any component of a unit vector.
TOLERANCE: Final = 1e-3
REFERENCE_TEXTS: Final = ("", "a dog", "Two people walk along the beach with a dog, in the evening of 7 May.")
_REFERENCE_IMAGES: Final = 3

GraphName = Literal["image", "text"]
# Activations of larger batches don't fit into the processor's cache.
_ROWS: Final = 16
_FATAL: Final = 4
_NO_MEMORY: Final = "Failed to allocate memory"
# ONNX Runtime's exceptions have no common base but Exception.
ONNX_ERRORS: Final = (
    onnx_errors.EPFail,
    onnx_errors.Fail,
    onnx_errors.InvalidArgument,
    onnx_errors.InvalidGraph,
    onnx_errors.InvalidProtobuf,
    onnx_errors.NotImplemented,
    onnx_errors.RuntimeException,
)
_log = logging.getLogger(__name__)


class Graph(BaseModel):
    """The graph of a tower with its head, and PyTorch's vectors (R, D) of reference inputs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str
    reference: list[list[float]]


class Manifest(BaseModel):
    """Content of manifest.json: graphs and the digest of their bundle.

    Attributes:
        regions: Whether the graph of images also gives the embeddings of regions.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format_version: Literal[1] = 1
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    graphs: dict[GraphName, Graph]
    regions: bool = False


def graph_file(name: GraphName) -> str:
    """File name of a graph."""
    return f"{name}.onnx"


def can_export(info: BundleInfo) -> bool:
    """Whether one graph per modality can compute a bundle's vectors."""
    config = info.config
    return config.blades == 1 and config.pair_attention is None and not info.preprocessing.text.sentences


def read_graphs(info: BundleInfo, folder: Path) -> Manifest | None:
    """Manifest of the graphs in a folder; None if they are incomplete or of another bundle."""
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST_FILE).read_bytes())
        whole = all(
            file_sha256(folder / graph_file(name)) == graph.sha256 for name, graph in manifest.graphs.items()
        )
    except (OSError, ValidationError):
        return None
    return manifest if whole and manifest.digest == info.digest else None


def has_regions(bundle: Path) -> bool:
    """Whether a bundle's encoder embeds image regions; graphs of earlier releases don't."""
    try:
        config = DualEncoderConfig.model_validate_json((bundle / CONFIG_FILE).read_bytes())
    except (OSError, ValidationError):
        return False
    try:
        manifest = Manifest.model_validate_json((bundle / FOLDER / MANIFEST_FILE).read_bytes())
    except (OSError, ValidationError):
        return config.regions
    return config.regions and manifest.regions


def reference_images(size: int) -> Pixels:
    """Images (R, 3, S, S) of waves of several lengths and directions, identical on every machine."""
    rows, columns = np.mgrid[:size, :size]
    waves = [
        [(rows * (1 + image) + columns * (3 + channel) + 37 * channel) % 256 for channel in range(3)]
        for image in range(_REFERENCE_IMAGES)
    ]
    return np.array(waves, np.uint8)


def agree(vectors: NDArray[np.float32], reference: list[list[float]]) -> bool:
    """Whether vectors (R, D) match the first R of the reference, within the tolerance."""
    expected = np.array(reference[: len(vectors)], np.float32)
    return vectors.shape == expected.shape and bool(np.abs(vectors - expected).max() <= TOLERANCE)


class OnnxEncoder(ImageInput):
    """Embeds images and texts as `training.models.encoder.Encoder` does; threads may share it.

    With `regions`, the image graph also returns the embeddings of regions.
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
        starts = range(0, len(images), _ROWS)
        parts = [self._run("image", {"images": images[n : n + _ROWS]}, "regions") for n in starts]
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
        # Batches of similar lengths need little padding.
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(texts), _ROWS):
            rows = order[start : start + _ROWS]
            length = lengths[rows].max()
            inputs = {"input_ids": ids[rows, :length], "attention_mask": mask[rows, :length]}
            vectors[rows] = self._run("text", inputs)
        return TextEmbeddings(vectors, tokens.truncations, tuple(lengths.tolist()))

    def agrees(self, graphs: Mapping[GraphName, Graph]) -> bool:
        """Whether each reference input, run alone (unlike in the export), gives its vector."""
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
        """Run a graph on a batch: vectors (B, D), or regions (B, K, D).

        Raises:
            MissingModalityError: There is no such graph.
            MemoryError: There isn't enough memory.
        """
        if name not in self._sessions:
            raise MissingModalityError(name)
        options = onnxruntime.RunOptions()
        # Region embeddings are computed only on request.
        options.only_execute_path_to_fetches = True
        try:
            vectors: NDArray[np.float32] = self._sessions[name].run([output], inputs, options)[0]
        except ONNX_ERRORS as error:
            # ONNX Runtime has no dedicated exception for this.
            if _NO_MEMORY in str(error):
                raise MemoryError(str(error)) from error
            raise
        return vectors


def _session(file: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Errors are raised; don't log them as well.
    options.log_severity_level = _FATAL
    # Spinning threads would take CPU time from the service's.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def load_query_encoder(
    folder: Path, device: str, *, only: Modality | None = None, threads: int = 1
) -> "Encoder | OnnxEncoder":
    """Load a bundle for queries, or the tower of one modality, on a torch device; "auto" prefers the GPU.

    Raises:
        BundleError: The bundle is missing, damaged or of a newer release.
        RecipeError: The device does not exist.
    """
    if computes_on_cpu(device):
        encoder = load_onnx_encoder(folder, only=only, threads=threads)
        if encoder is not None:
            return encoder
    # The import of torch takes seconds.
    from training.models.encoder import load_encoder

    return load_encoder(folder, device, only=only)


def load_onnx_encoder(
    folder: Path, *, only: Modality | None = None, threads: int = 1, graphs: Path | None = None
) -> OnnxEncoder | None:
    """Load the graphs of a bundle; None if they are missing or their vectors differ from the encoder's.

    `only` loads the graph of one modality. `graphs` is their folder if it is outside the bundle.

    Raises:
        BundleError: The bundle is missing, damaged or of a newer release.
    """
    info = read_bundle(folder)
    graphs = graphs or folder / FOLDER
    manifest = read_graphs(info, graphs)
    if manifest is None:
        return None
    names = [name for name in manifest.graphs if only in (None, name)]
    try:
        encoder = OnnxEncoder(info, read_tokenizer(info), graphs, names, threads, regions=manifest.regions)
        if encoder.agrees(manifest.graphs):
            return encoder
    except ONNX_ERRORS as error:
        _log.warning("ONNX Runtime does not compute the graphs of %s: %s", folder, error)
    else:
        _log.warning("The ONNX graphs of %s give other vectors than its encoder and are not used.", folder)
    return None


def computes_on_cpu(device: str) -> bool:
    """Whether a torch device is the CPU; imports torch only if there may be a GPU.

    Raises:
        RecipeError: The device does not exist.
    """
    if device == "cpu" or (device == "auto" and not has_gpu_driver()):
        return True
    from training.models.encoder import choose_device

    return choose_device(device).type == "cpu"
