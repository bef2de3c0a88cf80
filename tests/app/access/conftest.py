"""Providers of OpenID Connect: one that runs, and one over HTTP whose answers a test chooses."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from app.access.oidc import CodeFlow, Provider, begin_attempt
from app.access.sessions import SessionSigner
from app.settings import Settings
from tests.answering import answering
from tests.app.conftest import Indexed
from tests.needed import needed
from tests.oidc import OidcProvider, installed_provider, serve_provider


@pytest.fixture(scope="session")
def oidc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcProvider]:
    package = needed(installed_provider(), "npm's oidc-provider", "`apt-get install npm`, and a registry")
    with serve_provider(package, tmp_path_factory.mktemp("oidc")) as running:
        yield running


def with_checked_settings(home: Indexed, **changed: Any) -> Indexed:
    """The same home with other settings, which are checked and converted as those of a service are."""
    return replace(home, settings=Settings.model_validate(home.settings.model_dump() | changed))


CLIENT = "page & more"
SECRET = "hidden: 100 %"
KEY = RSAKey.generate_key(2048, {"kid": "first"})
ATTEMPT = begin_attempt(SessionSigner(b"s" * 32), "/operate")


@dataclass
class Site:
    """A provider's documents, its answer to a code, and the requests that it got."""

    address: str = ""
    discovery: dict[str, Any] = field(default_factory=dict)
    status: int = 200
    answer: bytes = b"{}"
    sent: list[tuple[dict[str, list[str]], str | None]] = field(default_factory=list)

    def flow(self, **settings: Any) -> CodeFlow:
        """The flow of a service at it."""
        variables = {
            "oidc_issuer": self.address, "oidc_client_id": CLIENT, "oidc_groups_claim": "groups",
            "oidc_roles": {"readers": {"scenes": ["reader"]}}, **settings,
        }  # fmt: skip
        return CodeFlow(Settings.model_validate(variables), Provider(self.address), CLIENT)

    def give(self, **changed: Any) -> None:
        """Answer the next code with an ID token."""
        header = {"alg": "RS256", "kid": "first", **changed.pop("header", {})}
        key = changed.pop("key", KEY)
        now = int(time.time())
        claims = {
            "iss": self.address, "aud": CLIENT, "sub": "somebody", "name": "Ada", "iat": now, "exp": now + 60,
            "nonce": ATTEMPT.nonce, "groups": ["readers"], **changed,
        }  # fmt: skip
        token = jwt.encode(header, {name: one for name, one in claims.items() if one is not None}, key)
        self.answer = json.dumps({"id_token": token, "token_type": "Bearer"}).encode()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            keys = {"keys": [KEY.as_dict(private=False)]}
            self._send(200, json.dumps(site.discovery if "well-known" in self.path else keys).encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            site.sent.append((parse_qs(body), self.headers["authorization"]))
            self._send(site.status, site.answer)

        def _send(self, status: int, content: bytes) -> None:
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(content)

    with answering(Answers) as server:
        site.address = f"http://127.0.0.1:{server.server_port}"
        site.discovery = {
            "issuer": site.address,
            "jwks_uri": f"{site.address}/keys",
            "authorization_endpoint": f"{site.address}/auth?policy=staff",
            "token_endpoint": f"{site.address}/token",
            "end_session_endpoint": f"{site.address}/out",
        }
        yield site
