"""Images of callers, decoded in processes with limits of memory and time."""

from typing import Final

# The module that runs in the processes.
WORKER: Final = "app.decoding.worker"
