"""Reports of a folder brought to a manifest."""

from dataclasses import replace
from pathlib import Path

from PIL import Image

from tests.training.data.reports.documents import ACCESSION, KEY, hl7_report
from training.data.dicom.pseudonyms import keyed_hash
from training.data.manifest import read_manifest, write_manifest
from training.data.record import Record
from training.data.reports.attach import attach_source


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
