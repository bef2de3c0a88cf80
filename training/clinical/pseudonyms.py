"""Pseudonyms of patients and requests, and shifts of dates, by a secret key."""

import hashlib
import hmac
from typing import Final

# Fields of an image that name its patient, as the import of DICOM gives them.
PATIENT_FIELDS: Final = ("patient", "other_patients")
_DIGITS: Final = 16
_LONGEST_SHIFT: Final = 365


def keyed_hash(key: bytes, kind: str, value: str) -> str:
    """Return 16 hex digits for a value of a kind such as "patient", by the secret of the home folder.

    Spaces around the value don't count.
    """
    return _digest(key, kind, value).hex()[:_DIGITS]


def shift_days(key: bytes, patient: str) -> int:
    """Return the number of days, from 1 to 365, by which all dates of a patient are moved back."""
    return int.from_bytes(_digest(key, "shift", patient)) % _LONGEST_SHIFT + 1


def _digest(key: bytes, kind: str, value: str) -> bytes:
    return hmac.new(key, f"{kind}\0{value.strip()}".encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
