"""Codes in files: as they were built, so that a snapshot takes them without writing them again."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from index.vectors.ann.ivf_pq import IvfPq
from index.vectors.ann.search import AnnSearch, read_point
from index.vectors.storage.vector_store import VectorStore

_BLOCK: Final = 16_384


class BuiltCodes(NamedTuple):
    """Codes as they were built.

    Attributes:
        file: File of the codes; None if not yet written.
        rows: Number of coded rows.
    """

    file: Path | None
    rows: int


NO_CODES: Final = BuiltCodes(None, 0)


def keep_codes(codes: IvfPq, folder: Path) -> Path:
    """Write codes into a file of their own, from which snapshots take them."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{os.urandom(16).hex()}.built"
    codes.write(path)
    return path


def write_codes(
    ann: AnnSearch, built: BuiltCodes, folder: Path, stem: str
) -> tuple[dict[str, Path], BuiltCodes]:
    """Write codes, as they were built, and their operating point into files of a folder, by part."""
    files = {part: folder / f"{stem}.{part}" for part in ("codes", "point")}
    files["point"].write_text(json.dumps(asdict(ann.point)))
    if built.file is None or not built.file.exists():
        ann.codes.write(files["codes"])
        return files, BuiltCodes(files["codes"], len(ann.codes))
    _link(built.file, files["codes"])
    return files, BuiltCodes(files["codes"], built.rows)


def read_codes(files: Mapping[str, Path], store: VectorStore) -> tuple[AnnSearch, BuiltCodes]:
    """Return what `write_codes` put into files; the codes learn the rows that came since.

    Raises:
        ValueError: The codes do not fit the rows.
    """
    codes = IvfPq.read(files["codes"])
    if len(codes) > len(store):
        raise ValueError("there are codes of more vectors than there are")
    built = BuiltCodes(files["codes"], len(codes))
    for start in range(len(codes), len(store), _BLOCK):
        codes.add(store.rounded(np.arange(start, min(start + _BLOCK, len(store)))))
    return AnnSearch(codes, read_point(files["point"]), store), built


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
    if source.suffix == ".built":
        source.unlink(missing_ok=True)
