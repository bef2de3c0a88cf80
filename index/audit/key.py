"""The secret of the keyed hashes, kept in the home folder where no setting gives one."""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from index.errors import HomeError

FILE: Final = "audit.key"
_BYTES: Final = 32


def home_key(home: Path) -> bytes:
    """Return the secret in a home folder, drawn at the first call; only the owner can read its file.

    Raises:
        HomeError: The file cannot be read or written, or is damaged.
    """
    path = home / FILE
    try:
        if not path.exists():
            _draw(path)
        key = bytes.fromhex(path.read_text(encoding="ascii"))
    except OSError as error:
        raise HomeError(f"The key of the audit trail, {path}, cannot be used: {error.strerror}.") from error
    except ValueError:
        key = b""
    if len(key) != _BYTES:
        raise HomeError(
            f"The key of the audit trail, {path}, is damaged: bring it back from a copy, or remove it; ids "
            "and queries get other hashes then."
        )
    return key


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
