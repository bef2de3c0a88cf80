"""The encoder of a bundle for many images: by ONNX Runtime on a CPU, by PyTorch on a GPU."""

from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from app.encoding.threads import cores
from index.files.bundles import installed_bundle
from index.home import Home
from training.models.bundle import BundleInfo, read_bundle, read_tokenizer
from training.models.onnx.encoder import OnnxEncoder
from training.models.onnx.files import FOLDER, read_manifest
from training.models.onnx.loading import computes_on_cpu

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
    if computes_on_cpu(device):
        with installed_bundle(info, home.bundles_folder) as installed:
            encoder = _by_onnx(info, installed)
        if encoder is not None:
            return encoder
    # The import of torch takes seconds.
    from training.models.encoder import load_encoder

    return load_encoder(bundle, device)


def _by_onnx(info: BundleInfo, installed: BundleInfo) -> OnnxEncoder | None:
    manifest = read_manifest(installed)
    if manifest is None:
        _export(info, installed)
        manifest = read_manifest(installed)
    if manifest is None:
        return None
    encoder = OnnxEncoder(
        info, read_tokenizer(info), installed.folder / FOLDER, manifest.graphs, threads=cores()
    )
    return encoder if encoder.agrees(manifest.graphs) else None


def _export(info: BundleInfo, installed: BundleInfo) -> None:
    from training.models.encoder import load_encoder
    from training.models.onnx.export import can_export, export_towers

    if not can_export(info):
        return
    try:
        export_towers(load_encoder(info.folder, "cpu"), installed.folder)
    except Exception as error:  # noqa: BLE001 - the encoder of PyTorch answers as well
        _log.warning("no ONNX graphs could be made", bundle=info.name, reason=str(error))
