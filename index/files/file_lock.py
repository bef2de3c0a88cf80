"""Locks on files and folders that keep other processes away; they go with a process however it ends."""

import fcntl
from typing import IO, Any


def try_lock(opened: int | IO[Any], *, shared: bool = False) -> bool:
    """Lock an open file or folder without waiting; False while another process keeps it from that.

    Args:
        opened: Open file or its descriptor; closing all copies of the descriptor releases the lock.
        shared: Whether others may hold it, too, if they share it.

    Raises:
        OSError: The file system does not support the lock.
    """
    try:
        fcntl.flock(opened, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
