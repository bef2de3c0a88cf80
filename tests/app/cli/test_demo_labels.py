"""The demo finds by likeness alone what names of labels ask for, made the whole way that it goes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli.demo import TowersError, fetch_towers, prepare
from app.engine import open_engine
from index.engine import SearchEngine
from index.filters.grammar import parse_filter
from index.search.request import SearchRequest
from training.common.manifest import Manifest, read_manifest
from training.models.onnx.loading import load_query_encoder

pytestmark = pytest.mark.slow

LABELS = {
    "effusion": "Pleural Effusion",
    "edema": "Edema",
    "pacemaker": "Pacemaker",
    "no finding": "No Finding",
    "cardiomegaly": "Cardiomegaly",
    "pneumothorax": "Pneumothorax",
    "atelectasis": "Atelectasis",
    "central line": "Central Line",
    "consolidation": "Consolidation",
    "lung nodule": "Lung Nodule",
}
IMAGES = 600


class Demo:
    """A demo that is ready to be served."""

    def __init__(self, engine: SearchEngine, data: Path) -> None:
        self.engine = engine
        self.data = data

    def manifest(self, name: str) -> Manifest:
        """What was drawn for a collection."""
        return read_manifest(self.data / name)

    def right(self, *, held_out: bool) -> dict[str, int]:
        """For each name of a label, how many of the first ten radiographs have the label."""
        active = self.engine.active("radiographs")
        vectors = load_query_encoder(active.bundle, "cpu", only="text").embed_texts(list(LABELS)).vectors
        only = parse_filter({"not": {"field": "split", "eq": "train"}}) if held_out else None
        labels = {record.id: record.labels for record in self.manifest("radiographs").records}
        counts = {}
        for vector, (name, label) in zip(vectors, LABELS.items(), strict=True):
            hits = self.engine.search(active, vector, SearchRequest(k=10, filter=only)).hits
            assert len(hits) == 10
            counts[name] = sum(label in labels[hit.image.id] for hit in hits)
        return counts


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("demo")
    try:
        fetch_towers(folder / f"{IMAGES}-images" / "towers")
    except TowersError as error:
        pytest.skip(f"The demo's pretrained towers are missing, as pip cannot download them: {error}")
    engine = open_engine(prepare(folder, IMAGES))
    yield Demo(engine, folder / f"{IMAGES}-images" / "data")
    engine.close()


@pytest.mark.parametrize(("held_out", "least"), [(False, 8.5), (True, 7.5)])
def test_names_of_labels_find_images_that_have_them(demo: Demo, held_out: bool, least: float) -> None:
    right = demo.right(held_out=held_out)
    assert sum(right.values()) / len(right) >= least, right
    assert min(right.values()) >= 4, right


@pytest.mark.parametrize("name", ["radiographs", "scenes"])
def test_a_hundred_pairs_that_no_encoder_has_seen_are_searchable(demo: Demo, name: str) -> None:
    held_out = [record for record in demo.manifest(name).records if record.split != "train" and record.texts]
    assert len(held_out) >= 100
    assert demo.engine.collection(name).count == IMAGES
    for record in held_out:
        assert demo.engine.image(name, record.id).texts
