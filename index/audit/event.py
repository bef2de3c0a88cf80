"""An event of the audit trail, and the canonical JSON that is hashed."""

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from index.catalogue.collections import now

Action = Literal[
    "search",
    "browse",
    "view",
    "export",
    "judge",
    "create",
    "change",
    "delete",
    "erase",
    "activate",
    "sign-in",
    "audit",
    "prune",
    "backup",
    "restore",
]
Outcome = Literal["success", "failure"]
QueryForm = Literal["text", "hash", "none"]
Detail = str | int | bool | None | Sequence[str]

# Ids of an event, as many as a page of hits may have; more are counted.
MAX_OBJECTS: Final = 1000
_ID_DIGITS: Final = 32


@dataclass(frozen=True, slots=True)
class Actor:
    """Whoever acted: the kind of principal, its id and its name, and the address of the client."""

    kind: str
    id: str = ""
    name: str = ""
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event before it has a place in the chain.

    Attributes:
        action: The kind of event.
        actor: Whoever acted.
        outcome: Whether it was done.
        collection: Name of the collection.
        objects: Ids of images: the hits that were shown, or the images that were seen or written.
        query: Parts of the query by name, texts all of them.
        model: Digest of the model that was searched with, or was judged.
        generation: Number of its generation.
        request: Id of the request.
        details: Further values by name; none is a fraction, whose digits canonical JSON would have to fix.
        keyed: Whether the ids are kept as keyed hashes alone.
        time: Time in UTC, as the catalogue keeps it.
    """

    action: Action
    actor: Actor
    outcome: Outcome = "success"
    collection: str | None = None
    objects: Sequence[str] = ()
    query: Mapping[str, Sequence[str]] | None = None
    model: str | None = None
    generation: int | None = None
    request: str | None = None
    details: Mapping[str, Detail] = field(default_factory=dict)
    keyed: bool = False
    time: str = field(default_factory=now)

    def record(self, key: bytes, queries: QueryForm) -> dict[str, Any]:
        """Return the event as it is chained, without its place; ids as keyed hashes, queries as set."""
        kept = self.objects[:MAX_OBJECTS]
        return {
            "time": self.time,
            "action": self.action,
            "outcome": self.outcome,
            "actor": {"kind": self.actor.kind, "id": self.actor.id, "name": self.actor.name},
            "address": self.actor.address,
            "collection": self.collection,
            "objects": [id_digest(key, self.collection or "", name) for name in kept],
            "object_count": len(self.objects),
            "query": _query(self.query, key, queries),
            "query_form": None if self.query is None else queries,
            "model": self.model,
            "generation": self.generation,
            "request": self.request,
            "details": dict(self.details),
        }


def canonical(record: Mapping[str, Any]) -> str:
    """Return a record as JSON with sorted keys and no spaces (RFC 8785, for values without fractions)."""
    text = json.dumps(record, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Half surrogate pairs are no text that UTF-8 has.
    return text.encode("utf-8", "replace").decode()


def digest_of(event: str) -> str:
    """Return the hash of an event in the chain: the SHA-256 of its canonical JSON."""
    return hashlib.sha256(event.encode()).hexdigest()


def id_digest(key: bytes, collection: str, name: str) -> str:
    """Return the keyed hash by which events name an image: the first half of an HMAC-SHA-256."""
    return _keyed(key, "id", collection, name)[:_ID_DIGITS]


def query_digest(key: bytes, text: str) -> str:
    """Return the keyed hash of a part of a query: an HMAC-SHA-256."""
    return "hmac-sha256:" + _keyed(key, "query", text)


def _query(
    query: Mapping[str, Sequence[str]] | None, key: bytes, queries: QueryForm
) -> dict[str, list[str]] | None:
    if query is None or queries == "none":
        return None
    parts = {name: list(texts) for name, texts in query.items() if texts}
    if queries == "text":
        return parts
    return {name: [query_digest(key, text) for text in texts] for name, texts in parts.items()}


def _keyed(key: bytes, *parts: str) -> str:
    # A null character is in no id that the catalogue takes, so no two lists of parts are the same message.
    message = "\x00".join(parts).encode("utf-8", "replace")
    return hmac.new(key, message, "sha256").hexdigest()
