"""Snapshots: a view on disk, so that a start need not read every vector from the catalogue.

The catalogue stays the truth: a snapshot that is missing, damaged or of another generation is not used.
"""

import hashlib
import json
import logging
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from index.catalogue.collections import Generation
from index.files.stale import remove_stale
from index.vectors.ann import OperatingPoint, read_point
from index.vectors.protocol import ViewName
from index.vectors.view import CosineView, VectorView, new_view
from training.common.atomic import atomic_file, sync

_FORMAT: Final = 5
_MANIFEST: Final = "snapshot.json"

_log = logging.getLogger(__name__)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    sha256: str
    size: int
    modified_ns: int


class Manifest(BaseModel):
    """Contents of a snapshot, complete up to a sequence number."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int
    generation: str
    digest: str
    dim: int
    sequence: int
    view: ViewName
    files: dict[str, _File]


class _UnusableError(Exception):
    """Why a snapshot is not used."""


def write_snapshot(
    folder: Path,
    view: VectorView,
    generation: Generation,
    sequence: int,
    on_copied: Callable[[], None] | None = None,
) -> Manifest | None:
    """Write a view that holds all embeddings up to a sequence number; it replaces the one there in one step.

    One of the same generation that is complete up to a later number stays: None is returned. What is written
    to the view after `on_copied` is not in the snapshot.

    Raises:
        OSError: The disk does not take it; the one there stays.
        MovedError: The view's vectors were moved meanwhile; the one there stays.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stored = stored_snapshot(folder, generation)
    if stored is not None and stored.sequence > sequence:
        _log.info("the snapshot in %s is newer and stays", folder)
        return None
    stem = uuid.uuid4().hex
    old = _stored_names(folder)
    remove_stale(path for path in folder.iterdir() if path.name not in {_MANIFEST, *old})
    try:
        files: dict[str, _File] = {}
        for part, path in view.write(folder, stem, on_copied).items():
            sync(path)
            status, digest = path.stat(), _sha256(path)
            files[part] = _File(
                name=path.name, sha256=digest, size=status.st_size, modified_ns=status.st_mtime_ns
            )
        kind: ViewName = "exact" if "codes" not in files else "ivf"
        if kind == "ivf" and isinstance(view, CosineView) and view.mapped:
            kind = "mapped"
        manifest = Manifest(
            format=_FORMAT,
            generation=generation.uid,
            digest=generation.digest,
            dim=generation.dim,
            sequence=sequence,
            view=kind,
            files=files,
        )
        sync(folder)
        with atomic_file(folder / _MANIFEST) as file:
            file.write(manifest.model_dump_json(indent=2).encode())
    except BaseException:
        for path in folder.glob(f"{stem}.*"):
            path.unlink(missing_ok=True)
        raise
    for name in old:
        (folder / name).unlink(missing_ok=True)
    return manifest


def read_snapshot(
    folder: Path, generation: Generation, *, mapped: bool = False, shared: bool = False
) -> tuple[VectorView, int] | None:
    """Read a snapshot and the sequence number up to which it is complete.

    Args:
        folder: Folder of the snapshot.
        generation: Generation that it must be of.
        mapped: Whether vectors that are compared by cosine stay in its file. Their file is hashed only if its
            size or its time of change is another than when it was written: it may be larger than memory.
        shared: Whether other processes read it as well, so that its vectors are to be in memory once.

    Returns:
        None when there is none, or when it is damaged or of something else; the log says which.
    """
    try:
        manifest = _read_manifest(folder, generation)
        spill = folder if mapped else None
        view = new_view(
            generation.dim, generation.blades, unsigned=generation.unsigned, spill=spill, shared=shared
        )
        unread = {"rows"} if isinstance(view, CosineView) and view.mapped else set()
        view.read({part: _checked(folder, file, part in unread) for part, file in manifest.files.items()})
    except FileNotFoundError as error:
        _log.info("no snapshot is used: %s is missing", error.filename)
        return None
    except ValidationError:
        # Pydantic's message has a line for each field.
        _log.warning("the snapshot in %s is not used and will be rebuilt: its manifest is unreadable", folder)
        return None
    except (_UnusableError, OSError, RuntimeError, ValueError, KeyError) as error:
        _log.warning("the snapshot in %s is not used and will be rebuilt: %s", folder, error)
        return None
    return view, manifest.sequence


def stored_operating_point(folder: Path, generation: Generation) -> OperatingPoint | None:
    """Return the operating point of the codes in a snapshot; None where it has none."""
    try:
        return read_point(folder / _read_manifest(folder, generation).files["point"].name)
    except (_UnusableError, ValueError, OSError, KeyError):
        return None


def remove_snapshot(folder: Path) -> None:
    """Let go of a snapshot that must not be used; its files are removed with other stale ones."""
    (folder / _MANIFEST).unlink(missing_ok=True)


def stored_snapshot(folder: Path, generation: Generation) -> Manifest | None:
    """Return what the snapshot there has; None if it cannot be used."""
    try:
        return _read_manifest(folder, generation)
    except (ValidationError, _UnusableError, OSError):
        return None


def _read_manifest(folder: Path, generation: Generation) -> Manifest:
    manifest = Manifest.model_validate_json((folder / _MANIFEST).read_bytes())
    if manifest.format != _FORMAT:
        raise _UnusableError(f"it has format {manifest.format}, not {_FORMAT}")
    if (manifest.generation, manifest.digest, manifest.dim) != (
        generation.uid,
        generation.digest,
        generation.dim,
    ):
        raise _UnusableError("it is of another generation or bundle")
    return manifest


def _checked(folder: Path, file: _File, unread: bool) -> Path:
    """Return the path of a file that is as it was written; `unread` trusts its size and time of change."""
    path = folder / file.name
    if path.parent == folder:
        status = path.stat()
        unchanged = (status.st_size, status.st_mtime_ns) == (file.size, file.modified_ns)
        if (unread and unchanged) or _sha256(path) == file.sha256:
            return path
    raise _UnusableError(f"{file.name} is damaged or has been exchanged")


def _stored_names(folder: Path) -> set[str]:
    """Return the files of the current snapshot, whatever its format."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
        return {Path(file["name"]).name for file in manifest["files"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
