"""Secrets of a home that its backup needs to be restored: fingerprints of them, and themselves, encrypted."""

import hmac
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from index.audit.chain import KEY_FILE as AUDIT_KEY
from index.errors import BackupError
from training.common.atomic import atomic_file

# The name of an audit key that is a setting, and not carried.
AUDIT_SETTING: Final = "RECOQUEST_AUDIT_KEY"
WITHOUT_KEYS: Final = '{"fingerprints": {}, "sealed": null}'
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_PURPOSE: Final = b"recoquest backup"


def sealed_keys(keys: Mapping[str, bytes], passphrase: str | None) -> str:
    """Return, as JSON, fingerprints of secrets by name, and the secrets encrypted by a passphrase, if any."""
    sealed = None
    if passphrase is not None:
        salt, nonce = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES)
        files = {name: key.hex() for name, key in keys.items() if name != AUDIT_SETTING}
        content = json.dumps(files).encode()
        sealed = salt + nonce + _cipher(passphrase, salt).encrypt(nonce, content, _PURPOSE)
    return json.dumps(
        {
            "fingerprints": {name: _fingerprint(key) for name, key in keys.items()},
            "sealed": None if sealed is None else b64encode(sealed).decode(),
        }
    )


def bring_keys(
    written: bytes,
    keys: Mapping[str, bytes],
    passphrase: str | None,
    folder: Path,
    passed_over: Collection[str] = (),
) -> list[str]:
    """Write the secrets that a backup needs and a home lacks into its folder; return the names of others.

    Args:
        written: What `sealed_keys` gave.
        keys: Secrets that the home has, by name.
        passphrase: Passphrase of the backup; None: nothing is written.
        folder: Folder of the home.
        passed_over: Names of secrets that are not needed.

    Raises:
        BackupError: The passphrase is another one, what is written is damaged, or the home has another key of
            patients.
        OSError: A secret cannot be written.
    """
    try:
        found = json.loads(written)
        needed, sealed = dict(found["fingerprints"]), found["sealed"] and b64decode(found["sealed"])
    except (ValueError, LookupError, TypeError) as error:
        raise BackupError("The backup is damaged: its keys are unreadable.") from error
    known = {name: _fingerprint(key) for name, key in keys.items()}
    lacking = [name for name, value in needed.items() if known.get(name) != value and name not in passed_over]
    if not lacking or not sealed or passphrase is None:
        return lacking
    salt, nonce, content = sealed[:_SALT_BYTES], sealed[_SALT_BYTES:][:_NONCE_BYTES], sealed[_SALT_BYTES:]
    try:
        opened = _cipher(passphrase, salt).decrypt(nonce, content[_NONCE_BYTES:], _PURPOSE)
    except InvalidTag:
        raise BackupError(
            "The passphrase is not that of the backup: set RECOQUEST_BACKUP_PASSPHRASE."
        ) from None
    files = {name: key for name, key in json.loads(opened).items() if name in lacking}
    # Without a trail, nothing was written with an audit key; films have pseudonyms by the other.
    if others := [name for name in files if name in keys and name != AUDIT_KEY]:
        raise BackupError(
            f"{folder} has another {others[0]} than the home that was backed up, and a restore would replace "
            "it: move it away, or restore into another --home."
        )
    for name, key in files.items():
        with atomic_file(folder / Path(name).name, private=True) as file:
            file.write(key.encode())
    return [name for name in lacking if name not in files]


def _cipher(passphrase: str, salt: bytes) -> AESGCM:
    return AESGCM(Scrypt(salt, length=32, n=1 << 15, r=8, p=1).derive(passphrase.encode()))


def _fingerprint(key: bytes) -> str:
    return hmac.new(key, _PURPOSE, "sha256").hexdigest()
