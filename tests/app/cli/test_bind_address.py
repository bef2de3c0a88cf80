import socket

import pytest

from app.cli.serve import PortError, bind, url_of


def test_port_0_takes_a_free_one() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert url_of(taken) == f"http://127.0.0.1:{port}"
        assert port > 0


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortError, match=f"Port {port} of 127.0.0.1 .*--port"):
            bind("127.0.0.1", port)


def test_a_port_can_be_taken_again_at_once() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        first.listen()
        with socket.create_connection(("127.0.0.1", port)) as client:
            first.accept()[0].close()
            client.recv(1)
    bind("127.0.0.1", port).close()


def test_every_address_is_shown_as_this_machine() -> None:
    with bind("0.0.0.0", 0) as taken:
        assert url_of(taken).startswith("http://localhost:")


def test_an_unknown_host_is_named() -> None:
    with pytest.raises(PortError, match=r"'host\.invalid' is not an address"):
        bind("host.invalid", 0)


def test_an_address_that_waits_to_be_served_is_taken_for_others() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(PortError, match=f"Port {port} of 127.0.0.1 .*--port"):
            bind("127.0.0.1", port)


def test_a_host_that_can_be_no_name_is_named() -> None:
    with pytest.raises(PortError, match="is not an address"):
        bind("x" * 70 + ".example", 0)
