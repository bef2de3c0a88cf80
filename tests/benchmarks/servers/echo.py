"""The least that a server does: it reads the body and answers as many bytes as the path says.

Run `python -m tests.benchmarks.servers.echo PORT`; `POST /1200` is answered with 1,200 bytes.
"""

import sys
from typing import TYPE_CHECKING, Any, Final

import uvicorn

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

_ANSWERS: Final[dict[str, tuple[Any, Any]]] = {}


async def echo(scope: "Scope", receive: "ASGIReceiveCallable", send: "ASGISendCallable") -> None:
    """Answer one request."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    path = scope["path"]
    if path not in _ANSWERS:
        size = int(path[1:])
        headers = [(b"content-type", b"application/json"), (b"content-length", str(size).encode())]
        start = {"type": "http.response.start", "status": 200, "headers": headers}
        _ANSWERS[path] = start, {"type": "http.response.body", "body": b"x" * size}
    start, body = _ANSWERS[path]
    await send(start)
    await send(body)


if __name__ == "__main__":
    uvicorn.run(echo, port=int(sys.argv[1]), lifespan="off", access_log=False, log_level="warning")
