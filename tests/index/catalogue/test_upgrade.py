"""A catalogue of the oldest schema with data in it is brought up to date on both databases."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import MetaData, insert, select, text

from index.backup import restore_backup, write_backup
from index.catalogue import open_catalogue
from index.catalogue.collections import find_active
from index.catalogue.full_text import matching
from index.catalogue.jobs import add_job, claim_job, end_job, get_job
from index.catalogue.schema import RULES, DerivedRow
from index.catalogue.tables import EmbeddingRow, FindingRow, GenerationRow, ImageRow, Table, TextRow
from index.engine import SearchEngine
from index.feedback import (
    FeedbackCounts,
    JudgedQuery,
    count_feedback,
    judgements,
    record_judgement,
)
from index.ingest import ingest_manifest
from index.vectors.protocol import encode_vectors
from tests.index.catalogue.revisions import oldest_schema
from tests.index.comparing import answers, rows
from tests.index.homes import open_home
from training.common.manifest import Manifest
from training.models.encoder import Encoder

Rows = dict[str, list[dict[str, Any]]]

_VECTOR = encode_vectors(np.eye(1, 4, dtype=np.float32))[0]
_ROWS = (
    "INSERT INTO collections (id, name, sequence) VALUES (1, 'c', 2)",
    "INSERT INTO models (id, digest, name, dim, recipe, created, metrics) "
    "VALUES (1, 'abc', 'tiny', 4, '', '2026-01-01', '{}')",
    "INSERT INTO generations (id, collection_id, model_id, uid, state, activated) "
    "VALUES (1, 1, 1, 'uid', 'active', '2026-01-01T00:00:00+00:00'), (2, 1, 1, 'other', 'building', NULL)",
    "INSERT INTO images (id, collection_id, external_id, sha256, media_type, width, height, split, report, "
    "labels, details, record_digest) "
    "VALUES (1, 1, 'one', 'sha', 'image/png', 4, 4, 'test', 'No effusion.Edema', '[]', '{}', 'digest')",
    "INSERT INTO texts (image_id, position, text) VALUES (1, 0, 'First'), (1, 1, 'Second sentence')",
    "INSERT INTO embeddings (generation_id, image_id, sequence, vector) VALUES (1, 1, 2, :vector)",
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where the catalogue is, if it is in SQLite."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def old_catalogue(catalogue_url: str, home: Path) -> str:
    with oldest_schema(catalogue_url) as connection:
        for statement in _ROWS:
            values = {"vector": _VECTOR} if ":vector" in statement else {}
            connection.execute(text(statement), values)
    return catalogue_url


def test_nothing_is_lost_and_words_are_taken_in(old_catalogue: str, caplog: pytest.LogCaptureFixture) -> None:
    catalogue = open_catalogue(old_catalogue)
    with catalogue.read() as session:
        found = find_active(session, "c")
        assert found is not None
        generation, sequence = found
        assert (generation.id, generation.blades, generation.unsigned, sequence) == (1, 1, False, 2)
        assert session.execute(select(EmbeddingRow.vector)).scalar_one() == _VECTOR
        assert session.execute(select(ImageRow.report)).scalar_one() == "No effusion.Edema"
        texts = session.execute(select(TextRow.position, TextRow.text).order_by(TextRow.id)).all()
        assert texts == [(0, "First"), (1, "Second sentence")]
        activated = select(GenerationRow.id, GenerationRow.by_hand, GenerationRow.confidence)
        assert session.execute(activated.order_by(GenerationRow.id)).all() == [
            (1, True, None),
            (2, False, None),
        ]
        assert session.execute(select(DerivedRow.rules)).scalar_one() == str(RULES)
        for word in ("effusion", "edema", "second"):
            assert matching(session, generation.collection_id, word, 9).tolist() == [1], word
        findings = select(FindingRow.position, FindingRow.finding, FindingRow.state, FindingRow.image_finding)
        assert session.execute(findings.order_by(FindingRow.start)).all() == [
            (-1, "pleural effusion", "absent", "pleural effusion: absent"),
            (-1, "pulmonary edema", "present", "pulmonary edema: present"),
        ]
    catalogue.close()
    open_catalogue(old_catalogue).close()
    assert [record.message.count("is brought up to date") for record in caplog.records] == [1]


def _all_rows(engine: SearchEngine) -> Rows:
    with engine.home.catalogue.read() as session:
        return {
            table.name: [
                dict(row) for row in session.execute(select(table).order_by(*table.primary_key)).mappings()
            ]
            for table in Table.metadata.sorted_tables
        }


def _of_oldest_schema(oldest: MetaData, found: Rows) -> Rows:
    """The rows of tables that the oldest schema has, with the columns that it has."""
    return {
        table.name: [{column.name: row[column.name] for column in table.c} for row in found[table.name]]
        for table in oldest.sorted_tables
        if table.name in found and table.name != "home"
    }


@pytest.fixture
def before(encoder: Encoder, manifest: Manifest, tmp_path: Path) -> Iterator[SearchEngine]:
    """What is to be found again: two collections that were written today."""
    engine = open_home(tmp_path / "before")
    for name in ("c", "d"):
        ingest_manifest(engine, name, encoder, manifest, show_progress=False)
    yield engine
    engine.close()


@pytest.fixture
def oldest(before: SearchEngine, catalogue_url: str, home: Path) -> MetaData:
    """The tables of an installation of the oldest schema, which holds all of `before` that they can."""
    tables = MetaData()
    with oldest_schema(catalogue_url) as connection:
        tables.reflect(connection)
        content = _of_oldest_schema(tables, _all_rows(before))
        del content["derived_rules"]
        for table in tables.sorted_tables:
            if content.get(table.name):
                connection.execute(insert(table), content[table.name])
    for folder in ("images", "bundles"):
        shutil.copytree(home.with_name("before") / folder, home / folder)
    return tables


def test_an_installation_of_the_oldest_schema_keeps_all_and_does_what_is_new(
    before: SearchEngine, oldest: MetaData, catalogue_url: str, home: Path, encoder: Encoder
) -> None:
    engine = open_home(home, catalogue_url)
    content = _of_oldest_schema(oldest, _all_rows(before))
    filled = {name for name, found in content.items() if found}
    assert filled >= {"attributes", "embeddings", "fields", "findings", "images", "texts", "text_embeddings"}
    assert _of_oldest_schema(oldest, _all_rows(engine)) == content
    for name in ("c", "d"):
        assert answers(engine, name, encoder) == answers(before, name, encoder)
    _judge_and_give_a_job(engine)
    write_backup(engine.home, home / "backup.tar", show_progress=False)
    again = open_home(home.with_name("again"))
    restore_backup(again.home, home / "backup.tar", show_progress=False)
    assert rows(again) == rows(engine)
    assert answers(again, "d", encoder) == answers(before, "d", encoder)
    with again.home.catalogue.read() as session:
        assert [(said.image, said.relevant) for said in judgements(session, "c")] == [("image-003", True)]
    again.close()
    engine.close()


def _judge_and_give_a_job(engine: SearchEngine) -> None:
    with engine.home.catalogue.write() as session:
        record_judgement(session, "c", JudgedQuery(texts=("text 3.0",)), "image-003", True, limit=10)
        job = add_job(session, "tidy", [])
    with engine.home.catalogue.write() as session:
        assert claim_job(session, job.id, "worker") is not None
        end_job(session, job.id, "worker", "done", result={"n": 1})
    with engine.home.catalogue.read() as session:
        counts = count_feedback(session, "c")
        assert counts == FeedbackCounts(relevant=1, not_relevant=0, queries=1, latest=counts.latest)
        done = get_job(session, job.id)
        assert (done.state, done.attempts, done.result) == ("done", 1, {"n": 1})
