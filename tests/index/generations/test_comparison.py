"""The comparison of two generations against a slow count."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from index.engine import SearchEngine
from index.generations.comparison import compare
from index.generations.models import list_generations
from tests.index.generations.test_reindex import _active, _build, _ingest
from tests.index.samples import make_manifest, make_records
from training.common.manifest import Manifest
from training.models.encoder import Encoder


def test_the_comparison_is_what_a_slow_count_finds(
    engine: SearchEngine, encoder: Encoder, other_encoder: Encoder, manifest: Manifest
) -> None:
    _ingest(engine, encoder, manifest)
    first = _active(engine)
    second = _build(engine, other_encoder)
    found = compare(engine.home, first, second)
    assert found is not None
    assert (found.against, found.held_out, found.candidates) == (first.id, "test", 20)
    assert list_generations(engine.home, "c")[0].comparison == found
    texts = found.text_to_image
    assert texts is not None
    held_out = [record for record in manifest.records if record.split == "test"]
    assert texts.queries == sum(len(record.texts) for record in held_out)
    names = [record.id for record in manifest.records]
    for model, generation, recall in ((encoder, first, texts.active), (other_encoder, second, texts.new)):
        active = engine.describe(generation)
        images = np.stack([engine.vector_of(active, name) for name in names])
        ranks = []
        for record in held_out:
            for vector in model.embed_texts(list(record.texts)).vectors if record.texts else ():
                order = [names[row] for row in np.argsort(-(images @ vector))]
                ranks.append(order.index(record.id))
        for k, percent in recall.items():
            assert percent == pytest.approx(100 * np.mean(np.array(ranks) < k), abs=100 / len(ranks) + 1e-6)
    assert found.image_to_image is not None
    assert found.image_to_image.queries == len(held_out)
    same = compare(engine.home, first, first)
    assert same is not None
    assert same.text_to_image is not None
    assert same.text_to_image.overlap == 100
    assert same.text_to_image.active == same.text_to_image.new


def test_a_sample_is_compared_where_no_split_is_held_out(
    engine: SearchEngine, encoder: Encoder, other_encoder: Encoder, tmp_path: Path
) -> None:
    records = [replace(record, split="train", labels=()) for record in make_records(12)]
    _ingest(engine, encoder, make_manifest(tmp_path / "train", records))
    found = compare(engine.home, _active(engine), _build(engine, other_encoder))
    assert found is not None
    assert found.held_out == "sample"
    assert found.image_to_image is not None
    assert (found.image_to_image.active, found.image_to_image.labelled) == (None, 0)
