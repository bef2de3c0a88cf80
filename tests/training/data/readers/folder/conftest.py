"""A folder of six photographs."""

from pathlib import Path

import pytest

from tests.image_files import JPEG_START


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(1, 7):
        (photos / f"{number}.jpg").write_bytes(JPEG_START)
    return photos
