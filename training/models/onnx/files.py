"""Files of a bundle's ONNX graphs, and reference inputs with their vectors."""

from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from training.models.bundle import CONFIG_FILE, BundleInfo, file_sha256
from training.models.config import DualEncoderConfig
from training.models.inputs.images import Pixels

FOLDER: Final = "onnx"
MANIFEST_FILE: Final = "manifest.json"
# Largest difference of any number of a unit vector from PyTorch's.
TOLERANCE: Final = 1e-3
REFERENCE_TEXTS: Final = ("", "a dog", "Two people walk along the beach with a dog, in the evening of 7 May.")
_REFERENCE_IMAGES: Final = 3

GraphName = Literal["image", "text"]


class Graph(BaseModel):
    """A tower with its head as a graph.

    Attributes:
        sha256: Of its file.
        reference: Vectors (R, D) by PyTorch of the reference inputs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str
    reference: list[list[float]]


class Manifest(BaseModel):
    """Content of manifest.json: the graphs of a bundle of this digest.

    Attributes:
        format_version: Version of this form.
        digest: Of the bundle.
        graphs: The graphs by name.
        regions: Whether the graph of images gives the embeddings of regions, too.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format_version: Literal[1] = 1
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    graphs: dict[GraphName, Graph]
    regions: bool = False


def graph_file(name: GraphName) -> str:
    """Name of the file of a graph."""
    return f"{name}.onnx"


def can_export(info: BundleInfo) -> bool:
    """Whether the vectors of a bundle are the outputs of one graph for each modality."""
    config = info.config
    return config.blades == 1 and config.pair_attention is None and not info.preprocessing.text.sentences


def read_graphs(info: BundleInfo, folder: Path) -> Manifest | None:
    """Manifest of the graphs in a folder; None where none belong to the bundle and are whole."""
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST_FILE).read_bytes())
        whole = all(
            file_sha256(folder / graph_file(name)) == graph.sha256 for name, graph in manifest.graphs.items()
        )
    except (OSError, ValidationError):
        return None
    return manifest if whole and manifest.digest == info.digest else None


def has_regions(bundle: Path) -> bool:
    """Tell if a bundle's encoder embeds regions of images; graphs of earlier releases do not."""
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
    """Images (R, 3, S, S) of waves of several lengths and directions, the same on every machine."""
    rows, columns = np.mgrid[:size, :size]
    waves = [
        [(rows * (1 + image) + columns * (3 + channel) + 37 * channel) % 256 for channel in range(3)]
        for image in range(_REFERENCE_IMAGES)
    ]
    return np.array(waves, np.uint8)


def agree(vectors: NDArray[np.float32], reference: list[list[float]]) -> bool:
    """Whether vectors (R, D) are the first of the reference, within the tolerance."""
    expected = np.array(reference[: len(vectors)], np.float32)
    return vectors.shape == expected.shape and bool(np.abs(vectors - expected).max() <= TOLERANCE)
