"""Headers that keep a browser from doing more with an answer than was meant, and who may change things."""

import hmac
from dataclasses import replace
from hashlib import sha256
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import SecretStr
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access.hosts import is_loopback, parse_authority
from app.access.key_guesses import BruteForceLimiter, clients_of
from app.access.origins import is_own_origin
from app.http.problem_kinds import Kind
from app.http.problems import RequestError

_NO_KEY = Kind("admin-key-needed", "The admin key is needed", HTTPStatus.UNAUTHORIZED, authenticate="Bearer")
_TOO_EARLY = Kind("too-many-wrong-keys", "Too many wrong keys", HTTPStatus.TOO_MANY_REQUESTS)
_NOT_LOCAL = Kind("only-from-this-machine", "Only this machine may do that", HTTPStatus.FORBIDDEN)
# A proxy says with these for whom it asks, or that it does: beginnings of names, in lower case, ...
_FORWARDING: Final = (
    # The standards, and names that many share: HAProxy, Traefik, Apache, Squid, Varnish, oauth2-proxy.
    *("forwarded", "x-forwarded", "via", "client-ip", "x-client-ip", "x-real-ip", "x-remote-", "remote-"),
    *("x-varnish", "x-haproxy-", "x-auth-request-", "x-host", "x-proxy", "proxy-"),
    # nginx and its ingress, and servers that let a proxy send their files.
    *("x-original-", "x-scheme", "x-ssl-", "ssl-client-", "x-accel-", "x-sendfile"),
    # Envoy, Istio and Knative.
    *("x-envoy-", "x-istio-", "k-proxy-"),
    # IIS with ARR, and Azure: App Service, Front Door, Application Gateway.
    *("x-arr-", "disguised-host", "was-default-hostname", "max-forwards", "x-azure-", "x-fd-", "x-appgw-"),
    # Appliances: F5, Citrix NetScaler, Riverbed and Zeus, WebLogic and WebSphere.
    *("x-f5-", "ns-client-ip", "x-citrix-", "x-ns-", "x-cluster-client-ip", "wl-proxy-", "$ws"),
    # Networks for delivery: Cloudflare, Fastly, Akamai, CloudFront, Imperva, Sucuri, Vercel, Netlify.
    *("cf-", "cdn-", "fastly-", "true-client-ip", "akamai-", "x-akamai-", "cloudfront-", "incap-"),
    *("x-sucuri-", "x-vercel-", "x-nf-"),
    # Clouds: AWS load balancers and gateways, Google, Fly, DigitalOcean, Heroku; and Tailscale.
    *("x-amzn-", "x-amz-", "x-appengine-", "x-cloud-trace-context", "x-goog", "fly-", "do-connecting-ip"),
    *("x-request-start", "tailscale-"),
)
# ... and speaks this to the service, if nobody has told it to speak another: nginx does.
_OLD_HTTP: Final = "1.0"

# Swagger UI writes style attributes; its scripts come from this server all the same.
_DOCS_POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"
# A browser may keep the page's own files, and asks whether they are current.
_FILES = ("/page/", "/docs/assets/")
_ASK: Final = b"no-cache"
_NEVER: Final = b"no-store"
_ALL = "base-uri 'none'; form-action 'self'"
_PAGE_POLICY = "default-src 'self'; img-src 'self' blob: data:; object-src 'none'"


_BEARER = HTTPBearer(auto_error=False, description="The value of RECOQUEST_ADMIN_KEY, where there is one.")


async def require_admin(
    request: Request,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)],
) -> None:
    """Let a request pass that brings the admin key; where none is set, one from this machine.

    With a key, this machine needs it too: behind a proxy every request comes from there.

    Raises:
        RequestError: The key is missing or wrong, with status 401; too many wrong ones came before, with 429;
            or the request is not from here, with 403.
    """
    key: SecretStr | None = request.app.state.admin_key
    if key is None:
        _require_loopback(request)
        return
    if credentials is None:
        raise _no_key()
    guesses: BruteForceLimiter = request.app.state.key_guesses
    clients = clients_of(request)
    wait_s = guesses.wait_s(clients)
    if wait_s:
        raise RequestError(
            replace(_TOO_EARLY, retry_after_s=wait_s),
            f"Too many wrong admin keys came from here: the next one is looked at in {wait_s} s.",
        )
    # Compared as the bytes that were sent; a digest hides the key's length, too.
    given, wanted = credentials.credentials.encode("latin-1"), key.get_secret_value().encode()
    if not hmac.compare_digest(sha256(given).digest(), sha256(wanted).digest()):
        guesses.was_wrong(clients)
        raise _no_key()


async def require_feedback(
    request: Request,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)],
) -> None:
    """Let those judge hits who may change anything, or everybody, where the settings open it.

    A page of another site cannot judge in a reader's name: browsers send no JSON there unasked.

    Raises:
        RequestError: The caller is not an operator, and feedback is not open; see `require_admin`.
    """
    if not request.app.state.open_feedback:
        await require_admin(request, credentials)


def _no_key() -> RequestError:
    return RequestError(_NO_KEY, "Changes need the admin key: send it as `Authorization: Bearer KEY`.")


def _require_loopback(request: Request) -> None:
    """Let a request pass only if it comes from a program on this machine, and not through a proxy.

    A proxy on this machine that hides itself cannot be told from a program here.

    A page of another site that is open in a browser here comes from this machine as well; it gives itself
    away by its origin, or by the name under which it has reached the service.

    Raises:
        RequestError: The request comes from another machine; the status is 403.
    """
    if request.client is None or not is_loopback(request.client.host):
        raise RequestError(
            _NOT_LOCAL,
            "Changes are taken from this machine only: send this from there, or set RECOQUEST_ADMIN_KEY.",
        )
    if request["http_version"] == _OLD_HTTP or any(name.startswith(_FORWARDING) for name in request.headers):
        raise RequestError(
            _NOT_LOCAL,
            "Changes are not taken through a proxy: send this to the service itself, or set "
            "RECOQUEST_ADMIN_KEY.",
        )
    host = parse_authority(request.headers.get("host", ""))
    if host is None or not host.is_local:
        raise RequestError(_NOT_LOCAL, "Changes are taken under localhost or a loopback address only.")
    origin = request.headers.get("origin")
    if origin is not None and not is_own_origin(origin, host):
        raise RequestError(_NOT_LOCAL, "Changes are not taken from pages of other sites.")


class SecurityHeaders:
    """ASGI middleware that adds the headers; a route that set one itself keeps it.

    Args:
        frame_ancestors: Origins that may show the page in a frame.
        shared: Whether other origins were allowed to call the service.
    """

    def __init__(self, app: ASGIApp, frame_ancestors: tuple[str, ...] = (), shared: bool = False) -> None:
        self.app = app
        ancestors = " ".join(frame_ancestors) or "'none'"
        owner = b"cross-origin" if shared else b"same-origin"
        # Encoded once, since every answer has them.
        self._headers = {
            (policy, cache): (
                (b"content-security-policy", f"{policy}; {_ALL}; frame-ancestors {ancestors}".encode()),
                (b"cross-origin-resource-policy", owner),
                (b"referrer-policy", b"no-referrer"),
                (b"x-content-type-options", b"nosniff"),
                (b"cache-control", cache),
            )
            for policy in (_DOCS_POLICY, _PAGE_POLICY)
            for cache in (_ASK, _NEVER)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                names = {name.lower() for name, _ in given}
                added = (header for header in self._of(scope["path"]) if header[0] not in names)
                message["headers"] = [*given, *added]
            await send(message)

        await self.app(scope, receive, send_with_headers)

    def _of(self, path: str) -> tuple[tuple[bytes, bytes], ...]:
        policy = _DOCS_POLICY if path.startswith("/docs") else _PAGE_POLICY
        return self._headers[policy, _ASK if path.startswith(_FILES) else _NEVER]
