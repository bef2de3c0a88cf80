"""Indiana University's radiographs, from Kaggle and from Open-i."""

from pathlib import Path

import pytest

from tests.training.importing.trees import imported, left_out, records_of, touch, write
from training.common.errors import DataError

REPORTS = (
    "uid,MeSH,Problems,image,indication,comparison,findings,impression\n"
    "1,normal,normal,Xray Chest PA and Lateral,Cough,,The heart is normal. No XXXX effusion.,Clear lungs.\n"
    '2,Cardiomegaly/borderline;Pulmonary Artery/enlarged,Cardiomegaly;Pulmonary Artery,"Chest, 2 views",,,,\n'
    "3,normal,normal,Chest,,,Normal heart size.,\n"
)
PROJECTIONS = (
    "uid,filename,projection\n"
    "1,1_IM-0001-4001.dcm.png,Frontal\n1,1_IM-0001-3001.dcm.png,Lateral\n2,2_IM-0652-1001.dcm.png,Frontal\n"
)
XML = """<?xml version="1.0" encoding="utf-8"?>
<eCitation><meta type="rr"/><uId id="CXR{uid}"/>
<MedlineCitation><Article><Abstract>
<AbstractText Label="COMPARISON">None.</AbstractText>
<AbstractText Label="FINDINGS">The heart is normal in size. <b>No XXXX effusion.</b></AbstractText>
<AbstractText Label="IMPRESSION">Normal chest x-XXXX.</AbstractText>
</Abstract></Article></MedlineCitation>
<MeSH><major>Opacity/lung/left</major><major>Opacity/lung/base</major><minor>no</minor></MeSH>
{images}
</eCitation>"""


def parent(name: str) -> str:
    return f'<parentImage id="{name}"><figureId>F1</figureId><caption>PA</caption></parentImage>'


@pytest.fixture
def kaggle(tmp_path: Path) -> Path:
    write(tmp_path, "indiana_reports.csv", REPORTS)
    write(tmp_path, "indiana_projections.csv", PROJECTIONS)
    names = ("1_IM-0001-4001", "1_IM-0001-3001", "2_IM-0652-1001")
    touch(tmp_path, *(f"images/images_normalized/{name}.dcm.png" for name in names))
    return tmp_path


def test_tables_of_kaggle(kaggle: Path) -> None:
    report = imported("iu-xray", kaggle)
    assert (report.records, left_out(report)) == (3, {"reports of indiana_reports.csv without an image": 1})
    found = records_of(kaggle)
    first, second = found["1_IM-0001-4001"], found["2_IM-0652-1001"]
    assert first.image == "images/images_normalized/1_IM-0001-4001.dcm.png"
    assert first.texts == ("The heart is normal.", "No effusion.", "Clear lungs.")
    assert first.report == "FINDINGS: The heart is normal. No XXXX effusion.\n\nIMPRESSION: Clear lungs."
    assert (first.labels, first.group) == (("normal",), "1")
    assert found["1_IM-0001-3001"].metadata["view"] == "LATERAL"
    assert found["1_IM-0001-3001"].split == first.split
    assert (second.labels, second.texts, second.report) == (("Cardiomegaly", "Pulmonary Artery"), (), None)
    assert dict(second.metadata) == {
        "view": "FRONTAL", "mesh": ("Cardiomegaly/borderline", "Pulmonary Artery/enlarged"),
    }  # fmt: skip


def test_broken_lines_of_kaggle(kaggle: Path) -> None:
    write(
        kaggle, "indiana_projections.csv", f"{PROJECTIONS}9,2_IM-0652-1001.dcm.png,Frontal\n2,x.png,Frontal\n"
    )
    report = imported("iu-xray", kaggle, max_rejected=1)
    assert [(item.line, item.reason) for item in report.rejections.items] == [
        (5, "indiana_reports.csv has no report '9'"),
        (6, "there is no image 'x.png'"),
    ]


def test_files_of_open_i(tmp_path: Path) -> None:
    folder = "ecgen-radiology"
    names = ("CXR2_IM-0652-1001", "CXR2_IM-0652-2001")
    write(tmp_path, f"{folder}/2.xml", XML.format(uid=2, images="".join(map(parent, names))))
    write(tmp_path, f"{folder}/10.xml", XML.format(uid=10, images=""))
    write(tmp_path, f"{folder}/3.xml", "<eCitation><uId")
    write(tmp_path, f"{folder}/4.xml", XML.format(uid=4, images=parent("CXR4_IM-1")))
    touch(tmp_path, *(f"NLMCXR_png/{name}.png" for name in names), "NLMCXR_png/other.png")
    report = imported("iu-xray", tmp_path, max_rejected=1)
    found = records_of(tmp_path)
    assert list(found) == list(names)
    record = found[names[0]]
    assert record.image == "NLMCXR_png/CXR2_IM-0652-1001.png"
    assert record.texts == ("The heart is normal in size.", "No effusion.", "Normal chest.")
    assert record.report == (
        "FINDINGS: The heart is normal in size. No XXXX effusion.\n\nIMPRESSION: Normal chest x-XXXX."
    )
    assert (record.labels, record.group) == (("Opacity",), "CXR2")
    assert dict(record.metadata) == {"mesh": ("Opacity/lung/left", "Opacity/lung/base")}
    assert left_out(report)["reports without an image"] == 1
    reasons = [(item.line, item.table, item.reason.split(":")[0]) for item in report.rejections.items]
    assert reasons == [
        (3, "3.xml", "it cannot be read as XML"),
        (4, "4.xml", "there is no image 'CXR4_IM-1.png'"),
    ]


def test_another_folder_is_told(kaggle: Path, tmp_path: Path) -> None:
    (kaggle / "indiana_projections.csv").unlink()
    with pytest.raises(DataError, match=r"There is no indiana_projections\.csv"):
        imported("iu-xray", kaggle)
    (kaggle / "indiana_reports.csv").unlink()
    with pytest.raises(DataError, match=r"There is no indiana_reports\.csv .* no folder ecgen-radiology"):
        imported("iu-xray", kaggle)
    write(tmp_path, "ecgen-radiology/1.xml", "<note/>")
    with pytest.raises(DataError, match=r"None of the XML files in .* names an image as parentImage"):
        imported("iu-xray", tmp_path)


def test_two_reports_of_one_study_end_the_import(kaggle: Path) -> None:
    again = "1,normal,normal,Chest,,,Normal heart size.,\n"
    write(kaggle, "indiana_reports.csv", REPORTS + again)
    with pytest.raises(DataError, match=r"indiana_reports\.csv cannot be used: lines 2 and 5 differ for '1'"):
        imported("iu-xray", kaggle)
    # The same row twice says nothing else.
    write(kaggle, "indiana_reports.csv", REPORTS + REPORTS.splitlines()[1] + "\n")
    assert imported("iu-xray", kaggle).records == 3
