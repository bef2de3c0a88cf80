"""Exits with 0 when the service in this container is ready, with 1 and the reason when it is not.

Given the word `worker`, it looks whether this container's worker is at work or ready to be.
It talks to the loopback address directly, where `urllib.request` would go through a proxy that the
environment names.
"""

import http.client
import os
import socket
import sys
import time
from pathlib import Path

TIMEOUT_SECONDS = 8
# As long as the service lets a worker say nothing; see app/heartbeat.py.
SILENT_SECONDS = 30


def fault(port: int, path: str = "/readyz") -> str | None:
    """Returns why the service on a loopback port is not ready, or None when it is."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read(500).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        return f"no answer from port {port}: {error}"
    finally:
        connection.close()
    return None if answer.status == 200 else f"{path} answered {answer.status}: {body}"


def fault_of_worker(home: Path) -> str | None:
    """Returns why no worker of this container is there, or None when one is: it touches its file."""
    said = [file.stat().st_mtime for file in (home / "workers").glob(f"{socket.gethostname()}:*")]
    if not said:
        return f"no worker of this container has looked for jobs in {home}"
    silent = time.time() - max(said)
    return None if silent < SILENT_SECONDS else f"the worker has not looked for jobs for {silent:.0f} seconds"


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        sys.exit(fault_of_worker(Path(os.environ["RECOQUEST_HOME"])))
    sys.exit(fault(int(os.environ.get("RECOQUEST_PORT", "8000"))))
