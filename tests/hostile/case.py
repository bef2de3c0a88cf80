"""One hostile connection: the bytes, the pauses between them, and the answers that are right."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

COLLECTION: Final = "photos"
SEARCH: Final = f"/v1/collections/{COLLECTION}/search"
_BOUNDARY: Final = "0f3c9a7e51"

# Longest that any request may take: the deadline of the service and a second.
DEADLINE_S: Final = 11.0
# A client that sends for ever, slowly, is cut off by the bounds of heads and bodies.
STALL_S: Final = 16.0


@dataclass(frozen=True)
class Case:
    """A connection.

    Attributes:
        name: Kind and parameters, for messages.
        parts: Bytes to send, and seconds to wait between them.
        repeat: The last part is sent so many times, while the service takes it.
        leave: The client closes its connection without reading.
        closes: The service may close the connection without an answer.
        limit_s: Longest time from the first byte to the end of the answer.
        status: The only right status; None: any below 500, and 503 and 504 with a reason.
    """

    name: str
    parts: tuple[bytes | float, ...]
    repeat: int = 1
    leave: bool = False
    closes: bool = False
    limit_s: float = DEADLINE_S
    status: int | None = None


def request(
    method: str,
    path: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    *,
    host: str = "localhost",
) -> bytes:
    """The bytes of one request, which ends its connection."""
    lines = {"Host": host, "Connection": "close", **(headers or {})}
    if body and "Content-Length" not in lines and "Transfer-Encoding" not in lines:
        lines["Content-Length"] = str(len(body))
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body


def json_search(document: object) -> bytes:
    """A search sent as JSON."""
    return raw_search(json.dumps(document).encode())


def raw_search(body: bytes, content_type: str = "application/json") -> bytes:
    """A search with this body."""
    return request("POST", SEARCH, body, {"Content-Type": content_type})


def form(files: Sequence[tuple[str, bytes]], texts: Mapping[str, str] | None = None) -> tuple[bytes, str]:
    """A form of files and texts, and its content type."""
    parts = [
        f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'.encode()
        for name, text in (texts or {}).items()
    ]
    for name, content in files:
        head = (
            f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="f"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )
        parts.append(head.encode() + content + b"\r\n")
    parts.append(f"--{_BOUNDARY}--\r\n".encode())
    return b"".join(parts), f"multipart/form-data; boundary={_BOUNDARY}"


def image_search(content: bytes) -> bytes:
    """A search by one image file."""
    body, content_type = form([("image", content)])
    return raw_search(body, content_type)


def image_upload(name: str, content: bytes) -> bytes:
    """An image to be kept."""
    body, content_type = form([("image", content)], {"record": "{}"})
    path = f"/v1/collections/{COLLECTION}/images/{name}"
    return request("PUT", path, body, {"Content-Type": content_type})
