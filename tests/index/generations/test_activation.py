"""Generations and their bundles: which is active, which one before, and what goes with old ones."""

import shutil
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from sqlalchemy import func, select, update

from index.catalogue.collections import Generation, next_sequence, preloading
from index.catalogue.tables import EmbeddingRow, GenerationRow, ImageRow, ModelRow
from index.engine import SearchEngine
from index.errors import ActiveChangedError, DiskFullError, GenerationError, UnknownGenerationError
from index.files.bundles import installed_bundle
from index.generations import activation
from index.generations.models import list_generations, register_model
from index.search.request import SearchRequest
from index.writes.deletion import collect_garbage
from tests.index.homes import execute, in_read, in_write, scalars
from tests.index.meanwhile import at_first
from tests.index.samples import begin_generation, make_records, put_records
from training.models.bundle import BundleInfo

COUNT = 30


@pytest.fixture
def unused(monkeypatch: pytest.MonkeyPatch) -> None:
    """No search uses a generation that was active a moment ago."""
    monkeypatch.setattr(activation, "_IN_USE_SECONDS", 0)


def _generations(engine: SearchEngine, count: int, *, by_hand: bool = False) -> list[Generation]:
    """Make that many generations active one after another, by the gate or by hand."""
    made = []
    for number in range(count):
        digest, name = f"{number:064d}", f"model-{number}"
        generation = put_records(engine, make_records(COUNT), 8, number, digest=digest, name=name)
        (engine.home.bundles_folder / generation.digest).mkdir(parents=True)
        engine.save_snapshot("c")
        made.append(generation)
    execute(engine, update(GenerationRow).values(by_hand=by_hand))
    return made


def _activate(engine: SearchEngine, generation: Generation) -> None:
    in_write(engine, activation.activate, generation)


def _before(engine: SearchEngine) -> int:
    return in_read(engine, activation.generation_before, "c").id


def _count(engine: SearchEngine, generation: Generation) -> int:
    with engine.home.catalogue.read() as session:
        query = select(func.count()).where(EmbeddingRow.generation_id == generation.id)
        return session.execute(query).scalar_one()


def test_rollback_goes_to_the_one_that_was_active_before(engine: SearchEngine) -> None:
    first, second, third = _generations(engine, 3)
    assert _before(engine) == second.id
    _activate(engine, first)
    assert _before(engine) == third.id
    _activate(engine, third)
    assert _before(engine) == first.id
    # Also where the clock was put back meanwhile.
    later = (datetime.now(UTC) + timedelta(days=1)).isoformat(timespec="microseconds")
    execute(engine, update(GenerationRow).where(GenerationRow.id == third.id).values(activated=later))
    for generation in (first, second):
        _activate(engine, generation)
    assert _before(engine) == first.id


def test_without_another_there_is_nothing_to_roll_back_to(engine: SearchEngine) -> None:
    _generations(engine, 1)
    begin_generation(engine, "c", 8, digest="b" * 64)
    with engine.home.catalogue.read() as session:
        with pytest.raises(UnknownGenerationError, match="cannot be rolled back"):
            activation.generation_before(session, "c")
        with pytest.raises(UnknownGenerationError, match="no generation 99; it has "):
            activation.generation_of(session, "c", 99)


def test_what_is_announced_is_known_until_it_is_active(engine: SearchEngine) -> None:
    first, second = _generations(engine, 2)
    with engine.home.catalogue.write() as session:
        activation.mark_preloading(session, first)
        activation.mark_preloading(session, second)
    assert [each.generation for each in engine.preloading()] == [first.id]
    _activate(engine, first)
    assert [each.generation for each in engine.preloading()] == [second.id]
    old = (datetime.now(UTC) - timedelta(hours=1)).isoformat(timespec="microseconds")
    execute(engine, update(GenerationRow).values(announced=old))
    assert in_read(engine, preloading) == []


@pytest.mark.usefixtures("unused")
def test_old_generations_go_with_vectors_snapshots_and_bundles(
    engine: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activation, "_ROWS_AT_ONCE", 7)
    first, second, third = _generations(engine, 3)
    building = begin_generation(engine, "c", 8, digest="b" * 64)
    assert activation.drop_old_generations(engine.home, "c", keep=1) == [first.id]
    assert _count(engine, first) == 0
    assert (_count(engine, second), _count(engine, third)) == (COUNT, COUNT)
    numbers = [info.number for info in list_generations(engine.home, "c")]
    assert numbers == [building.id, third.id, second.id]
    snapshots = {path.name for path in engine.home.snapshots_folder.iterdir()}
    assert first.uid not in snapshots
    assert {second.uid, third.uid} <= snapshots
    assert not (engine.home.bundles_folder / first.digest).exists()
    assert (engine.home.bundles_folder / second.digest).exists()
    assert first.digest not in scalars(engine, select(ModelRow.digest))
    assert len(engine.search(engine.active("c"), np.ones(8, np.float32), SearchRequest(k=50)).hits) == COUNT


@pytest.mark.usefixtures("unused")
def test_one_that_a_person_activated_goes_only_by_its_number(engine: SearchEngine) -> None:
    first, second, third = _generations(engine, 3)
    _activate(engine, first)
    for generation, instead_of in ((second, first), (third, second)):
        in_write(engine, activation.activate, generation, instead_of=instead_of.digest)
    # The gate alone has activated the second; what a person chose once stays chosen.
    assert activation.old_by_hand(engine.home, "c", keep=0) == [first.id]
    assert activation.drop_old_generations(engine.home, "c", keep=0) == [second.id]
    assert _count(engine, first) == COUNT
    activation.drop_generation(engine.home, "c", first.id)
    assert activation.old_by_hand(engine.home, "c", keep=0) == []


@pytest.mark.usefixtures("unused")
def test_an_error_after_work_that_is_done_is_logged_and_dropping_goes_on_the_next_time(
    engine: SearchEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, _, _ = _generations(engine, 3)

    def full(*_: object) -> None:
        raise DiskFullError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(activation, "_drop_batch", full)
        assert activation.try_drop_old_generations(engine.home, "c", keep=1) == []
    assert "old generations of 'c' are not dropped yet: the disk is full" in caplog.text
    assert activation.try_drop_old_generations(engine.home, "c", keep=1) == [first.id]


def test_one_that_was_searched_a_minute_ago_stays(engine: SearchEngine) -> None:
    first, second, _ = _generations(engine, 3)
    assert activation.drop_old_generations(engine.home, "c", keep=0) == []
    long_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat(timespec="microseconds")
    with engine.home.catalogue.write() as session:
        session.execute(update(GenerationRow).where(GenerationRow.id == second.id).values(activated=long_ago))
        session.execute(
            update(GenerationRow).where(GenerationRow.id == first.id).values(activated=long_ago[:-7])
        )
    # The first was retired an hour ago, the second just now.
    assert activation.drop_old_generations(engine.home, "c", keep=0) == [first.id]


def test_what_is_embedded_while_a_generation_is_dropped_goes_too(
    engine: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = _generations(engine, 2)

    def embed() -> None:
        with engine.home.catalogue.write() as session:
            sequence = next_sequence(session, first.collection_id)
            image = session.execute(select(ImageRow.id).limit(1)).scalar_one()
            row = {"generation_id": first.id, "image_id": image, "sequence": sequence, "vector": bytes(16)}
            session.add(EmbeddingRow(**row))

    at_first(monkeypatch, activation, "changing_models", embed)
    activation.drop_generation(engine.home, "c", first.id)
    assert (_count(engine, first), _count(engine, second)) == (0, COUNT)
    assert [info.number for info in list_generations(engine.home, "c")] == [second.id]


@pytest.mark.usefixtures("unused")
def test_a_bundle_that_another_collection_uses_stays(engine: SearchEngine) -> None:
    first, _, _ = _generations(engine, 3)
    put_records(engine, make_records(5), 8, into="d", digest=first.digest)
    assert activation.drop_old_generations(engine.home, "c", keep=1) == [first.id]
    assert (engine.home.bundles_folder / first.digest).exists()
    assert engine.active("d").digest == first.digest


def test_the_active_generation_cannot_be_dropped(engine: SearchEngine) -> None:
    first, second = _generations(engine, 2)
    with pytest.raises(GenerationError, match="it stays"):
        activation.drop_generation(engine.home, "c", second.id)
    activation.drop_generation(engine.home, "c", first.id)
    assert [info.number for info in list_generations(engine.home, "c")] == [second.id]
    with pytest.raises(UnknownGenerationError):
        activation.drop_generation(engine.home, "c", first.id)


def test_a_generation_takes_the_place_of_the_model_that_it_was_meant_to_and_of_no_other(
    engine: SearchEngine,
) -> None:
    first, second, third = _generations(engine, 3)
    by_now = r"is now searched with 'model-2' \(generation 3\)"
    with pytest.raises(ActiveChangedError, match=by_now), engine.home.catalogue.write() as session:
        activation.activate(session, first, instead_of=second.digest)
    assert engine.active("c").generation == third.id
    in_write(engine, activation.activate, first, instead_of=third.digest)
    assert engine.active("c").generation == first.id


def _inside(engine: SearchEngine) -> list[str]:
    return sorted(path.name for path in engine.home.bundles_folder.iterdir())


def _drop(engine: SearchEngine, digest: str) -> None:
    """Drop the only generation that was begun with a bundle."""
    activation.drop_generation(engine.home, "c", begin_generation(engine, "c", 8, digest=digest).id)


@pytest.fixture
def held(engine: SearchEngine, bundle: BundleInfo) -> SearchEngine:
    """The bundle of the only generation still exists, as a backup was written when that was dropped."""
    register_model(engine.home, bundle.folder)
    with engine.home.store.keeping():
        _drop(engine, bundle.digest)
        collect_garbage(engine.home)
    assert _inside(engine) == [f".{bundle.digest}.unused", bundle.digest]
    return engine


def test_what_was_held_back_goes_next_time(held: SearchEngine) -> None:
    collect_garbage(held.home)
    assert _inside(held) == []


def test_what_was_held_back_goes_with_the_next_that_is_dropped(held: SearchEngine) -> None:
    _drop(held, "b" * 64)
    assert _inside(held) == []


def test_what_is_registered_again_stays(held: SearchEngine, bundle: BundleInfo) -> None:
    register_model(held.home, bundle.folder)
    collect_garbage(held.home)
    assert _inside(held) == [bundle.digest]


def test_what_is_about_to_be_registered_stays(held: SearchEngine, bundle: BundleInfo) -> None:
    with installed_bundle(bundle, held.home.bundles_folder):
        # It already exists, and this one relies on it.
        collect_garbage(held.home)
        assert bundle.digest in _inside(held)
    collect_garbage(held.home)
    assert _inside(held) == []


def test_a_bundle_is_gone_at_once_or_not_at_all(
    engine: SearchEngine, bundle: BundleInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_model(engine.home, bundle.folder)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", _killed)
        with pytest.raises(KeyboardInterrupt):
            _drop(engine, bundle.digest)
    assert not (engine.home.bundles_folder / bundle.digest).exists()
    assert _inside(engine) != []
    collect_garbage(engine.home)
    assert _inside(engine) == []


def _killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_what_nobody_dropped_stays_though_the_catalogue_does_not_know_it(
    engine: SearchEngine, bundle: BundleInfo
) -> None:
    register_model(engine.home, bundle.folder)
    with engine.home.catalogue.write() as session:
        session.query(ModelRow).delete()
    collect_garbage(engine.home)
    assert _inside(engine) == [bundle.digest]
