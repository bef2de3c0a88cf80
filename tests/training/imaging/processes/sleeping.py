"""A decoding process whose one task sleeps, as one that waits for a slow disk does."""

import sys
import time
from collections.abc import Mapping
from typing import Any

from training.imaging.processes.worker import TaskAnswer, serve


def _sleep(header: Mapping[str, Any], _: bytearray) -> TaskAnswer:
    time.sleep(header["seconds"])
    return {"outcome": "done"}, b""


if __name__ == "__main__":
    serve({"sleep": _sleep}, sys.argv[1:])
