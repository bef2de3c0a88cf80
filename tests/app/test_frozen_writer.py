"""A service on an SQLite catalogue whose write lock is held by a process that is stopped."""

from contextlib import ExitStack

import pytest
from fastapi.testclient import TestClient

from app.application import create_app
from tests.access import AS_ADMIN
from tests.app.conftest import COLLECTION, Indexed
from tests.frozen import frozen_writer

LOCAL = ("127.0.0.1", 50_000)


def test_writes_are_refused_and_reads_go_on_until_it_goes_on(
    own: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.engine._LOCK_SECONDS", 0.3)
    image = f"/v1/collections/{COLLECTION}/images/{own.manifest.records[0].id}"
    search = f"/v1/collections/{COLLECTION}/search"
    application = create_app(own.settings)
    with ExitStack() as frozen:
        frozen.enter_context(frozen_writer(own.settings.home / "catalogue.sqlite3"))
        with TestClient(
            application, "http://127.0.0.1", raise_server_exceptions=False, client=LOCAL, headers=AS_ADMIN
        ) as client:
            assert client.get("/readyz").status_code == 200
            for _ in range(3):
                refused = client.delete(image)
                assert refused.status_code == 503
                assert refused.headers["retry-after"] == "2"
                assert refused.json()["type"] == "urn:recoquest:catalogue-busy"
                assert client.post(search, json={"text": "two dogs"}).status_code == 200
                assert client.get(image).status_code == 200
            frozen.close()
            assert client.delete(image).is_success
            assert client.get(image).status_code == 404
