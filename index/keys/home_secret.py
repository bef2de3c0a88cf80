"""Secrets that a home keeps in files of their own, drawn where they are first needed."""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from index.errors import HomeError

_BYTES: Final = 32
FILE: Final = "patients.key"


def home_secret(path: Path, name: str, *, without: str) -> bytes:
    """Return the secret in a file, drawn at the first call; only the owner can read the file.

    Args:
        path: The file.
        name: What the secret is, for errors.
        without: What becomes of it where the file is removed, for errors.
    """
    try:
        if not path.exists():
            _draw(path)
        secret = bytes.fromhex(path.read_text(encoding="ascii"))
    except OSError as error:
        raise HomeError(f"{name}, {path}, cannot be used: {error.strerror}.") from error
    except ValueError:
        secret = b""
    if len(secret) != _BYTES:
        raise HomeError(f"{name}, {path}, is damaged: bring it back from a copy, or remove it; {without}.")
    return secret


def _draw(path: Path) -> None:
    """Write a secret in one step; of several processes, the first one's stays."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            path.hardlink_to(part)
    finally:
        part.unlink()


def patient_key(home: Path) -> bytes:
    """Return the secret in a home folder, drawn at the first call; only the owner can read its file."""
    return home_secret(
        home / FILE,
        "The key of patients' pseudonyms",
        without="patients and accession numbers get other pseudonyms then, and dates another shift",
    )
