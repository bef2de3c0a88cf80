"""Answers as bytes, for what is answered before there is a request."""

from http import HTTPStatus

from starlette.responses import Response


def raw_answer(answer: Response) -> bytes:
    """The bytes of a whole HTTP/1.1 answer."""
    head = [f"HTTP/1.1 {answer.status_code} {HTTPStatus(answer.status_code).phrase}".encode()]
    head += [name + b": " + value for name, value in answer.raw_headers]
    return b"\r\n".join([*head, b"", bytes(answer.body)])
