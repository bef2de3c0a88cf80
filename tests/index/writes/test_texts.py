"""Texts keep their keys while they stay, and have vectors in the generation of their images."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from sqlalchemy import delete, select

from index.catalogue.tables import RemovalRow, TextEmbeddingRow, TextRow
from index.engine import SearchEngine
from index.ingest import ingest_manifest
from index.vectors.codec import decode_vectors
from tests.index.samples import make_manifest
from training.common.manifest import Manifest
from training.models.encoder import Encoder


def _keys(engine: SearchEngine) -> dict[str, int]:
    with engine.home.catalogue.read() as session:
        return {row.text: row.id for row in session.execute(select(TextRow.id, TextRow.text))}


def _check_vectors(engine: SearchEngine, encoder: Encoder) -> None:
    query = select(TextRow.text, TextEmbeddingRow.vector).outerjoin(TextEmbeddingRow)
    with engine.home.catalogue.read() as session:
        rows = session.execute(query.order_by(TextRow.id)).all()
    found = decode_vectors([row.vector for row in rows], encoder.dim)
    np.testing.assert_allclose(found, encoder.embed_texts([row.text for row in rows]).vectors, atol=2e-3)


def test_a_text_that_stays_keeps_its_key(
    engine: SearchEngine, encoder: Encoder, manifest: Manifest, tmp_path: Path
) -> None:
    ingest_manifest(engine, "c", encoder, manifest, show_progress=False)
    before = _keys(engine)
    records = list(manifest.records)
    assert records[2].texts == ("text 2.0", "text 2.1")
    records[2] = replace(records[2], texts=("text 2.0", "another", "one more"))
    ingest_manifest(engine, "c", encoder, make_manifest(tmp_path / "data", records), show_progress=False)
    after = _keys(engine)
    removed = before.pop("text 2.1")
    assert {text: after[text] for text in before} == before
    assert min(after["another"], after["one more"]) > max(*before.values(), removed)
    with engine.home.catalogue.read() as session:
        assert session.execute(select(RemovalRow.target, RemovalRow.key)).all() == [("texts", removed)]
    _check_vectors(engine, encoder)


def test_texts_of_an_older_catalogue_get_their_vectors(
    engine: SearchEngine, encoder: Encoder, manifest: Manifest
) -> None:
    ingest_manifest(engine, "c", encoder, manifest, show_progress=False)
    with engine.home.catalogue.write() as session:
        session.execute(delete(TextEmbeddingRow))
    ingest_manifest(engine, "c", encoder, manifest, show_progress=False)
    _check_vectors(engine, encoder)
