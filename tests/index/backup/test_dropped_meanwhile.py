"""Encoders that go while a backup is written are in it, and those that are missing are named truly."""

import multiprocessing
from pathlib import Path

import pytest

from index.backup import restore, restore_backup, write, write_backup
from index.catalogue.collections import find_generation, require_collection
from index.engine import SearchEngine
from index.errors import BackupError
from index.files.bundles import changing_models, note_unused
from index.generations.activation import activate, generation_of
from index.generations.models import register_model
from index.generations.reindex import generation_for, reindex
from index.writes.deletion import collect_garbage
from tests.index.backup.dropping import drop
from tests.index.comparing import answers
from tests.index.meanwhile import at_first
from tests.index.samples import ingest
from training.common.manifest import Manifest
from training.models.encoder import Encoder, load_encoder

PATIENCE_SECONDS = 120


@pytest.fixture
def swapped(
    engine: SearchEngine, encoder: Encoder, other_encoder: Encoder, manifest: Manifest
) -> SearchEngine:
    """Generation 1 is by the encoder, and retired; generation 2 is by the other."""
    ingest(engine, encoder, manifest)
    generation = generation_for(engine.home, "c", other_encoder)
    reindex(engine, generation, other_encoder, show_progress=False)
    _activate(engine, generation.id)
    return engine


def _activate(engine: SearchEngine, number: int) -> None:
    with engine.home.catalogue.write() as session:
        activate(session, generation_of(session, "c", number), texts=True)


def _retired(engine: SearchEngine) -> int:
    with engine.home.catalogue.read() as session:
        found = find_generation(session, require_collection(session, "c").id, "retired")
    assert found is not None
    return found.id


@pytest.mark.slow
def test_a_generation_that_another_process_drops_meanwhile_is_in_the_backup(
    swapped: SearchEngine,
    catalogue_url: str,
    encoder: Encoder,
    other_encoder: Encoder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    again: SearchEngine,
) -> None:
    number, other = _retired(swapped), swapped.active("c").generation
    _activate(swapped, number)
    place, before = swapped.active("c").bundle, answers(swapped, "c", encoder)
    _activate(swapped, other)
    expected = answers(swapped, "c", other_encoder)

    def drop_it() -> None:
        arguments_of = (tmp_path / "home", catalogue_url, number)
        process = multiprocessing.get_context("spawn").Process(target=drop, args=arguments_of)
        process.start()
        process.join(PATIENCE_SECONDS)
        process.kill()
        assert process.exitcode == 0
        collect_garbage(swapped.home)
        assert place.is_dir()

    at_first(monkeypatch, write, "_add_files", drop_it)
    summary = write_backup(swapped.home, tmp_path / "backup.tar", show_progress=False)
    assert place.name in summary.bundles
    # It is made up for as soon as the backup is done.
    assert [path.name for path in swapped.home.bundles_folder.iterdir()] == [swapped.active("c").bundle.name]
    restore_backup(again.home, tmp_path / "backup.tar", show_progress=False)
    assert answers(again, "c", other_encoder) == expected
    _activate(again, number)
    assert again.active("c").bundle.name == place.name
    assert answers(again, "c", load_encoder(again.active("c").bundle, "cpu")) == before


def test_an_encoder_that_is_missing_is_named_for_what_it_is_needed(
    swapped: SearchEngine, tmp_path: Path
) -> None:
    number = _retired(swapped)
    _activate(swapped, number)
    active = swapped.active("c").bundle
    other = _retired(swapped)
    (before,) = (path for path in swapped.home.bundles_folder.iterdir() if path != active)
    made = rf"generation {other} of 'c' was made with it.*generations c --drop {other}"
    for place, use in ((active, "'c' is searched with it"), (before, made)):
        place.rename(tmp_path / "away")
        with pytest.raises(BackupError, match=f"{place.name} is missing, and {use}"):
            write_backup(swapped.home, tmp_path / "backup.tar", show_progress=False)
        (tmp_path / "away").rename(place)
    write_backup(swapped.home, tmp_path / "backup.tar", show_progress=False)


def test_an_encoder_that_is_damaged_is_not_written_into_a_backup(
    swapped: SearchEngine, tmp_path: Path
) -> None:
    (swapped.active("c").bundle / "model.safetensors").unlink()
    with pytest.raises(BackupError, match="is damaged, and 'c' is searched with it"):
        write_backup(swapped.home, tmp_path / "backup.tar", show_progress=False)
    assert not list(tmp_path.glob("*backup.tar*"))


def test_an_encoder_that_no_generation_needs_is_left_out_if_it_is_damaged(
    indexed: SearchEngine, other_encoder: Encoder, tmp_path: Path, again: SearchEngine
) -> None:
    assert other_encoder.info is not None
    unneeded = register_model(indexed.home, other_encoder.info.folder).folder
    (unneeded / "model.safetensors").unlink()
    summary = write_backup(indexed.home, tmp_path / "backup.tar", show_progress=False)
    assert summary.bundles == [indexed.active("c").bundle.name]
    assert restore_backup(again.home, tmp_path / "backup.tar", show_progress=False) == summary


def test_an_encoder_that_is_being_restored_does_not_go_for_an_old_note(
    indexed: SearchEngine,
    encoder: Encoder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    again: SearchEngine,
) -> None:
    (digest,) = write_backup(indexed.home, tmp_path / "backup.tar", show_progress=False).bundles
    with changing_models(again.home.bundles_folder):
        note_unused(again.home.bundles_folder, digest)
    at_first(monkeypatch, restore, "_take_catalogue", lambda: collect_garbage(again.home))
    restore_backup(again.home, tmp_path / "backup.tar", show_progress=False)
    collect_garbage(again.home)
    assert [path.name for path in again.home.bundles_folder.iterdir()] == [digest]
    assert answers(again, "c", encoder) == answers(indexed, "c", encoder)
