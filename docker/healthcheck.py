"""Exits with 0 when the service in this container is ready, with 1 and the reason when it is not.

It talks to the loopback address directly, where `urllib.request` would go through a proxy that the
environment names.
"""

import http.client
import os
import sys

TIMEOUT_SECONDS = 8


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


if __name__ == "__main__":
    sys.exit(fault(int(os.environ.get("RECOQUEST_PORT", "8000"))))
