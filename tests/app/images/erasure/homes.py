"""A home with an image like no other, of which an erasure leaves nothing."""

import json
import sqlite3
from pathlib import Path

from app.collections.names import rename
from app.images.deletion import Erasure, erase
from index.audit.event import Actor
from index.catalogue.jobs import add_job
from index.catalogue.tables import JobRow
from tests.app.conftest import COLLECTION, Indexed

HERE = f"/v1/collections/{COLLECTION}"
TEXT = "Zirkulaerer Verschluss xylophonartig"
WORD = b"xylophonartig"


def holding(folder: Path, content: bytes) -> list[str]:
    """Name the files below a folder whose bytes or name hold something."""
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if content in str(path.relative_to(folder)).encode()
        or (path.is_file() and content in path.read_bytes())
    ]


def sha256_of(indexed: Indexed, image: str = "image-5") -> str:
    with indexed.engine() as engine:
        return engine.image(COLLECTION, image).sha256


def vector_of(indexed: Indexed) -> bytes:
    catalogue = sqlite3.connect(indexed.settings.home / "catalogue.sqlite3")
    found = catalogue.execute(
        "SELECT vector FROM embeddings JOIN images ON images.id = image_id WHERE external_id = 'image-5'"
    ).fetchone()
    catalogue.close()
    return bytes(found[0])


def write_old_jobs(indexed: Indexed, sha256: str) -> None:
    """Leave the results and folders of jobs that name the image."""
    with indexed.write() as session:
        job = add_job(session, "duplicates", [COLLECTION])
        row = session.get(JobRow, job.id)
        assert row is not None
        row.state, row.result = "done", {"groups": [{"ids": ["image-5", "image-6"], "same_file": False}]}
        other = add_job(session, "duplicates", ["elsewhere"])
        kept = session.get(JobRow, other.id)
        assert kept is not None
        kept.state, kept.result = "done", {"groups": [{"ids": ["image-5"]}]}
    folder = indexed.settings.home / "jobs" / str(job.id) / "retraining"
    (folder / "images").mkdir(parents=True)
    (folder / "images" / sha256).symlink_to("/nowhere")
    lines = [
        {"id": name, "texts": [TEXT] if name == "image-5" else ["b"]} for name in ("image-5", "image-51")
    ]
    (folder / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "result.json").write_text(json.dumps({"shown": [{"id": "image-5", "text": TEXT}], "count": 2}))
    (folder / "weights.bin").write_bytes(b"\x00\x01 image-5 \x00")


def rename_now(indexed: Indexed) -> None:
    with indexed.engine() as engine:
        actor = Actor("command")
        rename(indexed.settings, engine.home, COLLECTION, "renamed", actor, operation="rename", request=None)


def erase_now(indexed: Indexed, *ids: str) -> Erasure:
    with indexed.engine() as engine:
        actor = Actor("command")
        return erase(indexed.settings, engine.home, COLLECTION, ids or ("image-5",), actor, operation="erase")
