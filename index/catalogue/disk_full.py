"""Whether an error says that a disk is full."""

import errno
import sqlite3
from typing import Final

_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
# The second: there is no space for the index of a write-ahead log, which readers need as well.
_SQLITE: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
_POSTGRESQL: Final = "53100"


def is_disk_full(error: BaseException | None) -> bool:
    """Tell whether an error of the system or of a database's driver is that of a full disk."""
    if isinstance(error, OSError):
        return error.errno in _NO_SPACE
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", None) in _SQLITE
    return getattr(error, "sqlstate", None) == _POSTGRESQL
