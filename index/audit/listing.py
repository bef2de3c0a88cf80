"""The audit trail page by page, and its events as FHIR R4 AuditEvent resources (IHE BALP 1.1)."""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from index.audit.event import canonical
from index.catalogue.lookup import rows_among
from index.catalogue.tables import AuditEventRow, AuditNameRow

_AT_ONCE: Final = 500
_DICOM: Final = "http://dicom.nema.org/resources/ontology/DCM"
_TERMINOLOGY: Final = "http://terminology.hl7.org/CodeSystem"
_BALP: Final = "https://profiles.ihe.net/ITI/BALP"
_PROFILES: Final = f"{_BALP}/StructureDefinition/IHE.BasicAudit"
_SOURCE: Final = ("110153", "Source Role ID")
_DESTINATION: Final = ("110152", "Destination Role ID")
# For each action: BALP's profile, the interaction of REST, and the code of `AuditEvent.action`.
_PATTERNS: Final = {
    "search": ("Query", "search", "E"),
    "browse": ("Query", "search", "E"),
    "view": ("Read", "read", "R"),
    "export": ("Read", "read", "R"),
    "judge": ("Update", "update", "U"),
    "create": ("Create", "create", "C"),
    "change": ("Update", "update", "U"),
    "delete": ("Delete", "delete", "D"),
    "erase": ("Delete", "delete", "D"),
}
_SIGNED: Final = {"sign-in": ("110122", "Login"), "sign-out": ("110123", "Logout")}
_OPERATION: Final = (None, "operation", "E")


@dataclass(frozen=True, slots=True)
class Entry:
    """An event as it was written.

    Attributes:
        record: What was hashed.
        hash: Its hash.
        ids: The ids of its images, None for one that was erased; in the order of `record["objects"]`.
    """

    record: dict[str, Any]
    hash: str
    ids: tuple[str | None, ...]

    def line(self) -> str:
        """Return it as a line of NDJSON: the record with `hash` and `ids`."""
        return canonical({**self.record, "hash": self.hash, "ids": list(self.ids)})


@dataclass(frozen=True, slots=True)
class Selection:
    """Events to be read: from one time in ISO 8601 to before another, of a collection, of a kind."""

    since: str | None = None
    until: str | None = None
    collection: str | None = None
    action: str | None = None


def read_events(session: Session, selection: Selection, *, after: int = 0, limit: int) -> list[Entry]:
    """Return the events behind a sequence number, the oldest first."""
    query = select(AuditEventRow.event, AuditEventRow.hash).where(AuditEventRow.sequence > after)
    if selection.since is not None:
        query = query.where(AuditEventRow.time >= selection.since)
    if selection.until is not None:
        query = query.where(AuditEventRow.time < selection.until)
    if selection.collection is not None:
        query = query.where(AuditEventRow.collection == selection.collection)
    if selection.action is not None:
        query = query.where(AuditEventRow.action == selection.action)
    rows = session.execute(query.order_by(AuditEventRow.sequence).limit(limit)).all()
    records = [(json.loads(row.event), row.hash) for row in rows]
    digests = {digest for record, _ in records for digest in record["objects"]}
    named = select(AuditNameRow.digest, AuditNameRow.name)
    names = {row.digest: row.name for row in rows_among(session, named, AuditNameRow.digest, digests)}
    return [
        Entry(record, hash_, tuple(names.get(digest) for digest in record["objects"]))
        for record, hash_ in records
    ]


def all_events(session: Session, selection: Selection) -> Iterator[Entry]:
    """Yield all selected events, the oldest first, in bounded memory."""
    after = 0
    while entries := read_events(session, selection, after=after, limit=_AT_ONCE):
        yield from entries
        after = entries[-1].record["sequence"]


def audit_event(entry: Entry, observer: str) -> dict[str, Any]:
    """Return an event as an AuditEvent resource."""
    record = entry.record
    resource: dict[str, Any] = {
        "resourceType": "AuditEvent",
        "id": str(record["sequence"]),
        **_kind(record),
        "recorded": record["time"],
        "outcome": "0" if record["outcome"] == "success" else "4",
        "agent": _agents(record, observer),
        "source": {
            "observer": {"display": observer},
            "type": [_coding(f"{_TERMINOLOGY}/security-source-type", "4", "Application Server")],
        },
        "entity": [*_query(record), *_objects(entry), *_request(record)],
    }
    return {name: value for name, value in resource.items() if value != []}


def _kind(record: dict[str, Any]) -> dict[str, Any]:
    if record["action"] in _SIGNED:
        return {
            "type": _coding(_DICOM, "110114", "User Authentication"),
            "subtype": [_coding(_DICOM, *_SIGNED[record["action"]])],
            "action": "E",
        }
    profile, interaction, action = _PATTERNS.get(record["action"], _OPERATION)
    kind: dict[str, Any] = {
        "type": _coding(f"{_TERMINOLOGY}/audit-event-type", "rest", "Restful Operation"),
        "subtype": [_coding("http://hl7.org/fhir/restful-interaction", interaction, interaction)],
        "action": action,
    }
    # The profiles are of what succeeded; a query's has the query, which a setting may leave out.
    whole = profile != "Query" or record["query"] is not None
    if profile is not None and whole and record["outcome"] == "success":
        kind = {"meta": {"profile": [f"{_PROFILES}.{profile}"]}, **kind}
    return kind


def _agents(record: dict[str, Any], observer: str) -> list[dict[str, Any]]:
    """The client, the service and the user; of a read, the service is the source of the data."""
    reads = record["action"] in ("view", "export")
    client, server = (_DESTINATION, _SOURCE) if reads else (_SOURCE, _DESTINATION)
    address = record["address"] or "localhost"
    actor = record["actor"]
    name = actor["name"] or actor["id"] or actor["kind"]
    who: dict[str, Any] = {"display": name}
    if actor["id"]:
        who["identifier"] = {"value": actor["id"]}
    return [
        {
            "type": {"coding": [_coding(_DICOM, *client)]},
            "who": {"display": address},
            "requestor": False,
            # Behind a proxy, an address is "PROXY for CLIENT".
            "network": {
                "address": address.rpartition(" for ")[2],
                "type": "2" if record["address"] else "1",
            },
        },
        {
            "type": {"coding": [_coding(_DICOM, *server)]},
            "who": {"display": observer},
            "requestor": False,
            "network": {"address": observer, "type": "1"},
        },
        {
            "type": {
                "coding": [
                    _coding(f"{_TERMINOLOGY}/v3-ParticipationType", "IRCP", "information recipient")
                    if reads
                    else _coding(f"{_TERMINOLOGY}/v3-ParticipationType", "AUT", "author (originator)")
                ]
            },
            "who": who,
            "requestor": True,
        },
    ]


def _query(record: dict[str, Any]) -> list[dict[str, Any]]:
    if record["query"] is None:
        return []
    query = canonical({"collection": record["collection"], **record["query"]})
    return [
        {
            "type": _coding(f"{_TERMINOLOGY}/audit-entity-type", "2", "System Object"),
            "role": _coding(f"{_TERMINOLOGY}/object-role", "24", "Query"),
            "query": base64.b64encode(query.encode()).decode(),
        }
    ]


def _objects(entry: Entry) -> list[dict[str, Any]]:
    """The images; of one that was erased the keyed hash. Without images, the collection."""
    record, collection = entry.record, entry.record["collection"]
    names = [name or digest for name, digest in zip(entry.ids, record["objects"], strict=True)]
    if not names and collection is None:
        return []
    paths = [f"{collection}/{name}" if collection else name for name in names] or [collection]
    detail = {name: value for name, value in record["details"].items() if value not in (None, "", [])}
    if record["model"] is not None:
        detail["model"] = record["model"]
    entities = [
        {
            "what": {"identifier": {"value": path}},
            "type": _coding(f"{_TERMINOLOGY}/audit-entity-type", "2", "System Object"),
            "role": _coding(f"{_TERMINOLOGY}/object-role", "4", "Domain Resource"),
        }
        for path in paths
    ]
    if detail:
        entities[0]["detail"] = [
            {"type": name, "valueString": value if isinstance(value, str) else json.dumps(value)}
            for name, value in sorted(detail.items())
        ]
    return entities


def _request(record: dict[str, Any]) -> list[dict[str, Any]]:
    if record["request"] is None:
        return []
    return [
        {
            "what": {"identifier": {"value": record["request"]}},
            "type": _coding(
                f"{_BALP}/CodeSystem/BasicAuditEntityType", "XrequestId", "Value of X-Request-Id"
            ),
        }
    ]


def _coding(system: str, code: str, display: str) -> dict[str, str]:
    return {"system": system, "code": code, "display": display}
