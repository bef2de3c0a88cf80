"""Decodes or imports files one by one, each within the memory of that: `... FOLDER decode|import`."""

import ctypes
import gc
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from app.settings import Settings
from training.common.errors import ImageError
from training.imaging.images import decode_whole
from training.importing.dicom import MEMORY_BYTES, SourceFile, examine
from training.importing.layouts import Source


def main(folder: Path, way: str) -> None:
    """Write a line of JSON before and after each file."""
    _limit(Settings.model_fields["decode_memory_bytes"].default if way == "decode" else MEMORY_BYTES)
    for path in sorted(folder.iterdir()):
        _write({"name": path.name})
        # The peak begins anew with each file, without what the one before has left to the allocator.
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        started = time.process_time()
        try:
            outcome = _decoded(path) if way == "decode" else _imported(path)
        except ImageError as error:
            outcome = str(error)
        except MemoryError:
            outcome = "It takes too much memory."
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        status = dict(line.split(":", 1) for line in lines)
        line = {"outcome": outcome, "seconds": time.process_time() - started}
        line["bytes"] = 1024 * int(status["VmHWM"].split()[0])
        _write(line)


def _limit(memory_bytes: int) -> None:
    """Limit the memory of this process as that of the service, or of an import."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    space = pages * resource.getpagesize() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (space, space))


def _decoded(path: Path) -> str:
    decoded = decode_whole(path)
    return f"decoded {decoded.width} x {decoded.height}"


def _imported(path: Path) -> str:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "images").mkdir()
        examined = examine(SourceFile(1, path), Source(path, Path(folder), key=b"key"))
    return f"{examined.refused}." if examined.refused else f"decoded {len(examined.films)} films"


def _write(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
