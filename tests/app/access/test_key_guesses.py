"""Guesses of keys are slowed down, and its holder is not locked out."""

import io
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr
from starlette.requests import Request

from app.access.key_guesses import BruteForceLimiter, Refusal, clients_of
from app.application import create_app
from app.engine import open_engine
from index.keys.api_keys import create_key
from tests.app.api.test_search import problem
from tests.app.conftest import COLLECTION, Indexed

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


def test_after_a_handful_each_wrong_key_takes_twice_as_long(guesses: BruteForceLimiter, clock: Clock) -> None:
    waits = []
    for _ in range(12):
        assert guesses.wait_s(["a"]) == 0
        guesses.was_wrong(["a"])
        waits.append(guesses.wait_s(["a"]))
        clock.now += waits[-1]
    assert waits == [0, 0, 0, 0, 1, 2, 4, 8, 16, 30, 30, 30]


def test_others_do_not_wait(guesses: BruteForceLimiter) -> None:
    for _ in range(5_000):
        guesses.was_wrong(["a"])
    assert guesses.wait_s(["a"]) == 30
    assert guesses.wait_s(["b"]) == 0


def test_slips_are_forgotten(guesses: BruteForceLimiter, clock: Clock) -> None:
    for _ in range(20):
        guesses.was_wrong(["a"])
    clock.now += 601
    assert guesses.wait_s(["a"]) == 0
    guesses.was_wrong(["a"])
    assert guesses.wait_s(["a"]) == 0


def test_who_invents_clients_of_a_proxy_is_counted_as_well(guesses: BruteForceLimiter) -> None:
    for number in range(50):
        assert guesses.wait_s([f"p for {number}", "p"]) == 0
        guesses.was_wrong([f"p for {number}", "p"])
    assert guesses.wait_s(["p for another", "p"]) > 0


def test_the_memory_is_bounded(guesses: BruteForceLimiter) -> None:
    for _ in range(10):
        guesses.was_wrong(["first"])
    for number in range(5_000):
        guesses.was_wrong([str(number)])
    assert len(guesses._guessers) == 4_096
    assert guesses.wait_s(["first"]) == 0


def test_all_are_counted_and_a_line_in_five_seconds_is_logged(
    guesses: BruteForceLimiter,
    clock: Clock,
    counted: list[Refusal],
    json_log: io.StringIO,
) -> None:
    for _ in range(100):
        guesses.was_wrong(["a"])
        guesses.wait_s(["a"])
        clock.now += 0.1
    assert counted.count("wrong") == 100
    assert counted.count("too-early") == 96
    assert len(json_log.getvalue().splitlines()) == 2


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
    settings = indexed.settings.model_copy(update={"admin_key": SecretStr(_KEY)})
    with TestClient(create_app(settings), "http://localhost", client=("10.0.0.7", 1)) as client:
        yield client


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_a_guesser_gets_429_and_nobody_else_does(keyed: TestClient) -> None:
    for number in range(5):
        problem(keyed.get(_PATH, headers=_bearer(f"guess {number}")), 401, "wrong-key")
    for key in ("another guess", _KEY):
        answer = keyed.get(_PATH, headers=_bearer(key))
        problem(answer, 429, "too-many-wrong-keys")
        assert answer.headers["retry-after"] == "1"
    problem(keyed.get(_PATH), 401, "authentication-needed")
    holder = TestClient(keyed.app, "http://localhost", client=("10.0.0.8", 1))
    assert holder.get(_PATH, headers=_bearer(_KEY)).status_code == 200
    figures = holder.get("/metrics").text
    assert 'recoquest_key_refusals_total{reason="wrong"} 5.0' in figures
    assert 'recoquest_key_refusals_total{reason="too-early"} 2.0' in figures


def test_the_holder_of_a_drawn_key_never_waits_for_those_who_guess_beside_him(
    keyed: TestClient, indexed: Indexed
) -> None:
    with open_engine(indexed.settings).home.catalogue.write() as session:
        made = create_key(session, "viewer", {"*": frozenset({"admin"})}, days=1)
    for number in range(5):
        problem(keyed.get(_PATH, headers=_bearer(f"guess {number}")), 401, "wrong-key")
    forged = made.text[:-1] + ("a" if made.text[-1] != "a" else "b")
    problem(keyed.get(_PATH, headers=_bearer(forged)), 429, "too-many-wrong-keys")
    assert keyed.get(_PATH, headers=_bearer(made.text)).status_code == 200


def test_a_few_slips_or_no_key_cost_the_holder_nothing(keyed: TestClient) -> None:
    for _ in range(4):
        assert keyed.get(_PATH, headers=_bearer("a slip")).status_code == 401
    for _ in range(50):
        assert keyed.get(_PATH).status_code == 401
        assert keyed.get(_PATH, headers=_bearer(_KEY)).status_code == 200
