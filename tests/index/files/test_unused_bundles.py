"""Bundles that no model names any more go at once or later, whole, and no others do."""

import shutil

import pytest

from index.catalogue.tables import ModelRow
from index.engine import SearchEngine
from index.files.bundles import installed_bundle
from index.generations.activation import drop_generation
from index.generations.models import register_model
from index.writes.deletion import collect_garbage
from tests.index.samples import begin_generation
from training.models.bundle import BundleInfo


def _inside(engine: SearchEngine) -> list[str]:
    return sorted(path.name for path in engine.home.bundles_folder.iterdir())


def _drop(engine: SearchEngine, digest: str) -> None:
    """Drop the only generation that was begun with a bundle."""
    drop_generation(engine.home, "c", begin_generation(engine, "c", 8, digest=digest).id)


@pytest.fixture
def held(engine: SearchEngine, bundle: BundleInfo) -> SearchEngine:
    """The bundle of the only generation lies there still, as a backup was written when that was dropped."""
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
        # It lies there already, and this one takes it for granted.
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
