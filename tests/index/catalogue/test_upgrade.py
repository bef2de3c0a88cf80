"""A catalogue of the oldest schema with data in it is brought up to date on both databases."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import MetaData, insert, select

from index.backup import restore_backup, write_backup
from index.catalogue.jobs import add_job, claim_job, end_job, get_job
from index.catalogue.schema import RULES, DerivedRow
from index.catalogue.tables import GenerationRow, Table
from index.engine import SearchEngine
from index.feedback import (
    FeedbackCounts,
    JudgedQuery,
    count_feedback,
    judgements,
    record_judgement,
)
from index.generations.reindex import generation_for
from tests.index.catalogue.revisions import oldest_schema
from tests.index.comparing import answers, rows
from tests.index.homes import open_home
from tests.index.samples import ingest
from training.common.manifest import Manifest
from training.models.encoder import Encoder

Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where the catalogue is, if it is in SQLite."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


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
def before(
    encoder: Encoder, other_encoder: Encoder, manifest: Manifest, tmp_path: Path
) -> Iterator[SearchEngine]:
    """What is to be found again: two collections that were written today, and a generation just begun."""
    engine = open_home(tmp_path / "before")
    for name in ("c", "d"):
        ingest(engine, encoder, manifest, name)
    generation_for(engine.home, "d", other_encoder)
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
    before: SearchEngine,
    oldest: MetaData,
    catalogue_url: str,
    home: Path,
    encoder: Encoder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    open_home(home, catalogue_url).close()
    engine = open_home(home, catalogue_url)
    assert [message.count("is brought up to date") for message in caplog.messages].count(1) == 1
    with engine.home.catalogue.read() as session:
        # Nobody knows who activated them.
        activated = select(GenerationRow.state, GenerationRow.by_hand, GenerationRow.confidence)
        assert session.execute(activated.order_by(GenerationRow.id)).all() == [
            ("active", True, None),
            ("active", True, None),
            ("building", False, None),
        ]
        assert session.execute(select(DerivedRow.rules)).scalar_one() == str(RULES)
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
