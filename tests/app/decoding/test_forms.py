"""Every form of image file is the same picture by upload, by query, by import and as a thumbnail."""

import asyncio
import io
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from app.decoding.images import ImageDecoders
from app.settings import Settings
from tests.access import OPEN
from tests.app.conftest import COLLECTION, Indexed, make_bundle, serve
from tests.app.images.test_uploads import nearest, put
from tests.image_files import encoded
from tests.image_form import ImageForm
from tests.image_formats import IMAGE_FORMS
from tests.image_quadrants import LOSSY, differs_by
from tests.training.imaging.processes.decoding import wait_until
from training.common.manifest import Record, read_manifest, write_manifest
from training.imaging.images import decode_image
from training.models.config import ImagePreprocessingConfig
from training.models.inputs.images import to_pixels

# Every form is decoded by quick tests of `training`: here all ways of some.
NUMBERED = [
    pytest.param(number, form, id=form.name, marks=() if number % 4 == 0 else pytest.mark.slow)
    for number, form in enumerate(IMAGE_FORMS)
]
ALIKE = 0.9999


@dataclass(frozen=True)
class Served:
    """A service whose collection has every form by import."""

    client: TestClient
    decoders: ImageDecoders


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("forms")
    records = []
    for number, form in enumerate(IMAGE_FORMS):
        (folder / f"{number}.bin").write_bytes(form.make())
        records.append(Record(id=f"imported-{number}", image=f"{number}.bin", split="test"))
    write_manifest(folder, records)
    home = indexed_in(folder)
    with closing(ImageDecoders(home.settings)) as decoders, serve(home) as client:
        wait_until(lambda: bool(decoders.pool.pids))
        yield Served(client, decoders)


def indexed_in(folder: Path, **settings: Any) -> Indexed:
    """A home in a folder, with a collection of the images of its manifest."""
    given = Settings(home=folder / "home", threads=1, device="cpu", **OPEN, **settings)
    home = Indexed(given, read_manifest(folder), make_bundle(folder / "bundle", seed=0))
    home.index(COLLECTION, home.bundle)
    with home.engine() as engine:
        assert engine.collection(COLLECTION).count == len(home.manifest.records)
    return home


def shown(client: TestClient, image_id: str, kind: str) -> Image.Image:
    path = f"/v1/collections/{COLLECTION}/images/{image_id}/{kind}"
    answer = client.get(path, headers={"accept": "image/png"})
    assert answer.status_code == 200, answer.text
    return Image.open(io.BytesIO(answer.content)).convert("RGB")


@pytest.mark.parametrize(("number", "form"), NUMBERED)
def test_uploads_queries_imports_thumbnails_and_renditions_show_one_picture(
    served: Served, number: int, form: ImageForm
) -> None:
    content = form.make()
    assert put(served.client, f"uploaded-{number}", content).json()["status"] == "created"
    for image_id in (f"imported-{number}", f"uploaded-{number}"):
        hit = nearest(served.client, content, filter={"field": "id", "eq": image_id})
        assert (hit["id"], hit["score"] > ALIKE) == (image_id, True)
        for kind, tolerance in (("thumbnail", form.tolerance + LOSSY), ("rendition", form.tolerance)):
            assert differs_by(shown(served.client, image_id, kind), form.quadrants) <= tolerance
    config = ImagePreprocessingConfig(size=32)
    pixels = asyncio.run(served.decoders.decode_query(content, config)).pixels
    assert np.array_equal(pixels, to_pixels(decode_image(content), config))


def ids_with(client: TestClient, field: str) -> set[str]:
    query = {"limit": 50, "filter": {"field": field, "eq": True}}
    answer = client.post(
        f"/v1/collections/{COLLECTION}/search",
        data={"query": json.dumps(query)},
        files={"image": ("x.png", encoded(Image.new("RGB", (9, 9)), "PNG"), "image/png")},
    )
    assert answer.status_code == 200, answer.text
    return {hit["id"] for hit in answer.json()["hits"]}


def test_flags_are_fields_that_go_with_the_picture(tmp_path: Path) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 90, 3), dtype=np.uint8))
    blank = encoded(Image.new("RGB", (60, 50), "teal"), "PNG")
    whole = encoded(noise, "JPEG")
    (tmp_path / "blank.png").write_bytes(blank)
    (tmp_path / "noise.jpg").write_bytes(whole)
    records = [Record(id=path, image=path, split="test") for path in ("blank.png", "noise.jpg")]
    write_manifest(tmp_path, records)
    with serve(indexed_in(tmp_path, accept_truncated_images=True)) as client:
        assert ids_with(client, "image.blank") == {"blank.png"}
        counted = client.post(f"/v1/collections/{COLLECTION}/facets", json={"field": "image.blank"}).json()
        assert {value["value"]: value["count"] for value in counted["fields"][0]["values"]} == {
            True: 1,
            False: 1,
        }
        assert counted["fields"][0]["distinct"] == 2
        put(client, "sent", blank)
        put(client, "cut", whole[: len(whole) // 2])
        assert ids_with(client, "image.blank") == {"blank.png", "sent"}
        assert ids_with(client, "image.truncated") == {"cut"}
        path = f"/v1/collections/{COLLECTION}/images"
        changes: dict[str, Any] = {"metadata": {"age": 3}}
        assert client.patch(f"{path}/sent", json=changes).status_code == 200
        assert ids_with(client, "image.blank") == {"blank.png", "sent"}
        put(client, "sent", whole, {"metadata": {"age": 4}})
        assert ids_with(client, "image.blank") == {"blank.png"}
        refused = client.patch(f"{path}/sent", json={"metadata": {"image.blank": True}})
        assert refused.status_code == 422
        assert "a flag that recoquest sets" in refused.text
