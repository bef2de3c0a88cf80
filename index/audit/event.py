"""An event of the audit trail, and the canonical JSON that is hashed."""

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from index.catalogue.collections import now
from index.catalogue.storable import storable_text

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
    "sign-out",
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
# Parts of a query that are ids of images, and one of digests of files: kept as keyed hashes alone.
_EXAMPLES: Final = ("like", "unlike", "filter_ids")
_FILES: Final = "file"
_MAX_NAME: Final = 200
_MAX_ID: Final = 255
_ID_DIGITS: Final = 32


@dataclass(frozen=True, slots=True)
class Actor:
    """A caller: the kind of principal, its id and its name, and the address of the client."""

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
        query: Parts of the query by name, texts all of them; those called `like` and `unlike` are ids of
            images, and those called `file` the SHA-256 of files.
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
        return {
            "time": self.time,
            "action": self.action,
            "outcome": self.outcome,
            "actor": {"kind": self.actor.kind, "id": self.actor.id, "name": self.actor.name},
            "address": self.actor.address,
            "collection": self._collection,
            "objects": [id_digest(key, self._collection or "", name) for name in self.objects[:MAX_OBJECTS]],
            "object_count": len(self.objects),
            "query": self._query(key, queries),
            "query_form": None if self.query is None else queries,
            "model": self.model,
            "generation": self.generation,
            "request": self.request,
            "details": dict(self.details),
        }

    def names(self, key: bytes) -> dict[str, dict[str, str]]:
        """Return collection and id of the images that the record names, by their keyed hashes."""
        if self.keyed:
            return {}
        collection = self._collection or ""
        examples = [name for part in _EXAMPLES for name in (self.query or {}).get(part, ())]
        return {
            digest: {"digest": digest, "collection": collection, "name": name}
            for name in (*self.objects[:MAX_OBJECTS], *examples)
            # Longer ones are of no image, and may not fit an index.
            if storable_text(name) and len(name) <= _MAX_ID
            for digest in (id_digest(key, collection, name),)
        }

    @property
    def _collection(self) -> str | None:
        # A caller may send anything for the name of a collection.
        usable = self.collection is not None and storable_text(self.collection)
        return self.collection[:_MAX_NAME] if usable and self.collection else None

    def _query(self, key: bytes, queries: QueryForm) -> dict[str, list[str]] | None:
        if self.query is None or queries == "none":
            return None
        kept: dict[str, list[str]] = {}
        for part, texts in self.query.items():
            if part in _EXAMPLES:
                kept[part] = [id_digest(key, self._collection or "", name) for name in texts]
            elif part == _FILES or queries == "hash":
                kept[part] = [query_digest(key, text) for text in texts]
            else:
                kept[part] = list(texts)
        return kept


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


def _keyed(key: bytes, *parts: str) -> str:
    # A null character is in no id that the catalogue takes, so no two lists of parts are the same message.
    message = "\x00".join(parts).encode("utf-8", "replace")
    return hmac.new(key, message, "sha256").hexdigest()
