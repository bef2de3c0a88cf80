"""Writes `recoquest_client/client`, the client without asyncio, from `async_client`, before a build."""

import os
import re
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).resolve().parent / "recoquest_client"
_WORDS: Final = (
    (r"\bawait asyncio\.sleep\b", "time.sleep"),
    (r"\bimport asyncio\b", "import time"),
    (r"\basync_client\b", "client"),
    (r"\b(?:async|await) ", ""),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b(__)?a(?=(?:enter__|exit__|close|read|iter_lines)\b)", r"\1"),
    (r"on asyncio; the same methods as `Client`", "with threads or without"),
    (r"an asynchronous (context .*)\"\"\"", r'a \1 Threads may share it."""'),
    (r" on asyncio\b", ""),
)


def write_client() -> None:
    """Write the modules of the client, where they are not as they should be."""
    target = _PACKAGE / "client"
    target.mkdir(exist_ok=True)
    for source in (_PACKAGE / "async_client").glob("*.py"):
        code = source.read_text(encoding="utf-8")
        for pattern, word in _WORDS:
            code = re.sub(pattern, word, code)
        file = target / source.name
        if not file.exists() or file.read_text(encoding="utf-8") != code:
            # Tests that run side by side may read it meanwhile.
            partial = file.with_name(f"{file.name}.{os.getpid()}")
            partial.write_text(code, encoding="utf-8")
            partial.replace(file)


if __name__ == "__main__":
    from setuptools import setup  # type: ignore[import-untyped]

    write_client()
    setup()
