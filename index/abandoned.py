"""What a killed process leaves behind: files and folders that were to get their name when they were whole."""

import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

# Whoever is still at work has touched its files since.
ABANDONED_SECONDS: Final = 24 * 3600.0


def remove_abandoned(paths: Iterable[Path]) -> None:
    """Remove those of these files and folders that nobody has touched for a day."""
    before = time.time() - ABANDONED_SECONDS
    for path in paths:
        # Another process may remove it at the same time; what cannot be removed does no harm.
        with suppress(OSError):
            if path.stat().st_mtime < before:
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
