"""A run that is killed and repeated leaves the same catalogue as one that was not."""

from pathlib import Path

import pytest
from sqlalchemy import select

from index.catalogue.tables import Table
from index.engine import SearchEngine
from index.search.request import SearchRequest
from tests.index.homes import open_home
from tests.index.killing import kill_after
from tests.index.samples import ingest, make_manifest, make_records, unit_vectors
from training.common.manifest import Manifest
from training.models.bundle import BundleInfo
from training.models.encoder import Encoder

BATCH = 4
COUNT = 40

_PROGRAM = """
import sys
from pathlib import Path
from index.ingest import ingest_manifest
from tests.index.homes import open_home
from tests.index.killing import tell_batches
from training.common.manifest import read_manifest
from training.models.encoder import load_encoder

home, bundle, data = map(Path, sys.argv[1:4])
encoder = tell_batches(load_encoder(bundle, "cpu"))
ingest_manifest(open_home(home), "c", encoder, read_manifest(data), batch_size=4, show_progress=False)
"""


def _dump(engine: SearchEngine) -> dict[str, list[tuple[str, ...]]]:
    """Everything in the catalogue, apart from what is drawn at random and the times of a generation."""
    found = {}
    with engine.home.catalogue.read() as session:
        for table in Table.metadata.sorted_tables:
            drawn = {"uid", "collection_id", "created", "activated"} | (
                {"id"} if table.name == "collections" else set()
            )
            columns = [column for column in table.columns if column.name not in drawn]
            found[table.name] = sorted(
                (tuple(repr(value) for value in row) for row in session.execute(select(*columns))),
            )
    return found


@pytest.fixture
def data(tmp_path: Path) -> Manifest:
    return make_manifest(tmp_path / "data", make_records(COUNT))


@pytest.mark.slow
def test_killed_and_repeated_is_as_never_killed(
    tmp_path: Path, bundle: BundleInfo, encoder: Encoder, data: Manifest
) -> None:
    clean = open_home(tmp_path / "clean")
    ingest(clean, encoder, data, batch_size=BATCH)
    kill_after(4, _PROGRAM, tmp_path / "killed", bundle.folder, data.folder)
    killed = open_home(tmp_path / "killed")
    with killed.home.catalogue.read() as session:
        there = len(session.execute(select(Table.metadata.tables["images"].c.id)).all())
    # Whole batches only: the one being embedded when the kill came left nothing.
    assert there % BATCH == 0
    assert 3 * BATCH <= there <= 4 * BATCH
    report = ingest(killed, encoder, data, batch_size=BATCH)
    assert (report.added, report.unchanged, report.embedded) == (COUNT - there, there, COUNT - there)
    assert _dump(killed) == _dump(clean)
    query = unit_vectors(1, 12)[0]
    pages = [
        engine.search(engine.active("c"), query, SearchRequest(k=COUNT)).hits for engine in (clean, killed)
    ]
    assert pages[0] == pages[1]
    files = [
        sorted(path.relative_to(home) for path in home.rglob("images/**/*") if path.is_file())
        for home in (tmp_path / "clean", tmp_path / "killed")
    ]
    assert [path for path in files[1] if path.suffix != ".part"] == files[0]
    clean.close()
    killed.close()
