"""ONNX graphs of a registered bundle, by which a search from the command line needs no PyTorch."""

import structlog

from index.home import Home
from training.models.encoder import Encoder

_log = structlog.stdlib.get_logger(__name__)


def add_graphs(home: Home, encoder: Encoder) -> None:
    """Export the towers of an encoder to its registered bundle, unless the graphs are there."""
    # The import of the exporter takes a second.
    from training.models.bundle import read_bundle
    from training.models.onnx.export import can_export, export_towers
    from training.models.onnx.files import read_manifest

    assert encoder.info is not None
    folder = home.bundles_folder / encoder.info.digest
    info = read_bundle(folder)
    if not can_export(info) or read_manifest(info) is not None:
        return
    try:
        export_towers(encoder, folder)
    except Exception as error:  # noqa: BLE001 - the encoder of PyTorch answers as well
        _log.warning("no ONNX graphs could be made", bundle=info.name, reason=str(error))
