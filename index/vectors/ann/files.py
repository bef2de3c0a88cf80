"""Codes in files: as they were built, so that a snapshot takes them without writing them again."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from index.vectors.ann.ivf_pq import IvfPq
from index.vectors.ann.search import AnnSearch, OperatingPoint, read_point
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


class CodesCopy(NamedTuple):
    """Codes to write while rows change.

    Attributes:
        built: Codes as they were built.
        content: Bytes of all codes; None where they are in a file.
        point: Operating point.
    """

    built: BuiltCodes
    content: NDArray[np.uint8] | None
    point: OperatingPoint


def keep_codes(codes: IvfPq, folder: Path) -> Path:
    """Write codes into a file of their own, from which snapshots take them."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{os.urandom(16).hex()}.built"
    codes.write(path)
    return path


def copy_codes(ann: AnnSearch, built: BuiltCodes) -> CodesCopy:
    """Return codes for `write_codes`: a reference to their file, or a copy where they have none."""
    if built.file is not None and built.file.exists():
        return CodesCopy(built, None, ann.point)
    return CodesCopy(BuiltCodes(None, len(ann.codes)), ann.codes.content(), ann.point)


def write_codes(codes: CodesCopy, folder: Path, stem: str) -> tuple[dict[str, Path], BuiltCodes]:
    """Write codes and their operating point into files of a folder, by part."""
    files = {part: folder / f"{stem}.{part}" for part in ("codes", "point")}
    files["point"].write_text(json.dumps(asdict(codes.point)))
    if codes.built.file is None:
        assert codes.content is not None
        codes.content.tofile(files["codes"])
    else:
        _link(codes.built.file, files["codes"])
    return files, BuiltCodes(files["codes"], codes.built.rows)


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
