"""Take a port before any long work, and serve on it."""

import socket

from training.errors import RecoquestError


class PortError(RecoquestError):
    """An address that cannot be listened on."""


def bind(host: str, port: int) -> socket.socket:
    """Take an address: nobody else can, and who connects before it is served waits.

    Raises:
        PortError: When the port is taken, or the address is not of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError):
        raise PortError(f"{host!r} is not an address of this machine: give another --host.") from None
    taken = socket.socket(family, kind, protocol)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind(address)
        # Linux lets others take an address too until one of them listens.
        taken.listen()
    except OSError as error:
        taken.close()
        raise PortError(
            f"Port {port} of {host} cannot be used ({error.strerror}): give another with --port."
        ) from None
    return taken


def url_of(taken: socket.socket) -> str:
    """The address a browser on this machine opens."""
    host, port = taken.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "localhost"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
