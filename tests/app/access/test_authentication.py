"""Wrong keys slow their sender down and never lock the holder of a key out."""

import base64
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr
from starlette.requests import Request

from app.access.authentication import BruteForceLimiter, Refusal
from app.edge.principal import clients_of
from tests.access import bearer
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.app.search.test_search import problem

_KEY = "a key of sixteen letters or more"
_PATH = f"/v1/collections/{COLLECTION}/feedback"


class Clock:
    """Seconds as a test sets them."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def counted() -> list[Refusal]:
    return []


@pytest.fixture
def guesses(clock: Clock, counted: list[Refusal]) -> BruteForceLimiter:
    return BruteForceLimiter(counted.append, clock)


def _different(count: int, name: str = "guess") -> Iterator[str]:
    """Wrong keys without a prefix in common."""
    return (f"{number:05}-{name}" for number in range(count))


def test_after_a_handful_each_wrong_key_takes_twice_as_long(guesses: BruteForceLimiter, clock: Clock) -> None:
    waits = []
    for key in _different(12):
        assert guesses.wait_s(["a"], key) == 0
        # One that is too early does not count.
        waits.append(max(guesses._guessers[hash("a")].wait(clock.now), 0))
        if waits[-1]:
            assert guesses.wait_s(["a"], f"{key}, too early") == waits[-1]
        clock.now += waits[-1]
    assert waits == [0, 0, 0, 0, 1, 2, 4, 8, 16, 30, 30, 30]


def test_others_do_not_wait_but_who_invents_clients_of_a_proxy(
    guesses: BruteForceLimiter, clock: Clock
) -> None:
    for number, key in enumerate(_different(50)):
        assert guesses.wait_s([f"p for {number}", "p"], key) == 0
    assert guesses.wait_s(["p for another", "p"], "another") > 0
    for key in _different(500):
        clock.now += 30
        guesses.wait_s(["a"], key)
    assert guesses.wait_s(["a"], "one more") == 30
    assert guesses.wait_s(["b"], "one more") == 0


def test_a_wrong_key_that_comes_again_counts_once(guesses: BruteForceLimiter, clock: Clock) -> None:
    for _ in range(1_000):
        clock.now += 1
        assert guesses.wait_s(["a"], "an old key of a script") == 0
        assert guesses.wait_s(["a"], "and that of another one") == 0
    for key in _different(3):
        assert guesses.wait_s(["a"], key) == 0
    assert guesses.wait_s(["a"], "one more") == 1
    assert guesses.wait_s(["a"], "an old key of a script") == 0


def test_guesses_of_one_key_from_many_addresses_wait(guesses: BruteForceLimiter) -> None:
    for number in range(50):
        assert guesses.wait_s([f"address {number}"], f"rq_61e9fd0096e2_{number}") == 0
    assert guesses.wait_s(["another address"], "rq_61e9fd0096e2_50") == 1
    assert guesses.wait_s(["another address"], "rq_0096e261e9fd_50") == 0


def test_slips_are_forgotten(guesses: BruteForceLimiter, clock: Clock) -> None:
    for key in _different(20):
        guesses.wait_s(["a"], key)
    clock.now += 601
    assert guesses.wait_s(["a"], "another") == 0
    assert guesses.wait_s(["a"], "and another") == 0


def test_the_memory_is_bounded(guesses: BruteForceLimiter, clock: Clock) -> None:
    for key in _different(10):
        guesses.wait_s(["first"], key)
    for number, key in enumerate(_different(5_000, "other")):
        guesses.wait_s([str(number)], key)
    assert len(guesses._guessers) == 4_096
    assert guesses.wait_s(["first"], "one more") == 0
    for key in _different(200, "persistent"):
        guesses.wait_s(["second"], key)
        clock.now += 30
    assert len(guesses._guessers[hash("second")].keys) <= 64


def test_all_are_counted_and_a_line_in_five_seconds_names_their_addresses(
    guesses: BruteForceLimiter, clock: Clock, counted: list[Refusal], json_log: io.StringIO
) -> None:
    for key in _different(100):
        guesses.wait_s(["10.0.0.7"], key)
        guesses.wait_s(["10.0.0.8"], "an old key")
        clock.now += 0.051
    assert counted.count("wrong") == 100 + 7
    assert counted.count("too-early") == 93
    first, second = (json.loads(line) for line in json_log.getvalue().splitlines())
    assert (first["count"], first["addresses"]) == (1, {"10.0.0.7": 1})
    assert second["count"] + 1 == second["since_start"]
    assert set(second["addresses"]) == {"10.0.0.7", "10.0.0.8"}
    assert sum(second["addresses"].values()) == second["count"]


@pytest.mark.parametrize(
    ("peer", "forwarded", "clients"),
    [
        ("10.0.0.1", None, ["10.0.0.1"]),
        ("2001:db8::1:2:3:4", None, ["2001:db8::/64"]),
        ("::ffff:10.0.0.1", None, ["10.0.0.1"]),
        ("127.0.0.1", "1.1.1.1, 10.0.0.7", ["127.0.0.1 for 10.0.0.7", "127.0.0.1"]),
        ("127.0.0.1", "10.0.0.7:4711", ["127.0.0.1 for 10.0.0.7", "127.0.0.1"]),
        ("127.0.0.1", "x" * 10_000, [f"127.0.0.1 for {'x' * 64}", "127.0.0.1"]),
    ],
)
def test_who_asks_is_an_address_and_its_proxy(peer: str, forwarded: str | None, clients: list[str]) -> None:
    headers = [] if forwarded is None else [(b"x-forwarded-for", forwarded.encode())]
    assert clients_of(Request({"type": "http", "client": (peer, 1), "headers": headers})) == clients


@pytest.fixture
def keyed(indexed: Indexed) -> Iterator[TestClient]:
    with serve(indexed, ("10.0.0.7", 1), key=False, admin_key=SecretStr(_KEY)) as client:
        # A slow machine must not let the waits pass.
        application: Any = client.app
        application.state.services.authenticator._guesses._clock = Clock()
        yield client


def test_a_guesser_gets_429_and_no_holder_of_a_key_does(keyed: TestClient) -> None:
    for number in range(5):
        problem(keyed.get(_PATH, headers=bearer(f"guess {number}")), 401, "wrong-key")
    answer = keyed.get(_PATH, headers=bearer("another guess"))
    problem(answer, 429, "too-many-wrong-keys")
    assert answer.headers["retry-after"] == "1"
    assert keyed.get(_PATH, headers=bearer(_KEY)).status_code == 200
    problem(keyed.post("/v1/session", headers=bearer("a third guess")), 429, "too-many-wrong-keys")
    assert keyed.post("/v1/session", headers=bearer(_KEY)).status_code == 200
    keyed.cookies.clear()
    problem(keyed.get(_PATH), 401, "authentication-needed")
    figures = keyed.get("/metrics").text
    assert 'recoquest_key_refusals_total{reason="wrong"} 5.0' in figures
    assert 'recoquest_key_refusals_total{reason="too-early"} 2.0' in figures


def test_wrong_keys_behind_a_proxy_do_not_lock_a_new_client_out(keyed: TestClient) -> None:
    senders = ({**bearer(f"{n}-old"), "X-Forwarded-For": f"10.1.0.{n}"} for n in range(60))
    assert {keyed.get(_PATH, headers=sent).status_code for sent in senders} == {401, 429}
    new = {**bearer(_KEY), "X-Forwarded-For": "10.2.0.1"}
    assert keyed.get(_PATH, headers=new).status_code == 200


def test_the_holder_of_a_drawn_key_never_waits_for_those_who_guess_beside_him(
    keyed: TestClient, indexed: Indexed
) -> None:
    made = indexed.key("admin", name="viewer")
    for number in range(5):
        problem(keyed.get(_PATH, headers=bearer(f"guess {number}")), 401, "wrong-key")
    forged = made[:-1] + ("a" if made[-1] != "a" else "b")
    problem(keyed.get(_PATH, headers=bearer(forged)), 429, "too-many-wrong-keys")
    assert keyed.get(_PATH, headers=bearer(made)).status_code == 200


def test_a_few_slips_or_no_key_cost_the_holder_nothing(keyed: TestClient) -> None:
    for _ in range(4):
        assert keyed.get(_PATH, headers=bearer("a slip")).status_code == 401
    for _ in range(50):
        assert keyed.get(_PATH).status_code == 401
        assert keyed.get(_PATH, headers=bearer(_KEY)).status_code == 200


KEY = "an-admin-key.of-three.parts"
ADMINS = "/v1/jobs"


@pytest.fixture
def service(own: Indexed) -> Iterator[TestClient]:
    # No provider answers there.
    provider: dict[str, Any] = {"oidc_issuer": "https://127.0.0.1:9/realm", "oidc_audience": "urn:recoquest"}
    with serve(own, key=False, open_reading=False, admin_key=SecretStr(KEY), **provider) as running:
        yield running


def _status(service: TestClient, key: str) -> int:
    return service.get(ADMINS, headers=bearer(key)).status_code


def test_the_key_is_taken_and_guesses_of_its_form_are_slowed_down(service: TestClient) -> None:
    assert _status(service, KEY) == 200
    guesses = [KEY + "x", *(f"a{number}.b.c" for number in range(7))]
    statuses = [_status(service, guess) for guess in guesses]
    assert statuses[:5] == [401] * 5
    assert statuses[-1] == 429
    assert _status(service, KEY) == 200


def test_tokens_of_a_provider_that_is_away_are_no_guesses(service: TestClient) -> None:
    header, claims = (
        base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (b'{"alg":"RS256"}', b'{"sub":"a"}')
    )
    statuses = [_status(service, f"{header}.{claims}.c2lnbmF0dXJl") for _ in range(8)]
    assert statuses == [503] * 8
    assert _status(service, KEY) == 200
