"""The address that `recoquest serve` takes, and what it says of keys at its start."""

import re
import socket
from collections.abc import Callable
from contextlib import nullcontext

import pytest
from pydantic import SecretStr

from app.cli.serve import bind, refuse_open_network, url_of
from app.settings import Settings
from training.common.errors import RecoquestError


@pytest.mark.parametrize(
    ("address", "refused", "settings"),
    [
        ("127.0.0.1", False, {"open_reading": True}),
        ("0.0.0.0", True, {"open_reading": True}),
        ("0.0.0.0", False, {"open_reading": True, "open_network": True}),
        ("0.0.0.0", False, {"admin_key": SecretStr("x" * 16)}),
        ("0.0.0.0", False, {"open_feedback": True}),
    ],
)
def test_open_reading_stays_on_this_machine(address: str, refused: bool, settings: dict[str, object]) -> None:
    with socket.socket() as taken:
        taken.bind((address, 0))
        refusal = pytest.raises(RecoquestError, match="RECOQUEST_OPEN_NETWORK")
        with refusal if refused else nullcontext():
            refuse_open_network(taken, Settings.model_validate(settings))


def test_port_0_takes_a_free_one_and_every_address_is_shown_as_this_machine() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert url_of(taken) == f"http://127.0.0.1:{port}"
        assert port > 0
    with bind("0.0.0.0", 0) as taken:
        assert url_of(taken).startswith("http://localhost:")


@pytest.mark.parametrize(
    "take", [lambda: socket.create_server(("127.0.0.1", 0)), lambda: bind("127.0.0.1", 0)]
)
def test_a_port_that_others_serve_or_are_to_serve_is_named(take: Callable[[], socket.socket]) -> None:
    with take() as other:
        port = other.getsockname()[1]
        with pytest.raises(RecoquestError, match=f"Port {port} of 127.0.0.1 .*--port"):
            bind("127.0.0.1", port)


@pytest.mark.parametrize("host", ["host.invalid", "x" * 70 + ".example"])
def test_a_host_that_is_none_is_named(host: str) -> None:
    with pytest.raises(RecoquestError, match=rf"'{re.escape(host)}' is not an address"):
        bind(host, 0)


def test_a_port_can_be_taken_again_at_once() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        first.listen()
        with socket.create_connection(("127.0.0.1", port)) as client:
            first.accept()[0].close()
            client.recv(1)
    bind("127.0.0.1", port).close()
