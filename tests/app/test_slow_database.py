"""A service whose PostgreSQL does not answer in time."""

import time
from collections.abc import Callable

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Connection, create_engine, text

from app.application import create_app
from tests.app.conftest import COLLECTION, Indexed

SEARCH = {"text": "two dogs"}
AT_WORK = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()"


def _falls_quiet(connection: Connection) -> bool:
    """Say whether no other connection is at work at some moment of the next seconds.

    Args:
        connection: In autocommit, as a transaction sees the activity of its first look only.
    """
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        if connection.execute(text(AT_WORK)).scalar_one() == 0:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
def test_a_read_that_takes_too_long_is_cut_off_and_nothing_goes_on_in_the_server(
    make_indexed: Callable[..., Indexed], postgresql_url: str
) -> None:
    indexed = make_indexed(database_url=postgresql_url, database_timeout_s=1.0)
    path = f"/v1/collections/{COLLECTION}/search"
    with (
        TestClient(create_app(indexed.settings), "http://localhost", raise_server_exceptions=False) as client,
        create_engine(postgresql_url).connect() as other,
        create_engine(postgresql_url, isolation_level="AUTOCOMMIT").connect() as observer,
    ):
        assert client.post(path, json=SEARCH).status_code == 200
        # Ids are not kept in memory as other fields are: the search reads them in the database.
        asked = SEARCH | {"filter": {"field": "id", "eq": "nothing"}}
        # Every read of images waits for this transaction.
        other.execute(text("LOCK TABLE images IN ACCESS EXCLUSIVE MODE"))
        answer = client.post(path, json=asked)
        assert (answer.status_code, answer.json()["type"]) == (504, "urn:recoquest:catalogue-timeout")
        assert answer.headers["retry-after"] == "2"
        # The service reads fields into memory behind its start; it waits as well, and is cut off as well.
        assert _falls_quiet(observer)
        other.rollback()
        assert client.post(path, json=asked).status_code == 200
