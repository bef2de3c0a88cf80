"""The audit trail of a running service, whole, once its recorder has written all events."""

import time
from typing import Any

from fastapi.testclient import TestClient

from app.audit.recorder import Recorder


def written_events(
    client: TestClient, headers: dict[str, str] | None = None, **parameters: str
) -> list[dict[str, Any]]:
    """Return all events of all pages; tests may share a home whose trail is longer than a page.

    Args:
        client: A service.
        headers: Headers of an auditor; None: the client has them.
        parameters: Parameters that choose events.
    """
    recorder: Recorder = client.app.state.services.recorder  # type: ignore[attr-defined]
    deadline = time.monotonic() + 10
    while len(recorder) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not len(recorder), "the recorder has not written its events"
    events: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    for _ in range(100):
        answer = client.get("/v1/audit", params={"limit": "1000", **parameters, **cursor}, headers=headers)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        events += page["events"]
        if page["next_cursor"] is None:
            return events
        cursor = {"cursor": page["next_cursor"]}
    raise AssertionError("the trail has over a hundred pages")
