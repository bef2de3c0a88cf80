"""The encoder of a bundle for many images: by ONNX Runtime on a CPU, by PyTorch on a GPU."""

from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from app.encoding.threads import cores
from index.files.bundles import installed_bundle
from index.home import Home
from training.models.bundle import read_bundle
from training.models.onnx.encoder import OnnxEncoder
from training.models.onnx.files import FOLDER, can_export
from training.models.onnx.loading import computes_on_cpu, load_onnx_encoder

if TYPE_CHECKING:
    from training.models.encoder import Encoder

_log = structlog.stdlib.get_logger(__name__)


def load_bulk_encoder(home: Home, bundle: Path, device: str) -> "Encoder | OnnxEncoder":
    """Load a bundle; on a CPU its ONNX graphs are made in its copy under `home`, unless they are there.

    Raises:
        BundleError: The bundle is missing, damaged or of a newer release, or compares pairs.
        RecipeError: The device does not exist.
    """
    info = read_bundle(bundle)
    if computes_on_cpu(device) and can_export(info):
        with installed_bundle(info, home.bundles_folder) as installed:
            return _on_cpu(bundle, installed.folder)
    # The import of torch takes seconds.
    from training.models.encoder import load_encoder

    return load_encoder(bundle, device)


def _on_cpu(bundle: Path, installed: Path) -> "Encoder | OnnxEncoder":
    by_onnx = load_onnx_encoder(bundle, threads=cores(), graphs=installed / FOLDER)
    # Graphs of earlier releases have no regions.
    if by_onnx is not None and by_onnx.regions == read_bundle(bundle).config.regions:
        return by_onnx
    from training.models.encoder import load_encoder
    from training.models.onnx.export import ExportError, export_towers

    encoder = load_encoder(bundle, "cpu")
    try:
        export_towers(encoder, installed)
    except ExportError as error:
        # The encoder of PyTorch gives the same vectors.
        _log.warning("no ONNX graphs could be made", bundle=installed.name, reason=str(error))
    return load_onnx_encoder(bundle, threads=cores(), graphs=installed / FOLDER) or encoder
