"""Decodes or imports files one after the other in a process: `python -m ... FOLDER BYTES decode|import`."""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from training.data.decoding.images import decode_whole
from training.data.readers.dicom.examination import Rules, examine
from training.data.readers.dicom.places import Place
from training.errors import ImageError


def main(folder: Path, memory_bytes: int, way: str) -> None:
    """Write a line of JSON before and after each file."""
    pages, resident = map(int, Path("/proc/self/statm").read_text(encoding="ascii").split()[:2])
    space = (pages - resident) * resource.getpagesize() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    for path in sorted(folder.iterdir()):
        _write({"name": path.name})
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


def _decoded(path: Path) -> str:
    decoded = decode_whole(path)
    return f"decoded {decoded.width} x {decoded.height}"


def _imported(path: Path) -> str:
    with tempfile.TemporaryDirectory() as folder:
        examined = examine(Place(1, path), Rules(Path(folder), b"key"))
    return f"{examined.refused}." if examined.refused else f"decoded {len(examined.films)} films"


def _write(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
