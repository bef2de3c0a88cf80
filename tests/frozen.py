"""A process that holds the write lock of an SQLite catalogue and is stopped, as a debugger would."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PROGRAM = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE collections SET sequence = sequence")
print("held", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""


@contextmanager
def frozen_writer(database: Path) -> Iterator[None]:
    """Have another process hold the write lock, stopped, until the block ends."""
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(database)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "held\n"
            process.send_signal(signal.SIGSTOP)
            yield
        finally:
            process.send_signal(signal.SIGCONT)
            process.communicate("\n", timeout=30)
    assert process.returncode == 0
