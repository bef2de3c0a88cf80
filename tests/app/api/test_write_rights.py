"""Writes over HTTP are taken from this machine, or with the key."""

from dataclasses import replace

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from app.application import create_app
from tests.app.api.test_writes import IMAGES, LOCAL, home, problem, serve
from tests.app.conftest import COLLECTION, Indexed

__all__ = ["home"]

CHANGES: list[tuple[str, str]] = [
    ("POST", "/v1/collections"),
    ("DELETE", f"/v1/collections/{COLLECTION}"),
    ("POST", IMAGES),
    ("PUT", f"{IMAGES}/image-1"),
    ("PATCH", f"{IMAGES}/image-1"),
    ("DELETE", f"{IMAGES}/image-1"),
]


@pytest.mark.parametrize(("method", "path"), CHANGES)
@pytest.mark.parametrize(
    ("client", "host", "headers"),
    [
        (("192.168.0.7", 1), "127.0.0.1", {}),
        (("testclient", 1), "127.0.0.1", {}),
        (LOCAL, "127.0.0.1", {"X-Forwarded-For": "127.0.0.1"}),
        (LOCAL, "127.0.0.1", {"X-Forwarded-Proto": "https"}),
        (LOCAL, "127.0.0.1", {"Forwarded": "for=127.0.0.1"}),
        (LOCAL, "127.0.0.1", {"CF-Connecting-IP": "10.0.0.1"}),
        (LOCAL, "named.example.org", {}),
        (LOCAL, "127.0.0.1", {"Origin": "https://viewer.example.org"}),
    ],
)
def test_only_this_machine_may_change_anything(
    home: Indexed,
    method: str,
    path: str,
    client: tuple[str, int],
    host: str,
    headers: dict[str, str],
) -> None:
    # Without its start there are no services to reach: the request must not get that far.
    settings = home.settings.model_copy(
        update={"allowed_hosts": (".example.org",), "cors_origins": ("https://viewer.example.org",)}
    )
    stranger = TestClient(create_app(settings), f"http://{host}", client=client)
    problem(stranger.request(method, path, json={}, headers=headers), 403, "only-from-this-machine")


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_every_address_of_this_machine_may(home: Indexed, address: str) -> None:
    with serve(home, client=(address, 1), host="localhost") as client:
        origin = {"Origin": "http://localhost"}
        problem(client.delete(f"{IMAGES}/nobody", headers=origin), 404, "unknown-image")


KEY = "a key of some length, with ä"


@pytest.mark.parametrize(("method", "path"), CHANGES)
@pytest.mark.parametrize("given", ["", "Bearer", "Bearer wrong", f"Basic {KEY}", f"Bearer {KEY[:-1]}"])
def test_where_a_key_is_set_nobody_changes_anything_without_it(
    home: Indexed, method: str, path: str, given: str
) -> None:
    application = create_app(home.settings.model_copy(update={"admin_key": SecretStr(KEY)}))
    here = TestClient(application, "http://127.0.0.1", client=LOCAL)
    headers = {b"Authorization": given.encode()} if given else {}
    # Without its start there are no services to reach: the request must not get that far.
    answer = here.request(method, path, json={}, headers=headers)
    problem(answer, 401, "admin-key-needed")
    assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_who_brings_the_key_may_change_things_from_anywhere(home: Indexed) -> None:
    settings = home.settings.model_copy(
        update={"admin_key": SecretStr(KEY), "allowed_hosts": ("example.org",)}
    )
    with serve(replace(home, settings=settings), client=("192.168.0.7", 1), host="example.org") as client:
        headers = {b"Authorization": f"Bearer {KEY}".encode(), b"X-Forwarded-For": b"10.0.0.1"}
        problem(client.delete(f"{IMAGES}/nobody", headers=headers), 404, "unknown-image")
        assert client.get("/v1/collections").status_code == 200
