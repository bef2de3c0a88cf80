"""A server in this process, and a client that sends bytes as they are."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from app.cli.serve import bind
from app.edge.protocol import ConnectionLimits, Connections, Shed, bounded
from app.edge.server import GracefulServer

# Longer than anything takes on a busy machine; a test that passes waits for none of it.
PATIENCE = 30.0


@dataclass
class Running:
    """A server that listens, and what it has ended."""

    port: int
    connections: Connections
    ended: Counter[str]

    async def exchange(self, *parts: bytes) -> bytes:
        """Send parts, a moment apart, until the server says that it ends, and read all that it says."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        received = bytearray()

        async def read() -> None:
            with suppress(ConnectionError):
                while part := await reader.read(65_536):
                    received.extend(part)

        reading = asyncio.create_task(read())
        for part in parts:
            if reading.done():
                break
            writer.write(part)
            await asyncio.sleep(0.02)
        await asyncio.wait_for(reading, PATIENCE)
        writer.close()
        return bytes(received)


@asynccontextmanager
async def serving(
    app: ASGIApp,
    limits: ConnectionLimits | None = None,
    *,
    lifespan: Literal["on", "off"] = "off",
    shed: Shed | None = None,
    keep_alive_s: int = 5,
) -> AsyncIterator[Running]:
    """Serve an ASGI application with the service's protocol."""
    ended: Counter[str] = Counter()
    connections = Connections(limits or ConnectionLimits(), lambda reason: ended.update([reason]))
    taken = bind("127.0.0.1", 0)
    config = uvicorn.Config(
        app,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=keep_alive_s,
        http=bounded(connections, shed),
        ws="none",
        lifespan=lifespan,
        log_config=None,
    )
    server = GracefulServer(config, asyncio.Event())
    task = asyncio.create_task(server.serve(sockets=[taken]))
    try:
        while not server.started:
            await asyncio.sleep(0.01)
        yield Running(taken.getsockname()[1], connections, ended)
    finally:
        server.should_exit = True
        await asyncio.wait_for(task, PATIENCE)


def problem_of(answer: bytes) -> tuple[int, dict[str, Any]]:
    """Status and document of an answer that is a problem; the connection ends with it."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert b"content-type: application/problem+json" in lines
    assert b"connection: close" in lines
    status, document = int(lines[0].split()[1]), json.loads(body)
    assert document["status"] == status
    return status, document


def statuses(answer: bytes) -> list[int]:
    """The statuses of all answers that came over a connection."""
    return [int(part.split()[0]) for part in answer.split(b"HTTP/1.1 ")[1:]]


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the path and the number of bytes that came."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message["body"])
        more = message["more_body"]
    body = f"{scope['path']} {size};".encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
