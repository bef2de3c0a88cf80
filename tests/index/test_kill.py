"""A run that is killed and repeated leaves the same catalogue as one that was not."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import select

from index.catalogue.tables import Table
from index.engine import SearchEngine
from index.ingest import ingest_manifest
from index.request import SearchRequest
from tests.index.conftest import open_home
from tests.index.samples import make_manifest, make_records, unit_vectors
from training.data.manifest import Manifest
from training.models.bundle import BundleInfo
from training.models.encoder import Encoder

BATCH = 4
COUNT = 40

_PROGRAM = """
import sys
from pathlib import Path
from index.ingest import ingest_manifest
from tests.index.conftest import open_home
from training.data.manifest import read_manifest
from training.models.encoder import load_encoder

home, bundle, data = map(Path, sys.argv[1:4])
encoder = load_encoder(bundle, "cpu")
embed = encoder.embed_images

def embed_and_tell(images):
    vectors = embed(images)
    print("batch", flush=True)
    sys.stdin.readline()
    return vectors

encoder.embed_images = embed_and_tell
ingest_manifest(open_home(home), "c", encoder, read_manifest(data), batch_size=4, show_progress=False)
"""


def _killed_run(home: Path, bundle: Path, data: Path, *, batches: int) -> None:
    """Kill a run right after it embedded its last batch of these."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(home), str(bundle), str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for _ in range(batches):
        assert process.stdout.readline() == "batch\n"
        process.stdin.write("\n")
        process.stdin.flush()
    process.send_signal(signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL
    process.stdin.close()
    process.stdout.close()


def _dump(engine: SearchEngine) -> dict[str, list[tuple[str, ...]]]:
    """Everything in the catalogue, apart from what is drawn at random and the times of a generation."""
    found = {}
    with engine.catalogue.read() as session:
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


def test_killed_and_repeated_is_as_never_killed(
    tmp_path: Path, bundle: BundleInfo, encoder: Encoder, data: Manifest
) -> None:
    clean = open_home(tmp_path / "clean")
    ingest_manifest(clean, "c", encoder, data, batch_size=BATCH, show_progress=False)
    _killed_run(tmp_path / "killed", bundle.folder, data.folder, batches=4)
    killed = open_home(tmp_path / "killed")
    with killed.catalogue.read() as session:
        there = len(session.execute(select(Table.metadata.tables["images"].c.id)).all())
    # Whole batches only: the one being embedded when the kill came left nothing.
    assert there % BATCH == 0
    assert 3 * BATCH <= there <= 4 * BATCH
    report = ingest_manifest(killed, "c", encoder, data, batch_size=BATCH, show_progress=False)
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
