"""A catalogue of the oldest schema is brought up to date; words and findings follow the rules of today."""

import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, create_engine, delete, insert, select, update
from sqlalchemy.orm import Session

from index.backup import restore_backup, write_backup
from index.catalogue import Catalogue, Patience, open_catalogue
from index.catalogue.collections import next_sequence
from index.catalogue.full_text import IndexedWords, add_words, matching, remove_words
from index.catalogue.jobs import add_job, claim_job, end_job, get_job
from index.catalogue.migrations import derived
from index.catalogue.schema import HEAD, RULES, DerivedRow
from index.catalogue.tables import FindingRow, GenerationRow, ImageRow, Table
from index.engine import SearchEngine
from index.feedback import FeedbackCounts, JudgedQuery, count_feedback, judgements, record_judgement
from index.files.orphans import mark_orphans
from index.generations.reindex import generation_for
from index.writes.images import findings_of
from tests.index.catalogue.old_catalogue import COUNT, image_row, make_old, vocabulary, wanted_vocabulary
from tests.index.catalogue.revisions import oldest_schema
from tests.index.comparing import answers, rows
from tests.index.homes import execute, in_read, in_write, open_home
from tests.index.killing import kill_after
from tests.index.meanwhile import note_calls
from tests.index.samples import ingest, make_manifest, make_records
from training.clinical.findings import find_findings
from training.common.manifest import Manifest
from training.models.encoder import Encoder

_DEFINITIONS = {
    "sqlite": "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL",
    "postgresql": """
    SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
    UNION SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
    UNION SELECT proname, prosrc FROM pg_proc WHERE proname LIKE 'audit%%'
    UNION SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace AND contype IN ('f', 'p', 'u')
    UNION SELECT table_name || '.' || column_name, concat_ws(' ', data_type, collation_name, is_nullable,
        character_maximum_length) FROM information_schema.columns WHERE table_schema = 'public'
    """,
}


def test_a_new_catalogue_and_one_of_the_oldest_schema_end_with_the_same_tables(
    catalogue_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "home" / "catalogue.db"
    new = _definitions(catalogue_url)
    if catalogue_url.startswith("sqlite"):
        file.unlink()
    else:
        with create_engine(catalogue_url).begin() as connection:
            connection.exec_driver_sql("DROP SCHEMA public CASCADE")
            connection.exec_driver_sql("CREATE SCHEMA public")
    with oldest_schema(catalogue_url):
        pass
    assert _definitions(catalogue_url) == new
    assert {"audit_names_update", "ix_images_split"} <= set(new)


def _definitions(url: str) -> dict[str, list[str]]:
    """Open a catalogue, compare it with the models, and return how its parts are defined, by their names."""
    open_catalogue(url).close()
    engine = create_engine(url)
    with engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True, "include_name": _ours}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, Table.metadata) == []
        assert context.get_current_revision() == HEAD
        result = connection.exec_driver_sql(_DEFINITIONS[connection.dialect.name]).all()
    engine.dispose()
    # The columns of an older catalogue are in another order.
    return {name: sorted(re.findall(r'[^\s(),"]+', sql)) for name, sql in result}


def _ours(name: str | None, *_: object) -> bool:
    """Full-text tables are not among SQLAlchemy's."""
    return name is None or not name.startswith("image_words")


def test_the_head_of_the_migrations_is_known() -> None:
    config = Config()
    config.set_main_option("script_location", "index.catalogue:migrations")
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


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


def _of_oldest_schema(oldest: MetaData, expected: Rows) -> Rows:
    """The rows of tables that the oldest schema has, with the columns that it has."""
    return {
        table.name: [{column.name: row[column.name] for column in table.c} for row in expected[table.name]]
        for table in oldest.sorted_tables
        if table.name in expected and table.name != "home"
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
    in_write(engine, mark_orphans, ["f" * 64])
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
    filled = {name for name, result in content.items() if result}
    assert filled >= {"attributes", "embeddings", "fields", "findings", "images", "loose_files", "texts"}
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
        assert [(text.image, text.relevant) for text in judgements(session, "c")] == [("image-003", True)]
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


_STATED = {0: "absent", 1: "uncertain", 2: "present"}
_OPEN_AND_TELL = """
import sys
from pathlib import Path

from index.catalogue import open_catalogue
from index.catalogue.migrations import derived


def tell(seconds):
    print("batch", flush=True)
    sys.stdin.readline()


derived.sleep = tell
open_catalogue(Path(sys.argv[1]).read_text())
"""


@pytest.fixture
def old(catalogue_url: str, tmp_path: Path) -> str:
    (tmp_path / "home").mkdir()
    make_old(catalogue_url)
    return catalogue_url


@pytest.fixture
def outdated(old: str) -> Iterator[Catalogue]:
    """The same, opened once, whose rows are said to follow other rules."""
    with closing(open_catalogue(old)) as catalogue:
        _have_other_rules(catalogue)
        yield catalogue


def _state(session: Session) -> tuple[str, int | None]:
    rules, reached = session.execute(select(DerivedRow.rules, DerivedRow.reached)).one()
    return rules, reached


def _findings(session: Session, *images: int) -> list[tuple[int, int, str, str]]:
    query = select(FindingRow.image_id, FindingRow.position, FindingRow.finding, FindingRow.state)
    chosen = query.where(FindingRow.image_id.in_(images)) if images else query
    result = session.execute(chosen.order_by(FindingRow.image_id, FindingRow.start))
    return [(image, position, finding, state) for image, position, finding, state in result]


def _check_all(catalogue: Catalogue, count: int = COUNT) -> None:
    """Make sure that every row is as the rules of today have it."""
    with catalogue.read() as session:
        assert _findings(session) == [
            (key, -1, "pleural effusion", _STATED[key % 3]) for key in range(1, count + 1)
        ]
        for collection in (1, 2):
            keys = [key for key in range(1, count + 1) if 1 + key % 2 == collection]
            for word in ("effusion", "右肺", "schwelle", "aufnahme"):
                assert matching(session, collection, word, 9999).tolist() == keys, word
            assert matching(session, collection, "oldword", 9999).tolist() == []
        assert vocabulary(session) == wanted_vocabulary(session)
        assert vocabulary(session)[1, "lungenaufnahme"] == count // 2
        assert _state(session) == (str(RULES), None)


def _have_other_rules(catalogue: Catalogue, version: str = "0", **other: Any) -> None:
    execute(catalogue, update(DerivedRow).values(rules="other", version=version, **other))


def test_a_catalogue_of_other_rules_has_the_right_rows_once(
    old: str, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(open_catalogue(old)) as catalogue:
        _check_all(catalogue)
        assert f"Words and findings of 200 of {COUNT} images" in caplog.messages[-1]
        execute(catalogue, delete(FindingRow).where(FindingRow.image_id == 7))
    # Rows that follow the rules are left alone.
    caplog.clear()
    with closing(open_catalogue(old)) as catalogue, catalogue.read() as session:
        assert _findings(session, 6, 7, 8) == [
            (6, -1, "pleural effusion", "absent"),
            (8, -1, "pleural effusion", "present"),
        ]
    assert caplog.messages == []


@pytest.mark.slow
def test_a_killed_process_is_followed_up(outdated: Catalogue, old: str, tmp_path: Path) -> None:
    (tmp_path / "url").write_text(
        old if old.startswith("sqlite") else outdated._engine.url.render_as_string(hide_password=False)
    )
    kill_after(2, _OPEN_AND_TELL, tmp_path / "url")
    with outdated.write() as session:
        rules, reached = _state(session)
        assert rules == str(RULES)
        assert reached in (400, 600)
        # Rows that were made are not made once more, unlike those that were not.
        session.execute(delete(FindingRow).where(FindingRow.image_id.in_([1, 640])))
    open_catalogue(old).close()
    with outdated.write() as session:
        assert _findings(session, 1, 640) == [(640, -1, "pleural effusion", "uncertain")]
        restored = {"image_id": 1, "position": -1, "start": 9, "stop": 25, "collection_id": 2}
        messages = {"finding": "pleural effusion", "state": "uncertain"}
        session.execute(
            insert(FindingRow), restored | messages | {"image_finding": ": ".join(messages.values())}
        )
    _check_all(outdated)


def test_two_that_start_together_make_each_row_once(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = note_calls(monkeypatch, derived, "_replace_findings", lambda _, keys: keys)
    barrier = Barrier(2)

    def start() -> Catalogue:
        barrier.wait(30)
        return open_catalogue(old)

    with ThreadPoolExecutor(2) as pool:
        catalogues = [one.result() for one in [pool.submit(start) for _ in range(2)]]
    assert sorted(key for keys in made for key in keys) == list(range(1, COUNT + 1))
    _check_all(catalogues[0])
    for catalogue in catalogues:
        catalogue.close()


def _during(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> list[float]:
    """Do something in the first pause between two batches; return the pauses."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:
            act()

    monkeypatch.setattr(derived, "sleep", pause)
    return pauses


def test_rows_are_searched_by_meanwhile_and_who_writes_is_counted_once(
    outdated: Catalogue, old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = COUNT + 1

    def write() -> None:
        with outdated.write() as session:
            assert _state(session)[1] == 200
            # Searches continue by rows of both rules.
            assert len(matching(session, 1, "effusion", 9999)) == COUNT // 2
            assert len(_findings(session)) == COUNT
            for collection in (1, 2):
                next_sequence(session, collection)
            # Images before and behind the last that was reached.
            for keys in ([10, 12], [610, 612]):
                _change(session, keys[:1], "Wirbelaufnahme")
                remove_words(session, keys[1:])
                session.execute(delete(ImageRow).where(ImageRow.id.in_(keys[1:])))
            added = image_row(new, collection_id=1, report="Schulteraufnahme", labels=[], details={})
            session.execute(insert(ImageRow), added)
            add_words(session, 1, {new: IndexedWords.from_texts([], "Schulteraufnahme")})

    pauses = _during(monkeypatch, write)
    open_catalogue(old).close()
    assert len(pauses) == 3
    with outdated.read() as session:
        assert vocabulary(session) == wanted_vocabulary(session)
        assert vocabulary(session)[1, "schulteraufnahme"] == 1
        assert vocabulary(session)[1, "wirbelaufnahme"] == 2
        assert matching(session, 1, "schulter", 9).tolist() == [new]
        assert _findings(session, 10, 12, 610, 612, new) == []
    with outdated.write() as session:
        remove_words(session, [10, 610, new])
        assert {(1, "schulteraufnahme"), (1, "wirbelaufnahme")}.isdisjoint(vocabulary(session))


def _change(session: Session, keys: Sequence[int], report: str) -> None:
    session.execute(update(ImageRow).where(ImageRow.id.in_(keys)).values(report=report))
    session.execute(delete(FindingRow).where(FindingRow.image_id.in_(keys)))
    remove_words(session, keys)
    add_words(session, 1, {key: IndexedWords.from_texts(["Schwelle"], report) for key in keys})


def test_two_versions_do_not_undo_each_other_for_ever(
    outdated: Catalogue, old: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses = _during(monkeypatch, lambda: _have_other_rules(outdated, "0.0.1", reached=200))
    open_catalogue(old).close()
    assert len(pauses) == 1
    assert "use one version" in caplog.messages[-1]
    assert in_read(outdated, _state) == ("other", 200)
    open_catalogue(old).close()
    _check_all(outdated)


def test_rows_of_a_newer_version_are_left_alone(
    outdated: Catalogue, old: str, caplog: pytest.LogCaptureFixture
) -> None:
    _have_other_rules(outdated, "999.1")
    open_catalogue(old).close()
    assert "follow the rules of recoquest 999.1" in caplog.messages[-1]
    assert in_read(outdated, _state) == ("other", None)


def test_who_cannot_write_reads_the_rows_of_older_rules(
    outdated: Catalogue, old: str, caplog: pytest.LogCaptureFixture
) -> None:
    with outdated.write() as session:
        session.execute(update(DerivedRow).values(version="0"))
        # SQLite has one writer, PostgreSQL locks the row.
        waiting = open_catalogue(old, Patience(lock_s=0.1))
    assert "follow older rules until a later start. Another process" in caplog.messages[-1]
    with waiting.read() as session:
        assert len(_findings(session)) == COUNT
        assert _state(session) == ("other", None)
    waiting.close()


def test_an_older_backup_comes_back_with_rows_of_today(
    catalogue_url: str, encoder: Encoder, tmp_path: Path
) -> None:
    manifest = make_manifest(tmp_path / "data", make_records(3))
    engine = open_home(tmp_path / "home", catalogue_url)
    ingest(engine, encoder, manifest)
    execute(engine, update(ImageRow).values(report="No effusion."))
    _have_other_rules(engine.home.catalogue)
    write_backup(engine.home, tmp_path / "backup.tar", show_progress=False)
    engine.close()
    again = open_home(tmp_path / "again")
    restore_backup(again.home, tmp_path / "backup.tar", show_progress=False)
    with again.home.catalogue.read() as session:
        results = [(finding, state) for _, _, finding, state in _findings(session)]
        assert results == [("pleural effusion", "absent")] * 3
        assert _state(session) == (str(RULES), None)
    again.close()


_GOLDEN = Path(__file__).with_name("rules_golden.txt")
_ADVICE = (
    "# What texts give by the rules for words and findings, number {}. After a change that is meant, raise\n"
    "# RULES in index/catalogue/schema.py and run `python -m tests.index.catalogue.test_migrations`.\n"
)


def _given(text: str, section: str) -> str:
    """Return what a text gives, on one line."""
    plain = text.replace("\\n", "\n")
    if section == "## Findings":
        return "; ".join(
            f"{row['start']}-{row['stop']} {row['finding']}: {row['state']}"
            + (f" (image: {row['image_finding']})" if not row["image_finding"].endswith(row["state"]) else "")
            for row in findings_of({}, plain)
        )
    words = IndexedWords.from_texts([], plain)
    return " | ".join((words.words, words.vector, words.runs, " ".join(sorted(words.compounds))))


def _rewritten(golden: str) -> str:
    """Return the golden file as the rules of today have it."""
    lines, section = [], ""
    for line in golden.splitlines()[2:]:
        text, bar, _ = line.partition(" | ")
        section = line if line.startswith("## ") else section
        lines.append(f"{text} | {_given(text, section)}".rstrip() if bar else line)
    return _ADVICE.format(RULES) + "\n".join(lines) + "\n"


def test_what_texts_give_changes_with_the_number_of_the_rules_alone() -> None:
    golden = _GOLDEN.read_text(encoding="utf-8")
    assert _rewritten(golden).splitlines() == golden.splitlines()


@pytest.mark.parametrize(
    ("changed", "by"),
    [
        ("index.catalogue.words._STROKED", {}),
        ("index.catalogue.full_text.is_compound", str.isalpha),
        ("index.writes.images.find_findings", lambda text: find_findings(text)[:1]),
    ],
)
def test_another_rule_is_noticed(monkeypatch: pytest.MonkeyPatch, changed: str, by: object) -> None:
    monkeypatch.setattr(changed, by)
    golden = _GOLDEN.read_text(encoding="utf-8")
    assert _rewritten(golden) != golden


if __name__ == "__main__":
    golden = _GOLDEN.read_text(encoding="utf-8")
    after = _rewritten(golden)
    if after != golden and after.splitlines()[0] == golden.splitlines()[0]:
        sys.exit("Texts give something else by the same number of the rules: raise RULES.")
    _GOLDEN.write_text(after, encoding="utf-8")
