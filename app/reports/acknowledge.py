"""Acknowledgements of HL7 v2: the outcome of a message, without a word of it."""

import re
from datetime import UTC, datetime
from typing import Final, Literal

from training.data.reports.study_report import DATA_TYPE_ERROR

# Accepted; an error that sending it again may mend; rejected for good.
Code = Literal["AA", "AE", "AR"]
_INTERNAL_ERROR: Final = "207^Application internal error"
_LONGEST_ID: Final = 199
_ID: Final = re.compile(r"[^|^~\\&\r\n\x00-\x1f\x7f]*")
_MSH: Final = re.compile(r"MSH([^\w\s])")


def acknowledgement(code: Code, message: bytes, reason: str = "", condition: str = DATA_TYPE_ERROR) -> bytes:
    """Return the message ACK for a message, which may be damaged.

    Args:
        code: Outcome of the message.
        message: The message.
        reason: A sentence for whoever runs the sender; nothing of the message.
        condition: Error condition of a rejection (table 0357), for ERR-3.
    """
    kind, control_id, version = _head(message)
    now = datetime.now(UTC).strftime("%Y%m%d%H%M%S")
    text = re.sub(r"[|^~\\&\r\n]", " ", reason)
    segments = [
        f"MSH|^~\\&|recoquest||||{now}||ACK^{kind}^ACK|{now}{control_id[-8:]}|P|{version}",
        f"MSA|{code}|{control_id}|{text}",
    ]
    if code != "AA":
        segments.append(f"ERR|||{_INTERNAL_ERROR if code == 'AE' else condition}^HL70357|E||||{text}")
    return ("\r".join(segments) + "\r").encode()


def _head(message: bytes) -> tuple[str, str, str]:
    """Return event, control id and version of a message, as far as these can be read."""
    line = re.split(rb"[\r\n]", message.strip(b"\x0b\x1c\r\n \t"), maxsplit=1)[0].decode("latin-1")
    found = _MSH.match(line)
    fields = line.split(found[1]) if found else []
    # MSH-1 is the separator itself, so MSH-9 is the ninth part.
    parts = [fields[place] if place < len(fields) else "" for place in (8, 9, 11)]
    event = parts[0].split(fields[1][:1])[1:2] if found and len(fields) > 1 and fields[1] else []
    kind = event[0] if event and event[0].isalnum() else "R01"
    return kind[:3], _plain(parts[1])[:_LONGEST_ID], _plain(parts[2])[:10] or "2.5.1"


def _plain(value: str) -> str:
    found = _ID.match(value)
    return found.group() if found else ""
