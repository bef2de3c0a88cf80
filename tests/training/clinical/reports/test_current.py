"""The report that counts of a study, and records of a manifest that get it."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest

from training.clinical.reports.current import CurrentReport, current_report
from training.clinical.reports.study_report import Status, StudyReport
from training.clinical.text.sections import clinical_sections
from training.common.record import MetadataValue, Record
from training.importing.reports import attach_reports


def _report(
    text: str,
    issued: str | None = None,
    status: Status = "final",
    identity: str | None = "a",
    keys: Sequence[str] = ("study:1.2.3.4",),
    patient: str | None = None,
) -> StudyReport:
    return StudyReport(tuple(keys), patient, identity, status, issued, clinical_sections(text))


OLD = _report("FINDINGS: Effusion.", "2024-01-01", "preliminary")
FINAL = _report("FINDINGS: No effusion.\nIMPRESSION: Normal chest.", "2024-01-02")
ADDENDUM = _report("ADDENDUM: Rib fracture.", "2024-01-03", identity="b")
AMENDED = _report("FINDINGS: Small effusion.", "2024-01-04", "amended")
LATE = _report("FINDINGS: Pneumothorax.", "2024-01-05", "preliminary", identity="c")
GONE = _report("", "2024-01-06", "withdrawn")


def _current(*received: StudyReport) -> CurrentReport:
    current = current_report(received)
    assert current is not None
    return current


def _texts(*received: StudyReport) -> set[str | None]:
    """Texts of the report that counts, in whatever order reports come."""
    return {_current(*order).text for order in permutations(received)}


NORMAL = "FINDINGS: No effusion.\n\nIMPRESSION: Normal chest."
WITH_ADDENDUM = f"{NORMAL}\n\nADDENDUM: Rib fracture."


def test_the_newest_final_report_counts_in_whatever_order_they_come() -> None:
    assert _texts(OLD, FINAL, LATE) == {NORMAL}
    assert _texts(OLD, FINAL, AMENDED) == {"FINDINGS: Small effusion."}
    current = _current(OLD)
    assert (current.text, current.status) == ("FINDINGS: Effusion.", "preliminary")


def test_an_addendum_stays_behind_the_report() -> None:
    assert _texts(FINAL, ADDENDUM, OLD) == {WITH_ADDENDUM}
    assert _texts(AMENDED, ADDENDUM) == {"FINDINGS: Small effusion.\n\nADDENDUM: Rib fracture."}
    whole = _report("IMPRESSION: Normal.\nADDENDUM: Rib fracture.", "2024-02-01")
    assert _texts(ADDENDUM, whole) == {"IMPRESSION: Normal.\n\nADDENDUM: Rib fracture."}
    assert _texts(ADDENDUM) == {"ADDENDUM: Rib fracture."}


def test_a_withdrawn_report_is_gone_and_others_stay() -> None:
    gone = {current_report(order) for order in permutations((FINAL, GONE))}
    assert gone == {CurrentReport(None, (), (), None)}
    other = _report("FINDINGS: Nodule.", "2024-01-01", identity="z")
    assert _current(FINAL, other, GONE).text == "FINDINGS: Nodule."
    later = _report("FINDINGS: Mass.", "2024-01-07")
    assert _current(GONE, FINAL, later).text == "FINDINGS: Mass."


def test_a_report_without_a_text_takes_no_other_ones_place() -> None:
    bare = _report("INDICATION: Cough.\nTECHNIQUE: AP.", "2024-02-01")
    assert not bare.describes
    assert _texts(FINAL, bare) == {NORMAL}
    assert _texts(OLD, bare) == {"FINDINGS: Effusion."}
    assert _texts(bare) == {"INDICATION: Cough.\n\nTECHNIQUE: AP."}


def test_sentences_describe_the_image_and_labels_follow() -> None:
    text = "INDICATION: Pneumonia?\n\nCOMPARISON: Old film.\n\nFINDINGS: Small effusion. No edema."
    current = _current(_report(text.replace("\n\n", "\n")))
    sentences = ("Small effusion.", "No edema.")
    assert current == CurrentReport(text, sentences, ("Pleural Effusion",), "final")
    assert current.labels_of(["Edema", "own", "No Finding"]) == ("own", "Pleural Effusion")
    assert current_report([]) is None


def _record(name: str, **metadata: MetadataValue) -> Record:
    return Record(id=name, image=f"{name}.png", split="test", metadata=metadata)


RECORDS = [
    replace(_record("a", study="1.2.3.4", patient="p"), labels=("mine",)),
    _record("b", study="1.2.3.4", patient="p"),
    _record("c", accession="77", patient="q"),
    _record("d"),
]


def test_records_get_the_reports_of_their_studies() -> None:
    by_number = _report("FINDINGS: Nodule.", keys=("study:9.9.9.9", "accession:77"), patient="q")
    unknown = _report("FINDINGS: Mass.", keys=("study:8.8.8.8",))
    attached = attach_reports(RECORDS, [FINAL, by_number, unknown, ADDENDUM])
    a, b, c, d = attached.records
    assert a.report == b.report == WITH_ADDENDUM
    assert a.labels == ("mine", "Fracture")
    assert a.metadata == {"study": "1.2.3.4", "patient": "p", "report_status": "final"}
    assert (c.report, c.texts, c.labels) == ("FINDINGS: Nodule.", ("Nodule.",), ("Lung Lesion",))
    assert d == RECORDS[3]
    assert (attached.matched, attached.waiting, attached.mismatched) == (3, 1, ())


@pytest.mark.parametrize("keys", [("study:1.2.3.4",), ("accession:77",)])
def test_a_report_of_another_patient_is_not_attached(keys: Sequence[str]) -> None:
    attached = attach_reports(RECORDS, [_report("FINDINGS: Mass.", keys=keys, patient="other")])
    assert list(attached.records) == RECORDS
    assert (attached.matched, attached.waiting, attached.mismatched) == (0, 0, (0,))


def test_of_a_study_of_two_patients_only_reports_that_name_one_are_attached() -> None:
    mixed = [RECORDS[0], _record("b", study="1.2.3.4", patient="q")]
    unnamed = _report("FINDINGS: Mass.")
    of_one = _report("FINDINGS: Nodule.", patient="other", keys=("study:1.2.3.4", "patient:q"))
    attached = attach_reports(mixed, [unnamed, of_one])
    assert [record.report for record in attached.records] == [None, "FINDINGS: Nodule."]
    assert (attached.matched, attached.waiting, attached.mismatched) == (1, 0, (0,))
    assert "several patients" in unnamed.mismatch
    assert attach_reports(RECORDS, [unnamed]).matched == 1


def test_any_id_of_a_films_patient_is_enough() -> None:
    film = _record("a", study="1.2.3.4", patient="n", other_patients=("q", "p"))
    attached = attach_reports([film], [_report("FINDINGS: Mass.", patient="p")])
    assert (attached.matched, attached.records[0].report) == (1, "FINDINGS: Mass.")


def test_the_same_report_has_the_same_digest() -> None:
    assert FINAL.digest == _report("FINDINGS: No effusion.\nIMPRESSION: Normal chest.", "2024-01-02").digest
    assert len({one.digest for one in (OLD, FINAL, ADDENDUM, AMENDED, LATE, GONE)}) == 6
