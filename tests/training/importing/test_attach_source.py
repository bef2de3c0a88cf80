"""Reports of a folder brought to a manifest."""

from dataclasses import replace
from pathlib import Path

from PIL import Image

from tests.training.clinical.reports.documents import (
    ACCESSION,
    KEY,
    PATIENT,
    STUDY,
    code,
    hl7_report,
    structured_report,
)
from training.clinical.pseudonyms import keyed_hash
from training.common.manifest import read_manifest, write_manifest
from training.common.record import Record
from training.importing.attach_reports import attach_source, remarks


def test_a_manifest_gets_the_reports_of_a_folder(tmp_path: Path) -> None:
    data, source = tmp_path / "data", tmp_path / "reports"
    data.mkdir()
    source.mkdir()
    Image.new("L", (8, 8)).save(data / "a.png")
    record = Record(
        id="a", image="a.png", split="test", metadata={"accession": keyed_hash(KEY, "accession", ACCESSION)}
    )
    other = Record(id="b", image="a.png", split="test")
    write_manifest(data, [record, other])
    (source / "a.hl7").write_bytes(hl7_report(["IMPRESSION: Left effusion."]))
    (source / "b.hl7").write_bytes(hl7_report(accession="Q", study=None))
    (source / "c.hl7").write_bytes(b"")
    (source / "d.pdf").write_bytes(b"")
    for _ in range(2):
        attached = attach_source(data, source, KEY)
        assert attached.sentence == (
            "Reports: 4 found = 1 matched + 1 without an image + 1 refused + 1 left out."
        )
        assert attached.refused == ("File 3: it has no message that begins with MSH.",)
        a, b = read_manifest(data).records
        assert a == replace(
            record,
            texts=("Left effusion.",),
            report="IMPRESSION: Left effusion.",
            labels=("Pleural Effusion",),
            metadata={**record.metadata, "report_status": "final"},
        )
        assert b == other
        assert (attached.contents.texts, attached.contents.with_texts, attached.contents.records) == (1, 1, 2)


def test_what_became_of_each_report_is_said(tmp_path: Path) -> None:
    data, source = tmp_path / "data", tmp_path / "reports"
    data.mkdir()
    source.mkdir()
    Image.new("L", (8, 8)).save(data / "a.png")
    metadata = {"study": STUDY, "patient": keyed_hash(KEY, "patient", PATIENT)}
    write_manifest(data, [Record(id="a", image="a.png", split="test", metadata=metadata)])
    (source / "a.hl7").write_bytes(hl7_report(["INDICATION: Cough.", "COMPARISON: None."]))
    (source / "b.hl7").write_bytes(hl7_report(patient="Q"))
    measured = [code("126000", "DCM", "Imaging Measurement Report of Jane Roe")]
    structured_report(ConceptNameCodeSequence=measured).save_as(source / "c.dcm", enforce_file_format=True)
    attached = attach_source(data, source, KEY)
    assert attached.sentence == "Reports: 3 found = 1 matched + 0 without an image + 1 refused + 1 left out."
    assert attached.refused == (
        "File 2, message 1: its patient is another one than that of its study's images.",
    )
    assert list(remarks(attached.left_out, attached.differing, attached.without_text)) == [
        "Left out: 1 files (measurements or results of programs: Imaging Measurement Report).",
        "Of another patient than the images of their study: 1 of the refused reports.",
        "Matched, without text that describes the image: 1 reports (File 1, message 1).",
    ]
    assert (attached.contents.texts, attached.contents.with_texts) == (0, 0)
    assert not any("fragments" in sentence for sentence in attached.contents.sentences())
