"""A real provider of OpenID Connect: npm's `oidc-provider` in a process of its own."""

import base64
import json
import os
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from joserfc.jwk import RSAKey

_SCRIPT: Final = Path(__file__).with_name("oidc_provider.mjs")
_PACKAGE: Final = "oidc-provider@9"
_INSTALL_S: Final = 180
AUDIENCE: Final = "urn:recoquest"
PUBLIC_CLIENT: Final = "public page"
CONFIDENTIAL_CLIENT: Final = "page: with a secret"
CLIENT_SECRET: Final = "a secret, with: % signs & more"


@dataclass(frozen=True)
class OidcProvider:
    """A running provider.

    Attributes:
        issuer: Its address.
        key: The private key that signs its tokens.
    """

    issuer: str
    key: RSAKey

    def token(self, group: str, audience: str = AUDIENCE) -> str:
        """An access token of the client that is in one group, got over HTTP."""
        secret = ":".join(urllib.parse.quote_plus(part) for part in (group, f"the secret of {group}"))
        request = urllib.request.Request(
            f"{self.issuer}/token",
            urllib.parse.urlencode({"grant_type": "client_credentials", "resource": audience}).encode(),
            {"Authorization": f"Basic {base64.b64encode(secret.encode()).decode()}"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            token = json.load(answer)["access_token"]
        assert isinstance(token, str)
        return token


def installed_provider() -> Path | None:
    """The folder with npm's package, installed once; None without Node.js or a registry."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "recoquest-tests" / _PACKAGE
    if not (folder / "node_modules" / "oidc-provider").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        install = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", _PACKAGE]
        try:
            subprocess.run(install, check=True, capture_output=True, timeout=_INSTALL_S)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return None
    return folder


@contextmanager
def serve_provider(package: Path, folder: Path) -> Iterator[OidcProvider]:
    """Run the provider on a free port, with a key of its own."""
    key = RSAKey.generate_key(2048, {"kid": "first", "use": "sig", "alg": "RS256"})
    keys = folder / "keys.json"
    keys.write_text(json.dumps({"keys": [key.as_dict(private=True)]}))
    # Modules are looked for beside the script.
    script = package / _SCRIPT.name
    shutil.copyfile(_SCRIPT, script)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        ["node", str(script), str(port), str(keys)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", "The provider did not start."
        yield OidcProvider(f"http://127.0.0.1:{port}", key)
    finally:
        process.kill()
        process.wait()
