from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from tests.training.evaluation.encoders import COLOURS
from training.common.manifest import Manifest, Record, read_manifest, write_manifest

WriteManifest = Callable[[list[Record]], Manifest]


@pytest.fixture
def manifest_of(tmp_path: Path) -> WriteManifest:
    """Write records; the image of `red-1` is red, that of an id without a colour is no image."""

    def write(records: list[Record]) -> Manifest:
        named = [replace(record, image=f"{record.id}.png") for record in records]
        for record in named:
            path = tmp_path / record.image
            colour = record.id.split("-")[0]
            if colour in COLOURS:
                Image.new("RGB", (4, 4), COLOURS[colour]).save(path)
            else:
                path.write_bytes(b"no image")
        write_manifest(tmp_path, named)
        return read_manifest(tmp_path)

    return write
