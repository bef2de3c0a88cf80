"""An event of the audit trail, and the canonical JSON that is hashed."""

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, Literal
from uuid import uuid4

from index.catalogue.collections import now
from index.catalogue.lookup import storable_text

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

# Ids of an event, as many as a page of hits may have; with more, several events name them.
MAX_OBJECTS: Final = 1000
# Parts of a query that are ids of images, and one of digests of files: kept as keyed hashes alone.
EXAMPLES: Final = ("like", "unlike", "filter_ids")
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
    """An event that isn't yet part of the chain.

    Attributes:
        action: The kind of event.
        actor: Who acted.
        outcome: Whether it was done.
        collection: Name of the collection.
        objects: Ids of images: the hits that were shown, or the images that were seen or written. An event
            with more than `MAX_OBJECTS` is written as several; see `in_parts`.
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

    def record(
        self, key: bytes, queries: QueryForm, names: dict[str, dict[str, str]] | None = None
    ) -> dict[str, Any]:
        """Return the event as it is chained, without its number; ids as keyed hashes, queries as configured.

        Collection and id of the images that it names are added to `names`, by their keyed hashes.
        """
        # A caller may send anything for the name of a collection.
        usable = self.collection is not None and storable_text(self.collection)
        collection = self.collection[:_MAX_NAME] if usable and self.collection else None
        query = self.query or {}
        ids = [*self.objects]
        for part in EXAMPLES:
            ids += query.get(part, ())
        digests: dict[str, str] = {}
        objects = []
        for name in ids:
            digest = digests[name] = id_digest(key, collection or "", name)
            objects.append(digest)
            # Longer ones are of no image, and may not fit an index.
            if names is not None and not self.keyed and storable_text(name) and len(name) <= _MAX_ID:
                names[digest] = {"digest": digest, "collection": collection or "", "name": name}
        kept: dict[str, list[str]] = {}
        for part, texts in query.items():
            if part in EXAMPLES:
                kept[part] = [digests[name] for name in texts]
            elif part == _FILES or queries == "hash":
                kept[part] = [query_digest(key, text) for text in texts]
            else:
                kept[part] = list(texts)
        return {
            "time": self.time,
            "action": self.action,
            "outcome": self.outcome,
            "actor": {"kind": self.actor.kind, "id": self.actor.id, "name": self.actor.name},
            "address": self.actor.address,
            "collection": collection,
            "objects": objects[: len(self.objects)],
            "object_count": len(self.objects),
            "query": None if self.query is None or queries == "none" else kept,
            "query_form": None if self.query is None else queries,
            "model": self.model,
            "generation": self.generation,
            "request": self.request,
            "details": dict(self.details),
        }


def in_parts(event: Event, ids: Iterable[str]) -> Iterator[Event]:
    """Yield an event that names images, as several where they are more than `MAX_OBJECTS`.

    Their details have the same `series` and the number of each as `part`; the last has the number of all as
    `parts`. The first alone has the query.

    Args:
        event: The event; its own ids are not looked at.
        ids: Ids of the images; no more than two parts of them are read ahead.
    """
    rest = iter(ids)
    names = tuple(islice(rest, MAX_OBJECTS))
    following = tuple(islice(rest, MAX_OBJECTS))
    if not following:
        yield event if ids is event.objects else replace(event, objects=names)
        return
    series, part = uuid4().hex, 0
    while names:
        part += 1
        details: dict[str, Detail] = {**event.details, "series": series, "part": part}
        if not following:
            details["parts"] = part
        yield replace(event, objects=names, details=details, query=event.query if part == 1 else None)
        names, following = following, tuple(islice(rest, MAX_OBJECTS))


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
    # A null character is in no id that the catalogue takes, so no two lists of parts are the same message.
    message = "\x00".join(("id", collection, name)).encode("utf-8", "replace")
    return hmac.digest(key, message, "sha256").hex()[:_ID_DIGITS]


def query_digest(key: bytes, text: str) -> str:
    """Return the keyed hash of a part of a query: an HMAC-SHA-256."""
    message = "\x00".join(("query", text)).encode("utf-8", "replace")
    return "hmac-sha256:" + hmac.digest(key, message, "sha256").hex()
