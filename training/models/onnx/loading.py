"""The encoder of a bundle, computed by ONNX Runtime where its graphs are there, else by PyTorch."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from training.common.host import has_gpu_driver
from training.models.bundle import read_bundle, read_tokenizer
from training.models.config import Modality
from training.models.onnx.encoder import ONNX_ERRORS, OnnxEncoder
from training.models.onnx.files import FOLDER, read_graphs

if TYPE_CHECKING:
    from training.models.encoder import Encoder

_log = logging.getLogger(__name__)


def load_query_encoder(
    folder: Path, device: str, *, only: Modality | None = None, threads: int = 1
) -> "Encoder | OnnxEncoder":
    """Load a bundle for queries.

    Args:
        folder: Of the bundle.
        device: A torch device; "auto": the GPU if there is one, else the CPU.
        only: Load the tower of this modality alone; None: all.
        threads: Threads of a forward pass by ONNX Runtime.

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
    """Load the graphs of a bundle; None where they are not there, or their vectors are not the encoder's.

    Args:
        folder: Of the bundle.
        only: Load the graph of this modality alone; None: all.
        threads: Threads of a forward pass.
        graphs: Folder of the graphs; None: in the bundle.

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
    """Whether a torch device is the CPU; torch is asked only where there may be a GPU.

    Raises:
        RecipeError: The device does not exist.
    """
    if device == "cpu" or (device == "auto" and not has_gpu_driver()):
        return True
    from training.models.encoder import choose_device

    return choose_device(device).type == "cpu"
