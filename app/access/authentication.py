"""Callers of requests: an API key, the administrator's key of the settings, a token, a session, or nobody."""

import asyncio
import hmac
import math
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from http import HTTPStatus
from typing import Final, Literal

import structlog
from starlette.requests import Request

from app.access.oidc import CHALLENGE, EXPIRED, CodeFlow, Provider, verify_token
from app.access.sessions import COOKIE, Session, SessionSigner, ended_link, link_of, wrong_link
from app.concurrency import Threads
from app.edge.principal import EVERY_COLLECTION, NOBODY, Principal, Role, clients_of
from app.edge.problems import Kind, RequestError
from app.edge.sharing import Events, Sharing
from app.settings import Settings
from index.catalogue import Catalogue
from index.catalogue.database import VersionedCache
from index.generations.names import find_collection
from index.keys.api_keys import ApiKey, find_key, note_use, split_key, today
from training.common.errors import RecoquestError

# Different wrong keys that cost nothing: of one client, and of those that share a proxy or a prefix.
_FREE: Final = 5
_FREE_OF_MANY: Final = 50
# A drawn key begins with `rq_` and its identifier.
_PREFIX_LENGTH: Final = 15
_MAX_REMEMBERED: Final = 64
# The wait doubles with each further wrong key, up to this.
_MAX_WAIT_S: Final = 30.0
_DOUBLINGS: Final = 5
_FORGOTTEN_AFTER_S: Final = 600.0
_MAX_ADDRESSES: Final = 4_096
# Hashes of a client, of its proxy or 0, of the first letters of a key and of the key, and the time.
_WRONG_KEY: Final = "4qd"
_MAX_EVENTS: Final = 16_384
_LOGGED_EVERY_S: Final = 5.0
_MAX_LOGGED: Final = 5

Refusal = Literal["wrong", "too-early"]

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class _Guesser:
    free: int
    wrong: int = 0
    last: float = -math.inf
    # Hashes of its latest wrong keys.
    keys: set[int] = field(default_factory=set)

    def wait(self, now: float) -> float:
        """Seconds until its next new key is answered as wrong."""
        over = self.wrong - self.free
        if over < 0:
            return 0.0
        return max(0.0, self.last + min(2.0 ** min(over, _DOUBLINGS), _MAX_WAIT_S) - now)


class BruteForceLimiter:
    """Slows down guesses of keys; the caller has looked a key up before, so that a valid one never waits.

    A wrong key counts for its sender's address, for the proxy that the sender is behind, and for all senders
    of keys with the same first letters. The same wrong key counts once: a script with an old key guesses
    nothing. Clients of a proxy are distinguished by the last address in `X-Forwarded-For`, which the proxy
    itself has written. All processes of a service count together: each follows the wrong keys of all.
    """

    def __init__(
        self,
        count: Callable[[Refusal], None],
        clock: Callable[[], float] = time.monotonic,
        sharing: Sharing | None = None,
    ) -> None:
        self._count = count
        self._clock = clock
        self._total = 0
        # By hashes, which all processes that were forked from one have in common.
        self._guessers: OrderedDict[int, _Guesser] = OrderedDict()
        self._sharing = sharing or Sharing()
        self._events = Events(self._sharing, _WRONG_KEY, _MAX_EVENTS)
        self._logged_at = -math.inf
        self._unlogged: Counter[str] = Counter()

    def wait_s(self, clients: Sequence[str], key: str) -> int:
        """Count a wrong key; return the seconds until another may be sent, or 0: this one is just wrong."""
        client, proxy, *_ = *map(hash, clients), 0
        names, sent = (client, proxy, hash(f"key {key[:_PREFIX_LENGTH]}")), hash(key)
        with self._sharing.locked():
            self._follow()
            now = self._clock()
            guessers = self._guessers_of(names, now)
            comes_again = sent in guessers[client].keys
            wait = 0 if comes_again else math.ceil(max(guesser.wait(now) for guesser in guessers.values()))
            if not wait and not comes_again:
                self._events.put(*names, sent, now)
                self._follow()
        self._refused("too-early" if wait else "wrong", clients[0], now)
        return wait

    def _follow(self) -> None:
        """Count the wrong keys that any process has written down since."""
        for *names, sent, at in self._events.take():
            for name, guesser in self._guessers_of(names, at).items():
                if sent not in guesser.keys:
                    if len(guesser.keys) >= _MAX_REMEMBERED:
                        guesser.keys.clear()
                    guesser.keys.add(sent)
                    guesser.wrong += 1
                    guesser.last = at
                self._guessers[name] = guesser
                self._guessers.move_to_end(name)
            while len(self._guessers) > _MAX_ADDRESSES:
                self._guessers.popitem(last=False)

    def _guessers_of(self, names: Sequence[int], now: float) -> dict[int, _Guesser]:
        guessers = {}
        for index, name in enumerate(names):
            if index and not name:
                continue
            guesser = self._guessers.get(name)
            if guesser is None or now - guesser.last > _FORGOTTEN_AFTER_S:
                guesser = _Guesser(_FREE_OF_MANY if index else _FREE)
            guessers[name] = guesser
        return guessers

    def _refused(self, reason: Refusal, client: str, now: float) -> None:
        """Count a key, and log all since the last line with their senders, at most once in a few seconds."""
        self._count(reason)
        self._total += 1
        self._unlogged[client] += 1
        if now - self._logged_at >= _LOGGED_EVERY_S:
            _log.warning(
                "wrong keys",
                count=self._unlogged.total(),
                since_start=self._total,
                addresses=dict(self._unlogged.most_common(_MAX_LOGGED)),
            )
            self._logged_at = now
            self._unlogged.clear()


_WRONG: Final = Kind("wrong-key", "The key is wrong", HTTPStatus.UNAUTHORIZED, authenticate=CHALLENGE)
_ENDED: Final = Kind(
    "key-ended", "The key is no longer valid", HTTPStatus.UNAUTHORIZED, authenticate=CHALLENGE
)
KEY_NEEDED: Final = Kind(
    "authentication-needed", "A key is needed", HTTPStatus.UNAUTHORIZED, authenticate="Bearer"
)
_TOO_EARLY: Final = Kind("too-many-wrong-keys", "Too many wrong keys", HTTPStatus.TOO_MANY_REQUESTS)
# The compact form of a JSON Web Token, whose signature may be missing.
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_NO_DIGEST: Final = bytes(sha256().digest_size)
_READER: Final = frozenset[Role]({"reader"})


class Authenticator:
    """Checks the credentials of requests.

    The address that a request comes from gives no rights: a proxy on this machine sends those of strangers.

    Attributes:
        signer: Signs and reads sessions and links.
        code_flow: Sign-in at the identity provider; None: the settings name no client of it.
    """

    def __init__(
        self,
        settings: Settings,
        catalogue: Catalogue,
        threads: Threads,
        signer: SessionSigner,
        guesses: BruteForceLimiter,
    ) -> None:
        self.signer = signer
        self._settings = settings
        key = None if settings.admin_key is None else settings.admin_key.get_secret_value()
        self._guesses = guesses
        self._keys = _Keys(catalogue, threads, key)
        self._catalogue = catalogue
        self._threads = threads
        self._provider = None if settings.oidc_issuer is None else Provider(settings.oidc_issuer)
        self.code_flow: CodeFlow | None = None
        if self._provider is not None and settings.oidc_client_id is not None:
            self.code_flow = CodeFlow(settings, self._provider, settings.oidc_client_id)
        self._nobody = self._opened(NOBODY)
        # A text in the form of a token may then be a guess of the key.
        self._admin_looks_like_token = _TOKEN.fullmatch(key or "") is not None

    async def identify(self, request: Request) -> Principal:
        """Return the caller of a request.

        Raises:
            RequestError: The credential is wrong or has ended (401), comes too early after wrong ones
                (429), or cannot be checked now (503); a request of a session lacks its CSRF token, or a link
                is not valid or has ended (403).
        """
        if request.scope["query_string"] and (link := link_of(request)) is not None:
            return await self._linked(*link, request.path_params["collection"])
        principal, session = await self.recognize(request)
        if session is not None:
            self.signer.refuse_forged(request, session)
        return principal

    async def recognize(self, request: Request) -> tuple[Principal, Session | None]:
        """Return the caller of a request that changes nothing, and its session, if it comes by one.

        Raises:
            RequestError: As of `identify`, but for links and CSRF tokens.
        """
        principal, session = await self._credential(request)
        return self._nobody if principal is NOBODY else self._opened(principal), session

    async def require_credential(self, request: Request) -> Principal:
        """Return the sender of a key or a token.

        Raises:
            RequestError: As of `recognize`; or the request brings neither (401).
        """
        sent = _credential(request)
        if sent is None:
            raise RequestError(
                KEY_NEEDED, "Send a key or a token as `Authorization: Bearer KEY` to begin a session."
            )
        return await self._check(sent, request)

    async def begin_session(self, caller: Principal) -> tuple[Principal, Session]:
        """Return the session of a caller by key or token that was checked, and the caller that it will be."""
        key = None if caller.kind == "token" else await self._keys.find(caller.id)
        session = self.signer.begin(caller, None if key is None else key.digest)
        return self._opened(replace(caller, kind="session")), session

    async def maker_of(self, request: Request, collection: str, seconds: int) -> Session:
        """Return the session of the maker of a link, which ends with the link.

        Of a token, only the roles in the collection are kept, and the link holds no longer than the token.

        Raises:
            RequestError: As of `recognize`; or the request brings no credential (401).
        """
        # Without the roles that everybody has: the settings may revoke them before the link expires.
        principal, session = await self._credential(request)
        if principal.kind == "anonymous":
            raise RequestError(KEY_NEEDED, "A link needs an identified caller: send a key or a token.")
        if session is None:
            _, session = await self.begin_session(principal)
        expires = int(time.time()) + seconds
        if session.kind == "key":
            return replace(session, expires=expires)
        reader = {collection: _READER} if principal.may("reader", collection) else {}
        return replace(session, expires=min(expires, session.expires), grants=reader)

    async def _credential(self, request: Request) -> tuple[Principal, Session | None]:
        """The caller with the roles of its own credential, and its session."""
        sent = _credential(request)
        if sent is not None:
            return await self._check(sent, request), None
        sealed = request.cookies.get(COOKIE)
        session = None if sealed is None else self.signer.open(sealed)
        principal = None if session is None else await self._resume(session)
        return (NOBODY, None) if principal is None else (principal, session)

    async def _linked(self, sealed: str, address_of: Callable[[int], str], named: str) -> Principal:
        """The caller of a link: its maker, with the right to see this picture and no other."""
        collection_row = await self._threads.read(self._collection_named, named)
        if collection_row is None:
            # As for a forged one: nobody learns which collections exist.
            raise wrong_link()
        key, collection = collection_row
        maker = self.signer.open_link(sealed, address_of(key))
        principal = await self._resume(maker)
        if principal is None or not self._opened(principal).may("reader", collection):
            raise ended_link()
        return Principal("link", maker.id, maker.name, {collection: _READER}, expires=maker.expires)

    def _collection_named(self, name: str) -> tuple[int, str] | None:
        with self._catalogue.read() as session:
            return find_collection(session, name)

    async def _resume(self, session: Session) -> Principal | None:
        """The caller of a session; None where its key is not valid any more."""
        if session.kind == "token":
            return Principal("session", session.id, session.name, session.grants)
        key = await self._keys.find(session.id)
        if key is None or key.state != "live" or not self.signer.is_of(session, key.digest):
            return None
        self._keys.was_used(key)
        return Principal("session", session.id, session.name, key.grants)

    async def _check(self, sent: str, request: Request) -> Principal:
        admin = self._keys.admin
        if admin is not None and hmac.compare_digest(_digest(sent, "latin-1"), admin.digest):
            return Principal("key", admin.id, admin.name, admin.grants)
        provider, audience = self._provider, self._settings.oidc_audience
        if provider is None or audience is None or not _TOKEN.fullmatch(sent):
            return await self._check_key(sent, clients_of(request))
        try:
            return await verify_token(sent, provider, self._settings, audience)
        except RequestError as error:
            # An expired token had a valid signature: it wasn't a guess. Without its provider a token can't be
            # checked.
            guessed = error.kind is not EXPIRED and error.kind.status != HTTPStatus.SERVICE_UNAVAILABLE
            if self._admin_looks_like_token and guessed:
                self._refuse_early(clients_of(request), sent)
            raise

    async def _check_key(self, sent: str, clients: list[str]) -> Principal:
        parts = split_key(sent)
        key = None if parts is None else await self._keys.find(parts[0])
        # An unknown key takes as long as a known one with another secret.
        sent_digest, expected_digest = (
            _digest("" if parts is None else parts[1]),
            _NO_DIGEST if key is None else key.digest,
        )
        if not hmac.compare_digest(sent_digest, expected_digest) or key is None:
            # Only wrong keys wait: others at the same address must not lock out the holder of a valid one.
            self._refuse_early(clients, sent)
            raise RequestError(
                _WRONG, "The key is unknown: send another, or ask the service's administrator for one."
            )
        # Holders of old keys guess nothing: a client that continues with an old key must not slow others
        # down.
        if key.state != "live":
            raise RequestError(
                _ENDED,
                f"The key {key.id} of {key.name!r} is {key.state}: ask the service's administrator for "
                "another.",
            )
        self._keys.was_used(key)
        return Principal("key", key.id, key.name, key.grants)

    def _refuse_early(self, clients: list[str], wrong: str) -> None:
        """Count a wrong key; refuse to answer it as wrong where too many others came before it."""
        wait_s = self._guesses.wait_s(clients, wrong)
        if wait_s:
            raise RequestError(
                replace(_TOO_EARLY, retry_after_s=wait_s),
                f"Too many wrong keys came from here: wait {wait_s} s before you send another one. A valid "
                "key is answered at once.",
            )

    def _opened(self, principal: Principal) -> Principal:
        """Add the roles that the settings give to everybody."""
        widened = dict(principal.grants)
        if self._settings.open_reading:
            widened[EVERY_COLLECTION] = widened.get(EVERY_COLLECTION, frozenset()) | {"reader"}
        if self._settings.open_feedback:
            readers = replace(principal, grants=widened)
            for collection, roles in widened.items():
                if readers.may("reader", collection):
                    widened[collection] = roles | {"judge"}
        return replace(principal, grants=widened)


class _Keys:
    """The keys of the catalogue, each kept until the next write of any process, and that of the settings."""

    def __init__(self, catalogue: Catalogue, threads: Threads, admin: str | None) -> None:
        self.admin: ApiKey | None = None
        if admin is not None:
            # Its use is noted nowhere.
            grants = {EVERY_COLLECTION: frozenset[Role]({"admin"})}
            self.admin = ApiKey("admin-key", "admin key", _digest(admin), grants, "", None, None, None)
        self._catalogue = catalogue
        self._threads = threads
        # A rename moves the roles of keys: one from before would open another collection of the old name.
        self._kept: VersionedCache[str, ApiKey] = VersionedCache(catalogue)
        self._noted: dict[str, str] = {}
        self._noting: set[asyncio.Task[None]] = set()

    async def find(self, key: str) -> ApiKey | None:
        """Return the key of an identifier, as it is now."""
        if self.admin is not None and key == self.admin.id:
            return self.admin
        return await self._threads.read(self._find, key)

    def _find(self, key: str) -> ApiKey | None:
        # Wrong keys aren't cached: there is no limit to their number.
        kept = self._kept.at()
        key_row = kept.get(key)
        if key_row is None:
            with self._catalogue.read() as session:
                key_row = find_key(session, key)
            if key_row is not None:
                kept[key] = key_row
        return key_row

    def was_used(self, key: ApiKey) -> None:
        """Note the day of a key's use, once a day and in the background."""
        day = today()
        if key is self.admin or day in (key.used, self._noted.get(key.id)):
            return
        self._noted[key.id] = day
        task = asyncio.create_task(self._note(key.id, day))
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)

    async def _note(self, key: str, day: str) -> None:
        try:
            await self._threads.background(self._write_use, key, day)
        except RecoquestError as error:
            # A full disk or a busy catalogue keeps nobody from searching.
            _log.warning("the use of a key is not noted", error=type(error).__name__)

    def _write_use(self, key: str, day: str) -> None:
        with self._catalogue.write() as session:
            note_use(session, key, day)


def _credential(request: Request) -> str | None:
    """The credential of a request; other schemes may be those of a proxy before the service."""
    for header in request.headers.getlist("authorization"):
        scheme, _, sent = header.partition(" ")
        if scheme.lower() == "bearer":
            return sent.strip()
    return None


def _digest(text: str, encoding: str = "utf-8") -> bytes:
    # Compared as the bytes that were sent; a digest also hides the length.
    return sha256(text.encode(encoding)).digest()
