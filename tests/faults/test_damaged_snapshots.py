"""Whatever has become of a snapshot on the disk, searches give what the catalogue holds."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from index.engine import SearchEngine
from index.search.request import SearchRequest
from index.writes.live import put_images, remove_images
from tests.faults.made import begin_world, made_record, made_upload, open_world, vector_of
from tests.faults.oracle import Oracle, check_page

IMAGES = 40
Damage = Callable[[Path, Path], None]


def _put(engine: SearchEngine, collection: str, oracle: Oracle, numbers: range) -> None:
    for number in numbers:
        record, picture = made_record(f"image {number}", number), f"{collection} {number}"
        put_images(engine.home, engine.active(collection), [made_upload(record, picture)])
        oracle.put(record, picture)


def _data(folder: Path) -> list[Path]:
    return sorted(
        (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".json"),
        key=lambda path: path.stat().st_size,
    )


def _truncate(folder: Path, other: Path) -> None:
    for path in _data(folder):
        path.write_bytes(path.read_bytes()[:-10])


def _flip_a_bit(folder: Path, other: Path) -> None:
    content = bytearray(_data(folder)[-1].read_bytes())
    content[-3] ^= 4
    _data(folder)[-1].write_bytes(content)


def _exchange_the_index(folder: Path, other: Path) -> None:
    """An index of the same size and dimension, of another collection."""
    ours, theirs = _data(folder)[-1], _data(other)[-1]
    assert ours.stat().st_size == theirs.stat().st_size
    assert ours.read_bytes() != theirs.read_bytes()
    ours.write_bytes(theirs.read_bytes())


def _exchange_everything(folder: Path, other: Path) -> None:
    for path in list(folder.iterdir()):
        path.unlink()
    for path in other.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())


def _forget_the_manifest(folder: Path, other: Path) -> None:
    next(folder.rglob("*.json")).unlink()


def _claim_a_later_sequence(folder: Path, other: Path) -> None:
    path = next(folder.rglob("*.json"))
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "sequence": manifest["sequence"] + 1000}))


def _lose_a_file(folder: Path, other: Path) -> None:
    _data(folder)[0].unlink()


@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        _exchange_the_index,
        *(
            pytest.param(damage, marks=pytest.mark.slow)
            for damage in (
                _flip_a_bit,
                _exchange_everything,
                _forget_the_manifest,
                _claim_a_later_sequence,
                _lose_a_file,
            )
        ),
    ],
)
def test_a_damaged_snapshot_is_not_believed(home: Path, damage: Damage) -> None:
    engine, oracles = begin_world(home, "a", "b"), {"a": Oracle(), "b": Oracle()}
    folders = {}
    for name, oracle in oracles.items():
        _put(engine, name, oracle, range(IMAGES))
        before = set(engine.home.snapshots_folder.glob("*"))
        engine.save_snapshot(name)
        (folders[name],) = set(engine.home.snapshots_folder.glob("*")) - before
    # The catalogue continues after the snapshot.
    _put(engine, "a", oracles["a"], range(IMAGES, IMAGES + 5))
    remove_images(engine.home, "a", ["image 3"])
    oracles["a"].remove("image 3")
    engine.close()
    damage(folders["a"], folders["b"])
    restarted = open_world(home)
    for name, oracle in oracles.items():
        for number in range(4):
            query = vector_of(f"query {number}")
            page = restarted.search(restarted.active(name), query, SearchRequest(k=50))
            check_page(page, oracle.ranked(query), 50)
    restarted.close()


def test_a_whole_snapshot_is_used_although_images_were_removed_before_and_after(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine, oracle = begin_world(home, "a"), Oracle()
    _put(engine, "a", oracle, range(IMAGES))
    engine.search(engine.active("a"), vector_of("query"), SearchRequest(k=1))
    for number in (2, 5, 7):
        remove_images(engine.home, "a", [f"image {number}"])
        oracle.remove(f"image {number}")
    engine.save_snapshot("a")
    _put(engine, "a", oracle, range(5, 6))
    remove_images(engine.home, "a", ["image 9"])
    oracle.remove("image 9")
    engine.close()
    restarted = open_world(home)
    caplog.clear()
    with caplog.at_level("INFO"):
        page = restarted.search(restarted.active("a"), vector_of("query"), SearchRequest(k=50))
    check_page(page, oracle.ranked(vector_of("query")), 50)
    assert [record for record in caplog.records if record.name.startswith("index.")] == []
    restarted.close()
