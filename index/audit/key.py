"""The secret of the keyed hashes, kept in the home folder where no setting gives one."""

from pathlib import Path
from typing import Final

from index.keys.home_secret import home_secret

FILE: Final = "audit.key"


def home_key(home: Path) -> bytes:
    """Return the secret in a home folder, drawn at the first call; only the owner can read its file.

    Raises:
        HomeError: The file cannot be read or written, or is damaged.
    """
    return home_secret(
        home / FILE, "The key of the audit trail", without="ids and queries get other hashes then"
    )
