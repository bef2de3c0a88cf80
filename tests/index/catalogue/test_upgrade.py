"""A catalogue of the first schema with data in it is brought up to date on both databases."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import MetaData, create_engine, insert, select, text

from index.backup import restore_backup, write_backup
from index.catalogue import open_catalogue
from index.catalogue.collections import find_active
from index.catalogue.full_text import matching
from index.catalogue.jobs import add_job, claim_job, end_job, get_job
from index.catalogue.tables import (
    AttributeRow,
    EmbeddingRow,
    FindingRow,
    ImageRow,
    Table,
    TextRow,
    VocabularyRow,
)
from index.engine import SearchEngine
from index.feedback.judgements import (
    FeedbackCounts,
    JudgedQuery,
    count_feedback,
    judgements,
    record_judgement,
)
from index.ingest import ingest_manifest
from index.vectors.codec import encode_vectors
from tests.index.catalogue.revisions import schema_of
from tests.index.comparing import answers, rows
from tests.index.homes import open_home
from training.data.manifest import Manifest
from training.models.encoder import Encoder

Rows = dict[str, list[dict[str, Any]]]

_VECTOR = encode_vectors(np.eye(1, 4, dtype=np.float32))[0]
_ROWS = (
    "INSERT INTO collections (id, name, sequence) VALUES (1, 'c', 2)",
    "INSERT INTO models (id, digest, name, dim, recipe, created, metrics) "
    "VALUES (1, 'abc', 'tiny', 4, '', '2026-01-01', '{}')",
    "INSERT INTO generations (id, collection_id, model_id, uid, state) VALUES (1, 1, 1, 'uid', 'active')",
    "INSERT INTO images (id, collection_id, external_id, sha256, media_type, width, height, split, report, "
    "labels, details, record_digest) "
    "VALUES (1, 1, 'one', 'sha', 'image/png', 4, 4, 'test', 'No effusion.Edema', '[]', '{}', 'digest')",
    "INSERT INTO texts (image_id, position, text) VALUES (1, 1, 'Second sentence'), (1, 0, 'First')",
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
    with schema_of(catalogue_url, "0001") as connection:
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


def test_new_rows_go_in_beside_the_old_ones(old_catalogue: str) -> None:
    catalogue = open_catalogue(old_catalogue)
    with catalogue.write() as session:
        session.add(TextRow(image_id=1, position=2, text="Third"))
    with catalogue.read() as session:
        assert session.execute(select(TextRow.text).order_by(TextRow.id)).scalars().all()[-1] == "Third"
    catalogue.close()


def test_what_is_too_long_for_postgresql_is_kept_and_no_longer_filtered_by(
    catalogue_url: str, home: Path
) -> None:
    report = " ".join(f"{number:07}" for number in range(200_000))
    with schema_of(catalogue_url, "0001") as connection:
        for statement in _ROWS[:4]:
            connection.execute(text(statement.replace("No effusion.Edema", report)))
        attribute = (
            "INSERT INTO attributes (image_id, name, position, collection_id, kind, text_value) "
            "VALUES (1, :name, 0, 1, 'text', :value)"
        )
        values = {"kept": "é" * 1000, "gone": "é" * 1001}
        connection.execute(text(attribute), [{"name": name, "value": values[name]} for name in values])
    engine = open_home(home, catalogue_url)
    with engine.home.catalogue.read() as session:
        assert session.execute(select(AttributeRow.name)).scalars().all() == ["kept"]
        assert session.execute(select(ImageRow.report)).scalar_one() == report
        assert matching(session, 1, "0000000", 9).tolist() == [1]
        assert matching(session, 1, "0199999", 9).tolist() == []
    engine.close()


def test_words_of_all_images_are_split_anew(catalogue_url: str, home: Path) -> None:
    """More images than are taken in at once, in two collections, of which one has images in between."""
    count = 1201
    with schema_of(catalogue_url, "0001") as connection:
        connection.execute(text(_ROWS[0]))
        connection.execute(text("INSERT INTO collections (id, name, sequence) VALUES (2, 'd', 2)"))
        images = [
            {"key": key, "collection": 1 + key % 2, "report": f"右肺{key}番の胸水。Pleuraerguss"}
            for key in range(1, count + 1)
        ]
        insertion = (
            "INSERT INTO images (id, collection_id, external_id, sha256, media_type, width, height, split, "
            "report, labels, details, record_digest) VALUES (:key, :collection, :report, 'sha', 'image/png', "
            "4, 4, 'test', :report, '[]', '{}', 'digest')"
        )
        connection.execute(text(insertion), images)
    engine = open_home(home, catalogue_url)
    with engine.home.catalogue.read() as session:
        for collection in (1, 2):
            keys = [image["key"] for image in images if image["collection"] == collection]
            for word in ("胸水", "右肺", "erguss", "胸"):
                assert matching(session, collection, word, count).tolist() == keys, word
            known = session.execute(
                select(VocabularyRow.word, VocabularyRow.images).where(
                    VocabularyRow.collection_id == collection
                )
            )
            assert known.all() == [("pleuraerguss", len(keys))]
    engine.close()


@pytest.mark.parametrize("revision", ["0012", "0002"])
def test_words_survive_the_way_back_and_forth(old_catalogue: str, revision: str) -> None:
    open_catalogue(old_catalogue).close()
    config = Config()
    config.set_main_option("script_location", "index.catalogue:migrations")
    engine = create_engine(old_catalogue)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, revision)
    engine.dispose()
    catalogue = open_catalogue(old_catalogue)
    with catalogue.read() as session:
        for word in ("effusion", "edema", "second"):
            assert matching(session, 1, word, 9).tolist() == [1], word
    catalogue.close()


def _all_rows(engine: SearchEngine) -> Rows:
    with engine.home.catalogue.read() as session:
        return {
            table.name: [
                dict(row) for row in session.execute(select(table).order_by(*table.primary_key)).mappings()
            ]
            for table in Table.metadata.sorted_tables
        }


def _of_first_schema(first: MetaData, found: Rows) -> Rows:
    """The rows of tables that the first schema has, with the columns that it has."""
    return {
        table.name: [{column.name: row[column.name] for column in table.c} for row in found[table.name]]
        for table in first.sorted_tables
        if table.name != "alembic_version"
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
def first(before: SearchEngine, catalogue_url: str, home: Path) -> MetaData:
    """The tables of an installation of the first schema, which holds all of `before` that they can."""
    tables = MetaData()
    with schema_of(catalogue_url, "0001") as connection:
        tables.reflect(connection)
        content = _of_first_schema(tables, _all_rows(before))
        for table in tables.sorted_tables:
            if table.name in content:
                assert content[table.name], f"nothing would be seen of the table {table.name}"
                connection.execute(insert(table), content[table.name])
    for folder in ("images", "bundles"):
        shutil.copytree(home.with_name("before") / folder, home / folder)
    return tables


def test_an_installation_of_the_first_schema_keeps_all_and_does_what_is_new(
    before: SearchEngine, first: MetaData, catalogue_url: str, home: Path, encoder: Encoder
) -> None:
    engine = open_home(home, catalogue_url)
    assert _of_first_schema(first, _all_rows(engine)) == _of_first_schema(first, _all_rows(before))
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
