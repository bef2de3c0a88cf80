"""Texts keep their keys while they stay, and have vectors and findings, which go with them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from sqlalchemy import delete, func, select

from index.catalogue.tables import (
    REPORT_POSITION,
    FindingRow,
    ImageRow,
    RemovalRow,
    TextEmbeddingRow,
    TextRow,
)
from index.engine import SearchEngine
from index.ingest import ingest_manifest
from index.vectors.protocol import decode_vectors
from index.writes.deletion import delete_images
from tests.index.samples import begin_generation, make_manifest, put_vectors, unit_vectors
from training.common.manifest import Manifest, Record
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


ONE = Record(
    id="one",
    image="one.png",
    split="train",
    texts=("A chest.", "No effusion."),
    report="Small effusion; no mass.",
)
TWO = Record(id="two", image="two.png", split="train", texts=("Two dogs on a beach.",))


def _put(engine: SearchEngine, *records: Record) -> None:
    generation = begin_generation(engine, "c", 2)
    put_vectors(engine, generation, records, unit_vectors(len(records), 2))


def _rows(engine: SearchEngine) -> list[tuple[object, ...]]:
    query = (
        select(
            ImageRow.external_id,
            FindingRow.position,
            FindingRow.start,
            FindingRow.stop,
            FindingRow.finding,
            FindingRow.state,
            FindingRow.image_finding,
        )
        .join(ImageRow, (ImageRow.id == FindingRow.image_id))
        .where(ImageRow.collection_id == FindingRow.collection_id)
        .order_by(FindingRow.image_id, FindingRow.position, FindingRow.start)
    )
    with engine.home.catalogue.read() as session:
        return [tuple(row) for row in session.execute(query)]


def test_texts_and_reports_have_their_findings_and_photographs_none(engine: SearchEngine) -> None:
    _put(engine, ONE, TWO)
    assert _rows(engine) == [
        ("one", REPORT_POSITION, 6, 14, "pleural effusion", "present", "pleural effusion: present"),
        ("one", REPORT_POSITION, 19, 23, "mass", "absent", "mass: absent"),
        ("one", 1, 3, 11, "pleural effusion", "absent", "pleural effusion: present"),
    ]


def test_a_changed_report_has_other_findings(engine: SearchEngine) -> None:
    _put(engine, ONE, TWO)
    _put(engine, replace(ONE, report=None), replace(TWO, texts=("Hydropneumothorax.",)))
    assert _rows(engine) == [
        ("one", 1, 3, 11, "pleural effusion", "absent", "pleural effusion: absent"),
        ("two", 0, 0, 17, "pleural effusion", "present", "pleural effusion: present"),
        ("two", 0, 0, 17, "pneumothorax", "present", "pneumothorax: present"),
    ]


def test_findings_go_with_their_image(engine: SearchEngine) -> None:
    _put(engine, ONE, TWO)
    with engine.home.catalogue.write() as session:
        delete_images(session, "c", ["one"])
    with engine.home.catalogue.read() as session:
        assert session.execute(select(func.count()).select_from(FindingRow)).scalar_one() == 0
