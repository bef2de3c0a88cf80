"""The secret of the pseudonyms that stand for patients, kept in the home folder."""

from pathlib import Path
from typing import Final

from index.keys.home_secret import home_secret

FILE: Final = "patients.key"


def patient_key(home: Path) -> bytes:
    """Return the secret in a home folder, drawn at the first call; only the owner can read its file.

    Raises:
        HomeError: The file cannot be read or written, or is damaged.
    """
    return home_secret(
        home / FILE,
        "The key of patients' pseudonyms",
        without="patients and accession numbers get other pseudonyms then, and dates another shift",
    )
