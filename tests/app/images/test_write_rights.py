"""Writes over HTTP need a key, wherever they come from."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from tests.access import ADMIN_KEY, AS_ADMIN
from tests.app.conftest import LOCAL, Indexed, serve
from tests.app.images.test_writes import IMAGES, problem


@pytest.fixture(scope="module")
def running(on_either: Indexed) -> Iterator[TestClient]:
    """A service under a name of its own, which a page of another origin may call."""
    with serve(
        on_either, key=False, allowed_hosts=(".example.org",), cors_origins=("https://viewer.example.org",)
    ) as client:
        yield client


@pytest.mark.parametrize(
    ("client", "host", "headers"),
    [
        # A program here, or a proxy here that sends nothing of its own: they cannot be told apart.
        (LOCAL, "127.0.0.1", {}),
        (("::1", 1), "localhost", {"Origin": "http://localhost"}),
        (LOCAL, "127.0.0.1", {"X-Forwarded-For": "127.0.0.1"}),
        (("192.168.0.7", 1), "127.0.0.1", {}),
        (LOCAL, "named.example.org", {}),
        (LOCAL, "127.0.0.1", {"Origin": "https://viewer.example.org"}),
    ],
)
def test_no_address_gives_a_right(
    running: TestClient, client: tuple[str, int], host: str, headers: dict[str, str]
) -> None:
    caller = TestClient(running.app, f"http://{host}", client=client)
    answer = caller.delete(f"{IMAGES}/image-1", headers=headers)
    assert "Bearer" in problem(answer, 401, "authentication-needed")["detail"]
    assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("given", ["", f"Basic {ADMIN_KEY}", "Digest x", ADMIN_KEY])
def test_no_other_scheme_gives_a_right(running: TestClient, given: str) -> None:
    headers = {"Authorization": given} if given else {}
    problem(running.delete(f"{IMAGES}/nobody", headers=headers), 401, "authentication-needed")


@pytest.mark.parametrize("given", ["Bearer", "Bearer wrong", f"Bearer {ADMIN_KEY[:-1]}"])
def test_a_wrong_key_is_said_to_be_wrong(running: TestClient, given: str) -> None:
    # From elsewhere each time, so that no guess makes the next wait.
    caller = TestClient(running.app, "http://127.0.0.1", client=(f"10.0.0.{len(given)}", 1))
    answer = caller.delete(f"{IMAGES}/nobody", headers={"Authorization": given})
    problem(answer, 401, "wrong-key")
    assert answer.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'


@pytest.mark.parametrize("headers", [{}, {"X-Forwarded-For": "10.0.0.1"}])
def test_who_brings_the_key_may_change_things_from_anywhere(
    running: TestClient, headers: dict[str, str]
) -> None:
    caller = TestClient(running.app, "http://images.example.org", client=("192.168.0.7", 1), headers=AS_ADMIN)
    problem(caller.delete(f"{IMAGES}/nobody", headers=headers), 404, "unknown-image")
    assert caller.get("/v1/collections").status_code == 200
