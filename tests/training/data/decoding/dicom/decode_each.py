"""Decodes files one after the other in a process with little memory: `python -m ... FOLDER BYTES`."""

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from training.data.decoding.images import decode_whole
from training.errors import ImageError


def main(folder: Path, memory_bytes: int) -> None:
    """Write a line of JSON before and after each file."""
    pages, resident = map(int, Path("/proc/self/statm").read_text(encoding="ascii").split()[:2])
    space = (pages - resident) * resource.getpagesize() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    for path in sorted(folder.iterdir()):
        _write({"name": path.name})
        started = time.process_time()
        try:
            decoded = decode_whole(path)
            outcome = f"decoded {decoded.width} x {decoded.height}"
        except ImageError as error:
            outcome = str(error)
        except MemoryError:
            outcome = "It takes too much memory."
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        status = dict(line.split(":", 1) for line in lines)
        line = {"outcome": outcome, "seconds": time.process_time() - started}
        line["bytes"] = 1024 * int(status["VmHWM"].split()[0])
        _write(line)


def _write(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
