"""A folder of six photographs."""

from pathlib import Path

import pytest

from tests.image_files import write_photo


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(1, 7):
        write_photo(photos / f"{number}.jpg")
    return photos
