"""Texts keep their keys; their vectors, findings and words are made before the lock, and go with them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from index.catalogue import Catalogue, full_text, tables
from index.catalogue.words import indexed_text
from index.engine import SearchEngine
from index.vectors.protocol import decode_vectors
from index.writes import images
from index.writes.deletion import delete_images
from index.writes.live import change_image
from tests.index.homes import execute, in_write, scalars
from tests.index.samples import ingest, make_manifest, put_records
from training.clinical.findings import find_findings
from training.common.manifest import Manifest, Record
from training.models.encoder import Encoder


def _keys(engine: SearchEngine) -> dict[str, int]:
    with engine.home.catalogue.read() as session:
        return {row.text: row.id for row in session.execute(select(tables.TextRow.id, tables.TextRow.text))}


def _check_vectors(engine: SearchEngine, encoder: Encoder) -> None:
    query = select(tables.TextRow.text, tables.TextEmbeddingRow.vector).outerjoin(tables.TextEmbeddingRow)
    with engine.home.catalogue.read() as session:
        rows = session.execute(query.order_by(tables.TextRow.id)).all()
    result = decode_vectors([row.vector for row in rows], encoder.dim)
    np.testing.assert_allclose(result, encoder.embed_texts([row.text for row in rows]).vectors, atol=2e-3)


def test_a_text_that_stays_keeps_its_key(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest, tmp_path: Path
) -> None:
    before = _keys(indexed)
    records = list(manifest.records)
    assert records[2].texts == ("text 2.0", "text 2.1")
    records[2] = replace(records[2], texts=("text 2.0", "another", "one more"))
    ingest(indexed, encoder, make_manifest(tmp_path / "data", records))
    after = _keys(indexed)
    removed = before.pop("text 2.1")
    assert {text: after[text] for text in before} == before
    assert min(after["another"], after["one more"]) > max(*before.values(), removed)
    with indexed.home.catalogue.read() as session:
        assert session.execute(select(tables.RemovalRow.target, tables.RemovalRow.key)).all() == [
            ("texts", removed)
        ]
    _check_vectors(indexed, encoder)


def test_texts_of_an_older_catalogue_get_their_vectors(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest
) -> None:
    execute(indexed, delete(tables.TextEmbeddingRow))
    ingest(indexed, encoder, manifest)
    _check_vectors(indexed, encoder)


ONE = Record(
    id="one",
    image="one.png",
    split="train",
    texts=("A chest.", "No effusion."),
    report="Small effusion; no mass.",
)
TWO = Record(id="two", image="two.png", split="train", texts=("Two dogs on a beach.",))


def _rows(engine: SearchEngine) -> list[tuple[object, ...]]:
    query = (
        select(
            tables.ImageRow.external_id,
            tables.FindingRow.position,
            tables.FindingRow.start,
            tables.FindingRow.stop,
            tables.FindingRow.finding,
            tables.FindingRow.state,
            tables.FindingRow.image_finding,
        )
        .join(tables.ImageRow, (tables.ImageRow.id == tables.FindingRow.image_id))
        .where(tables.ImageRow.collection_id == tables.FindingRow.collection_id)
        .order_by(tables.FindingRow.image_id, tables.FindingRow.position, tables.FindingRow.start)
    )
    with engine.home.catalogue.read() as session:
        return [tuple(row) for row in session.execute(query)]


def test_texts_and_reports_have_findings_which_change_and_go_with_them(engine: SearchEngine) -> None:
    put_records(engine, [ONE, TWO], 2)
    assert _rows(engine) == [
        ("one", tables.REPORT_POSITION, 6, 14, "pleural effusion", "present", "pleural effusion: present"),
        ("one", tables.REPORT_POSITION, 19, 23, "mass", "absent", "mass: absent"),
        ("one", 1, 3, 11, "pleural effusion", "absent", "pleural effusion: present"),
    ]
    put_records(engine, [replace(ONE, report=None), replace(TWO, texts=("Hydropneumothorax.",))], 2)
    assert _rows(engine) == [
        ("one", 1, 3, 11, "pleural effusion", "absent", "pleural effusion: absent"),
        ("two", 0, 0, 17, "pleural effusion", "present", "pleural effusion: present"),
        ("two", 0, 0, 17, "pneumothorax", "present", "pneumothorax: present"),
    ]
    in_write(engine, delete_images, "c", ["two"])
    assert scalars(engine, select(tables.FindingRow.finding)) == ["pleural effusion"]


SAID = "There is a small effusion."


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each look for findings and words was under the lock."""
    locked, computed = [False], list[bool]()
    write = Catalogue.write

    @contextmanager
    def noted(self: Catalogue) -> Iterator[Session]:
        with write(self) as session:
            locked[0] = True
            try:
                yield session
            finally:
                locked[0] = False

    def watched(compute: Callable[[str], object]) -> Callable[[str], object]:
        def watch(text: str) -> object:
            computed.append(locked[0])
            return compute(text)

        return watch

    monkeypatch.setattr(Catalogue, "write", noted)
    monkeypatch.setattr(images, "find_findings", watched(find_findings))
    monkeypatch.setattr(full_text, "indexed_text", watched(indexed_text))
    return computed


def said(record: Record) -> Record:
    return replace(record, texts=(*record.texts, SAID))


IMAGE = "image-000"


def test_findings_and_words_are_found_before_the_lock(
    engine: SearchEngine, encoder: Encoder, manifest: Manifest, computed: list[bool]
) -> None:
    ingest(engine, encoder, manifest)
    assert change_image(engine.home, engine.active("c"), IMAGE, said, {}).outcome == "replaced"
    assert len(computed) >= 8
    assert not any(computed)
    (finding,) = engine.image("c", IMAGE).findings
    assert finding.finding == "pleural effusion"


def test_an_image_that_was_changed_meanwhile_is_looked_at_again(indexed: SearchEngine) -> None:
    active, seen = indexed.active("c"), list[Record]()

    def change(record: Record) -> Record:
        if not seen:
            seen.append(record)
            other = replace(record, report="No pneumothorax.")
            change_image(indexed.home, active, IMAGE, lambda _: other, {})
        return said(record)

    change_image(indexed.home, active, IMAGE, change, {})
    image = indexed.image("c", IMAGE)
    assert (image.report, image.texts[-1]) == ("No pneumothorax.", SAID)
    assert [finding.finding for finding in image.findings] == ["pneumothorax", "pleural effusion"]
    assert indexed.facets("c").findings != ()
