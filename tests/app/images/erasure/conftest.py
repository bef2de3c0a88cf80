"""A home with an image like no other, and a service of it."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from tests.app.conftest import COLLECTION, Indexed, serve
from tests.app.images.erasure.homes import TEXT
from training.common.manifest import read_manifest, write_manifest


@pytest.fixture
def marked(own: Indexed) -> Indexed:
    """A home in which one image has a text like no other."""
    folder = own.manifest.folder
    records = [
        replace(record, texts=(TEXT,), report=f"Report: {TEXT}.") if record.id == "image-5" else record
        for record in own.manifest.records
    ]
    write_manifest(folder, records)
    again = Indexed(own.settings, read_manifest(folder), own.bundle)
    again.index(COLLECTION, own.bundle)
    with own.engine() as engine:
        engine.save_snapshot(COLLECTION)
    return again


@pytest.fixture
def service(marked: Indexed) -> Iterator[TestClient]:
    with serve(marked) as running:
        yield running
