"""Events as FHIR R4 AuditEvent resources, by the patterns of IHE BALP (Basic Audit Log Patterns 1.1)."""

import base64
import json
from typing import Any, Final

from index.audit.event import canonical
from index.audit.listing import Entry

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


def audit_event(entry: Entry, observer: str) -> dict[str, Any]:
    """Return an event as an AuditEvent resource.

    Args:
        entry: The event.
        observer: Name of the service that has written it.
    """
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
