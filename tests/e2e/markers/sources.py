"""Films and reports of all forms with markers in every text, and files that are refused."""

import io
import zipfile
from pathlib import Path
from typing import Final

from pydicom import Dataset

from tests.dicom_films import MARKER, encoded
from tests.dicom_markers import (
    film_of_frames,
    film_of_wrong_values,
    implicit_film,
    j2k_film,
    jpeg_film,
    marked_film,
)
from tests.training.clinical.reports.documents import (
    ACCESSION,
    MARKERS,
    PATIENT,
    STUDY,
    as_json,
    fhir_report,
    hl7_report,
    structured_report,
    text_report,
)

# The study of a report that comes before its film.
LATER: Final = "1.2.826.0.1.3680043.8.498.2"


def film_with_reports(number: int) -> Dataset:
    """Make a marked film of the study that the documents are about."""
    film = marked_film(number)
    film.StudyInstanceUID, film.AccessionNumber, film.PatientID = STUDY, ACCESSION, PATIENT
    return film


def films(first: int) -> dict[str, bytes]:
    """Return films that are taken, by names with markers, from a number on."""
    return {
        f"{MARKER}/{MARKER}^PLAIN.dcm": encoded(marked_film(first)),
        f"{MARKER}^IMPLICIT": encoded(implicit_film(first + 1)),
        f"{MARKER}.{MARKER}": encoded(jpeg_film(first + 2)),
        f"{MARKER} J2K.DCM": encoded(j2k_film(first + 3)),
        f"{MARKER}/{MARKER}/FRAMES": encoded(film_of_frames(first + 4)),
        f"{MARKER}WRONG": film_of_wrong_values(first + 5),
        f"{MARKER}MODALITY": encoded(marked_film(first + 6, Modality=MARKER)),
    }


def refused_films(number: int) -> dict[str, bytes]:
    """Return files that are refused, left out or put into quarantine, by names with markers."""
    plain, marked = encoded(marked_film(number)), MARKER.encode()
    return {
        f"{MARKER}.cut": plain[:-1000],
        f"{MARKER}.short": plain[:3000],
        f"{MARKER}.photometric": plain.replace(b"MONOCHROME2 ", marked + b"1234"),
        f"{MARKER}.class": plain.replace(b"1.2.840.10008.5.1.4.1.1.1.1", (marked + b".").ljust(27, b"1")),
        f"{MARKER}.syntax": plain.replace(b"1.2.840.10008.1.2.1", (marked + b".").ljust(19, b"1")),
        f"{MARKER}.burned": encoded(marked_film(number + 1, BurnedInAnnotation="YES")),
        f"{MARKER}.capture": encoded(marked_film(number + 3, SOPClassUID="1.2.840.10008.5.1.4.1.1.7")),
        f"{MARKER}.uid": encoded(marked_film(number + 4, StudyInstanceUID=f"1.2.{MARKER}")),
        f"{MARKER}.txt": marked,
        f"{MARKER}.zip": zipped({f"{MARKER}.dcm": plain[:500]}),
    }


def zipped(files: dict[str, bytes]) -> bytes:
    """Return a zip archive of files."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = MARKER.encode()
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


def messages() -> dict[str, bytes]:
    """Return HL7 messages, taken and refused, with markers in all segments."""
    own = b"\r".join(f"Z{name}|1|{MARKER}^{MARKERS[0]}".encode() for name in ("XX", "PI", "DS1")) + b"\r"
    return {
        "taken": hl7_report(["IMPRESSION: Left effusion, smaller."], issued="20240305") + own,
        "waiting": hl7_report(study=LATER, accession=f"{MARKER}LATER") + own,
        "another kind": hl7_report(kind="ADT^A01") + own,
        "without a text": hl7_report([]) + own,
        "documents": hl7_report().replace(b"|TX|", b"|ED|") + own,
        "another patient": hl7_report(patient=f"{MARKER}OTHER") + own,
        "character set": hl7_report().replace(b"|P|2.5.1", b"|P|2.5.1||||||" + MARKER.encode()) + own,
        "segment": hl7_report().replace(b"PID|", MARKER.encode() + b"|"),
        "no message": MARKER.encode(),
    }


def write_reports(folder: Path) -> None:
    """Write reports in every format, and files that are refused, into folders and files with markers."""
    inside = folder / f"{MARKER}_{MARKERS[1]}"
    inside.mkdir(parents=True)
    (folder / f"{ACCESSION}.txt").write_text(text_report())
    (inside / f"{MARKER}.json").write_text(as_json(fhir_report()))
    (inside / f"{MARKER}_ward.ndjson").write_text(
        "\n".join((as_json(fhir_report(status="preliminary")), MARKER, f'{{"resourceType": "{MARKER}"}}'))
    )
    structured_report().save_as(folder / f"{MARKER}.dcm", enforce_file_format=True)
    header = f"accession;study_uid;patient_id;report;patient_name;radiologist;{MARKER};status;date\n"
    row = f"{ACCESSION};{STUDY};{PATIENT};IMPRESSION: Clear lungs.;{MARKERS[2]}, J;Dr. {MARKERS[3]};{MARKER};"
    (folder / f"{MARKER}.csv").write_text(
        f"{header}{row}final;2024-03-01\n{row}{MARKER};2024-03-01\n{row}final;{MARKER}\n{row};;;;{MARKER}\n"
    )
    (folder / f"{MARKER} columns.csv").write_text(f"{MARKER};{MARKERS[4]}\n{MARKER};1\n")
    (folder / f"{MARKER} twice.csv").write_text(f"{header.strip()};{MARKER}\n{row};;\n")
    (folder / f"{MARKER} latin.csv").write_bytes(f"{header}{row}final;{MARKER}ü\n".encode("latin-1"))
    (folder / f"{MARKER} latin.txt").write_bytes(f"Patient: {MARKER}ü\nIMPRESSION: Normal.".encode("latin-1"))
    (folder / f"{MARKER}.{MARKER}").write_text(MARKER)
    for number, message in enumerate(messages().values()):
        (folder / f"{MARKER}{number}.hl7").write_bytes(message)
