"""A disk without space: writes are refused, reads continue, and nothing has to be repaired afterwards."""

from functools import partial
from pathlib import Path

import pytest

from index.engine import SearchEngine
from index.errors import DiskFullError
from index.files.bundles import install_bundle
from index.search.request import SearchRequest
from index.writes.live import change_image, put_images, remove_images
from tests.faults.disks import fill
from tests.faults.made import (
    begin_world,
    made_record,
    made_upload,
    open_world,
    stored_vector,
    vector_of,
)
from tests.faults.oracle import Oracle, check_collection, check_files, check_nothing_else, check_page
from tests.index.samples import make_bundle
from training.common.manifest import Record

BEFORE = 12


def put(engine: SearchEngine, oracle: Oracle, number: int, padding: int = 0) -> None:
    record, picture = made_record(f"image {number}", number), f"picture {number}" + "x" * padding
    put_images(engine.home, engine.active("c"), [made_upload(record, picture)])
    oracle.put(record, picture)


def _become(record: Record, _before: Record) -> Record:
    return record


def check_reads(engine: SearchEngine, oracle: Oracle) -> None:
    query = vector_of("query")
    check_page(engine.search(engine.active("c"), query, SearchRequest(k=5)), oracle.ranked(query), 5)
    check_collection(engine, "c", oracle)


def test_writes_are_refused_and_reads_go_on_until_there_is_space(disk: Path) -> None:
    engine, oracle = begin_world(disk / "home", "c"), Oracle()
    for number in range(BEFORE):
        put(engine, oracle, number)
    filler = fill(disk)
    active = engine.active("c")
    for number in range(BEFORE, BEFORE + 40):
        with pytest.raises(DiskFullError, match="disk is full"):
            # Some are refused by the catalogue and some by the store.
            put(engine, oracle, number, padding=100_000)
    with pytest.raises(DiskFullError):
        for version in range(10_000):
            record = made_record("image 1", version)
            texts = {text: stored_vector(text) for text in record.texts}
            change_image(engine.home, active, "image 1", partial(_become, record), texts)
            oracle.put(record, oracle.images["image 1"].picture)
    check_reads(engine, oracle)
    # A process that starts now can be asked as well.
    late = open_world(disk / "home")
    check_reads(late, oracle)
    late.save_snapshot("c")
    filler.unlink()
    put(late, oracle, 99, padding=100_000)
    assert remove_images(engine.home, "c", ["image 2"]) == ["image 2"]
    oracle.remove("image 2")
    for running in (engine, late):
        check_reads(running, oracle)
        check_nothing_else(running)
    put(engine, oracle, 100)
    check_files(engine, oracle)
    late.close()
    engine.close()


def test_a_bundle_that_does_not_fit_is_refused_and_nothing_is_left_of_it(disk: Path, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    filler = fill(disk, free=8192)
    with pytest.raises(DiskFullError, match="the disk is full"):
        install_bundle(bundle, disk / "bundles")
    assert not list((disk / "bundles").iterdir())
    filler.unlink()
    installed = install_bundle(bundle, disk / "bundles")
    assert installed.folder == disk / "bundles" / bundle.digest
