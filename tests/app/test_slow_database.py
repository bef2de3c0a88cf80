"""A service whose PostgreSQL does not answer in time."""

from collections.abc import Callable

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import create_engine, text

from app.application import create_app
from tests.app.conftest import COLLECTION, Indexed

SEARCH = {"text": "two dogs"}
AT_WORK = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()"


@pytest.mark.slow
def test_a_read_that_takes_too_long_is_cut_off_and_nothing_goes_on_in_the_server(
    make_indexed: Callable[..., Indexed], postgresql_url: str
) -> None:
    indexed = make_indexed(database_url=postgresql_url, database_timeout_s=1.0)
    path = f"/v1/collections/{COLLECTION}/search"
    with (
        TestClient(create_app(indexed.settings), "http://localhost", raise_server_exceptions=False) as client,
        create_engine(postgresql_url).connect() as other,
    ):
        known = client.get("/v1/collections").json()["collections"][0]["fields"]
        assert client.post(path, json=SEARCH).status_code == 200
        asked = SEARCH | {"filter": {"field": known[0]["name"], "eq": "nothing"}}
        # Whoever reads it waits for this transaction.
        other.execute(text("LOCK TABLE fields IN ACCESS EXCLUSIVE MODE"))
        answer = client.post(path, json=asked)
        assert (answer.status_code, answer.json()["type"]) == (504, "urn:recoquest:catalogue-timeout")
        assert answer.headers["retry-after"] == "2"
        assert other.execute(text(AT_WORK)).scalar_one() == 0
        other.rollback()
        assert client.post(path, json=asked).status_code == 200
