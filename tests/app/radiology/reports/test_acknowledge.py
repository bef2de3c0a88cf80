"""Acknowledgements of messages, whole and damaged."""

import pytest

from app.radiology.reports import Code, acknowledgement
from tests.training.clinical.reports.documents import MARKERS, hl7_report


def _fields(answer: bytes, name: str) -> list[str]:
    (segment,) = [line for line in answer.decode().split("\r") if line.startswith(name)]
    return segment.split("|")


@pytest.mark.parametrize("code", ["AA", "AE", "AR"])
def test_an_acknowledgement_names_the_message_and_nothing_of_it(code: Code) -> None:
    answer = acknowledgement(code, hl7_report(control="MSG00042"), "Not taken: a|b^c\rd.")
    assert _fields(answer, "MSH")[8] == "ACK^R01^ACK"
    assert _fields(answer, "MSA")[1:] == [code, "MSG00042", "Not taken: a b c d."]
    assert ("ERR|" in answer.decode()) == (code != "AA")
    assert not any(marker.encode() in answer for marker in MARKERS)


@pytest.mark.parametrize(
    ("code", "condition"), [("AR", "204^Unknown key identifier"), ("AE", "207^Application internal error")]
)
def test_the_condition_of_an_error_is_one_of_the_table(code: Code, condition: str) -> None:
    answer = acknowledgement(code, hl7_report(), "Why.", "204^Unknown key identifier")
    assert _fields(answer, "ERR")[3] == f"{condition}^HL70357"


@pytest.mark.parametrize(
    "message", [b"", b"MSH", b"MSH|", b"hello", b"\xff" * 100, b"MSH|^~\\&|a\rPID", b"MSH\r\r"]
)
def test_a_damaged_message_has_an_acknowledgement(message: bytes) -> None:
    answer = acknowledgement("AR", message, "It is damaged.")
    assert _fields(answer, "MSA")[1:] == ["AR", "", "It is damaged."]


def test_a_control_id_cannot_add_segments() -> None:
    message = b"MSH|^~\\&|a|b|c|d|e||ORU^R01|1" + b"\x1c2" * 300 + b"|P|2.5"
    answer = acknowledgement("AA", message)
    assert answer.count(b"\x1c") == 0
    assert _fields(answer, "MSA")[2] == "1"
