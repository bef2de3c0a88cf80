"""A small Hugging Face hub on loopback: revisions of one model, and its pull requests."""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

NAME = "openai/clip-vit-base-patch32"
Answer = tuple[int, Mapping[str, str], bytes]


@dataclass(frozen=True)
class Request:
    """A pull request: its number, who opened it, and whether it is open."""

    number: int
    author: str = "SFconvertbot"
    status: str = "open"


@dataclass
class SmallHub:
    """One model, as the hub tells of it; filters of the list of pull requests are not heeded.

    Attributes:
        revisions: Files by name of each revision; `main` is one.
        requests: Pull requests of the model.
        tells_digests: Whether it tells the digests of files with a revision.
        asked: Methods and paths of the requests so far.
        url: Of the server.
    """

    revisions: dict[str, Mapping[str, bytes]]
    requests: list[Request] = field(default_factory=list)
    tells_digests: bool = True
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def commit(self, revision: str) -> str:
        """The hash of a revision, by its files."""
        digest = hashlib.sha1(usedforsecurity=False)
        for name, content in sorted(self.revisions[revision].items()):
            digest.update(name.encode() + b"\0" + content)
        return digest.hexdigest()

    def answer(self, method: str, target: str) -> Answer:
        path = urlsplit(target).path
        self.asked.append(f"{method} {unquote(path)}")
        model, files = f"/api/models/{NAME}", f"/{NAME}/resolve/"
        if path.startswith(f"{model}/revision/"):
            return self._info(unquote(path.removeprefix(f"{model}/revision/")))
        if path.startswith(f"{model}/tree/"):
            return self._tree(unquote(path.removeprefix(f"{model}/tree/")))
        if path == f"{model}/discussions":
            listed = [_listed(request) for request in self.requests]
            return _json({"discussions": listed, "count": len(listed), "start": 0})
        if path.startswith(files):
            revision, _, name = path.removeprefix(files).partition("/")
            return self._file(unquote(revision), unquote(name))
        return 404, {"X-Error-Code": "RepoNotFound"}, b""

    def _files(self, requested: str) -> tuple[str, Mapping[str, bytes]] | None:
        for revision, files in self.revisions.items():
            if requested in (revision, self.commit(revision)):
                return self.commit(revision), files
        return None

    def _info(self, revision: str) -> Answer:
        if (actual := self._files(revision)) is None:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        siblings = [
            {"rfilename": name, **(_blob(content) if self.tells_digests else {})}
            for name, content in actual[1].items()
        ]
        return _json({"id": NAME, "sha": actual[0], "siblings": siblings, "tags": []})

    def _tree(self, revision: str) -> Answer:
        if (actual := self._files(revision)) is None:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        entries = [
            {"type": "file", "path": name, "oid": _blob(content)["blobId"], "size": len(content)}
            for name, content in actual[1].items()
        ]
        return _json(entries)

    def _file(self, revision: str, name: str) -> Answer:
        actual = self._files(revision)
        if actual is None or name not in actual[1]:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        content = actual[1][name]
        headers = {"ETag": f'"{_blob(content)["blobId"]}"', "X-Repo-Commit": actual[0]}
        return 200, headers, content


@contextmanager
def served(hub: SmallHub) -> Iterator[SmallHub]:
    """The hub at `hub.url`, until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            status, headers, body = hub.answer(self.command, self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_POST = _answer  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def _json(content: Any) -> Answer:
    return 200, {"Content-Type": "application/json"}, json.dumps(content).encode()


def _blob(content: bytes) -> dict[str, Any]:
    digest = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    return {"blobId": digest, "size": len(content)}


def _listed(request: Request) -> dict[str, Any]:
    return {
        "num": request.number,
        "title": "Adding `safetensors` variant of this model",
        "author": {"name": request.author},
        "createdAt": "2023-03-01T10:00:00.000Z",
        "status": request.status,
        "isPullRequest": True,
        "repo": {"name": NAME, "type": "model"},
    }
