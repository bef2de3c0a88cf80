"""Small HTTP servers whose answers a test chooses."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def answering(
    handler: type[BaseHTTPRequestHandler], wrap: Callable[[ThreadingHTTPServer], None] | None = None
) -> Iterator[ThreadingHTTPServer]:
    """Run a server on loopback that logs nothing, until the block ends; `wrap` may put TLS around it."""
    quiet = type(handler.__name__, (handler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), quiet) as server:
        if wrap is not None:
            wrap(server)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
