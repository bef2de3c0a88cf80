"""DICOM structured reports (Basic Text, Enhanced, Comprehensive): the content tree as text with headings.

Results of programs have the same classes. Their title, template or observer shows them, or they have no text.
"""

import warnings
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Final

from pydicom import Dataset, dcmread
from pydicom.errors import InvalidDicomError
from pydicom.filereader import read_dataset, read_preamble
from pydicom.uid import DeflatedExplicitVRLittleEndian

from training.clinical.dicom.attributes import UNREADABLE, patient_ids
from training.clinical.dicom.objects import is_result
from training.clinical.reports.study_report import (
    NoReportError,
    ReportError,
    SourceReport,
    named_value,
    parse_time,
)
from training.clinical.text.headings import SECTION_CODES, kind_of
from training.common.errors import ImageError
from training.imaging.dicom.elements import open_file
from training.imaging.formats import SIGNATURE_BYTES, is_dicom

_STRUCTURED: Final = "1.2.840.10008.5.1.4.1.1.88."
SOP_CLASSES: Final = frozenset(f"{_STRUCTURED}{number}" for number in (11, 22, 33, 34))
_KEY_OBJECTS: Final = f"{_STRUCTURED}59"
_DEEPEST: Final = 16
_MOST_ITEMS: Final = 10_000
_LONGEST_FILE: Final = 64 * 2**20
# Titles (CID 7021 and others) and templates (PS3.16) of measurements and of results of programs.
_RESULTS: Final = (
    "126000 Imaging Measurement Report; 126001 Oncology Measurement Report; 126002 Dynamic Contrast MR "
    "Measurement Report; 126003 PET Measurement Report; 125000 OB-GYN Ultrasound Procedure Report; "
    "125100 Vascular Ultrasound Procedure Report; 125200 Adult Echocardiography Procedure Report; "
    "111036 Mammography CAD Report; 112000 Chest CAD Report; 112220 Colon CAD Report; 113701 X-Ray "
    "Radiation Dose Report; 1500 Measurement Report; 3250 IVUS Report; 3500 Hemodynamics Report; 3700 "
    "ECG Report; 3900 CT/MR Cardiovascular Analysis Report; 4000 Mammography CAD Document; 4100 Chest "
    "CAD Document; 4120 Colon CAD Document; 5000 OB-GYN Ultrasound Procedure Report; 5100 Vascular "
    "Ultrasound Report; 5200 Echocardiography Procedure Report; 5220 Pediatric, Fetal and Congenital "
    "Cardiac Ultrasound Report; 5300 Simplified Echo Procedure Report; 10001 Projection X-Ray Radiation "
    "Dose; 10011 CT Radiation Dose; 10021 Radiopharmaceutical Dose"
)
# Observer type of a result that no person has signed.
_DEVICE: Final = "121007"
_PERSONAL: Final = ("PatientID", "PatientBirthDate", "OtherPatientIDs", "InstitutionName")
# Observers and times, which are left out with everything below them.
_CONTEXT: Final = ("HAS OBS CONTEXT", "HAS ACQ CONTEXT", "HAS CONCEPT MOD")


def is_structured_report(path: Path) -> bool:
    """Tell whether a file is a structured report in DICOM, of whatever kind."""
    try:
        with warnings.catch_warnings(action="ignore"), path.open("rb") as file:
            uid = str(_opened(file, ["SOPClassUID"]).get("SOPClassUID", ""))
            return uid.startswith(_STRUCTURED) and uid != _KEY_OBJECTS
    except (ImageError, *UNREADABLE):
        return False


def parse_structured(content: bytes) -> SourceReport:
    """Read a structured report.

    Raises:
        ReportError: It is no structured report of text, or damaged.
    """
    if len(content) > _LONGEST_FILE:
        raise ReportError(f"it has more than {_LONGEST_FILE >> 20} MiB")
    try:
        with warnings.catch_warnings(action="ignore"):
            return _read(_opened(BytesIO(content)))
    except ReportError:
        raise
    except InvalidDicomError:
        raise ReportError("it is no DICOM file") from None
    except (ImageError, *UNREADABLE):
        # pydicom decodes values where they are read, and raises any of these for a damaged one.
        raise ReportError("it is damaged, or no DICOM file that can be read") from None


def _opened(file: BinaryIO, tags: list[str] | None = None) -> Dataset:
    """Read a file, of which a deflated data set stays within the limit of a file."""
    if not is_dicom(file.read(SIGNATURE_BYTES)):
        raise InvalidDicomError
    file.seek(0)
    read_preamble(file, force=True)
    meta = read_dataset(file, False, True, stop_when=lambda tag, *_: tag.group != 2)
    file.seek(0)
    if meta.get("TransferSyntaxUID") == DeflatedExplicitVRLittleEndian:
        open_file(file.read(), _LONGEST_FILE)
        file.seek(0)
    return dcmread(file, specific_tags=tags, force=True)


def _read(dataset: Dataset) -> SourceReport:
    sop_class = str(dataset.get("SOPClassUID", ""))
    if not sop_class.startswith(_STRUCTURED):
        raise ReportError("it is no structured report of text")
    if is_result(dataset):
        raise NoReportError("results of searches that recoquest wrote")
    _leave_out_results(dataset)
    if sop_class not in SOP_CLASSES:
        raise NoReportError("structured reports of other kinds than text")
    text = "\n".join(_lines(dataset, 0, iter(range(_MOST_ITEMS))))
    kinds = set(_kinds(dataset))
    if "TEXT" not in kinds and kinds & {"CODE", "NUM"}:
        raise NoReportError("structured reports of codes and numbers, without text")
    evidence = _items(dataset, "CurrentRequestedProcedureEvidenceSequence")
    named = (dataset, *evidence, *_items(dataset, "ReferencedRequestSequence"))
    # Versions of a report name the ones before them.
    studies = _items(dataset, "PredecessorDocumentsSequence")
    series = [one for study in studies for one in _items(study, "ReferencedSeriesSequence")]
    before = [image for one in series for image in _items(one, "ReferencedSOPSequence")]
    uids = (*(_text(image, "ReferencedSOPInstanceUID") for image in before), _text(dataset, "SOPInstanceUID"))
    is_partial = _text(dataset, "CompletionFlag") == "PARTIAL"
    is_preliminary = is_partial or _text(dataset, "PreliminaryFlag") == "PRELIMINARY"
    verified = [_text(item, "VerificationDateTime") for item in _items(dataset, "VerifyingObserverSequence")]
    day = _text(dataset, "ContentDate")
    times = (*verified, f"{day}{_text(dataset, 'ContentTime')}", day)
    return SourceReport(
        text=text,
        studies=tuple(filter(None, (_text(one, "StudyInstanceUID") for one in named))),
        accessions=tuple(filter(None, (_text(one, "AccessionNumber") for one in named))),
        patients=patient_ids(dataset),
        identity=next(filter(None, uids), ""),
        # Many systems never say VERIFIED.
        status="preliminary" if is_preliminary else "amended" if studies else "final",
        issued=next(filter(None, map(parse_time, times)), None),
        names=tuple(_names(dataset, 0)),
    )


def _leave_out_results(dataset: Dataset) -> None:
    """Raise an error for what a program measured or computed.

    Raises:
        NoReportError: It is no report of a person; its kind is named in the standard's words.
    """
    names = dict(result.split(" ", 1) for result in _RESULTS.split("; "))
    templates = [_text(item, "TemplateIdentifier") for item in _items(dataset, "ContentTemplateSequence")]
    title = _coded(dataset, "ConceptNameCodeSequence", "CodeValue")
    kinds = [names[code] for code in (title, *templates) if code in names]
    context = [item for item in _items(dataset, "ContentSequence") if _is_context(item)]
    signed = [item for item in context if _text(item, "ValueType") == "PNAME"]
    observers = [_coded(item, "ConceptCodeSequence", "CodeValue") for item in context]
    if _DEVICE in observers and not signed:
        kinds.append("the observer is a device")
    if kinds:
        raise NoReportError(f"measurements or results of programs: {kinds[0]}")


def _kinds(item: Dataset) -> Iterator[str]:
    for child in _items(item, "ContentSequence"):
        if not _is_context(child):
            yield _text(child, "ValueType")
            yield from _kinds(child)


def _is_context(item: Dataset) -> bool:
    return _text(item, "RelationshipType") in _CONTEXT


def _lines(item: Dataset, depth: int, count: Iterator[int], section: str = "") -> Iterator[str]:
    for child in _items(item, "ContentSequence"):
        if next(count, None) is None or depth >= _DEEPEST:
            raise ReportError("its content tree is too large or too deep")
        if _is_context(child):
            continue
        kind, name = _text(child, "ValueType"), _heading(child)
        if kind == "CONTAINER":
            if name:
                yield f"\n{name}:"
            yield from _lines(child, depth + 1, count, name or section)
        elif kind == "TEXT":
            if value := _text(child, "TextValue"):
                # In a section, a text needs no other heading, unless it was added.
                is_headed = name and (not section or kind_of(name) == "addendum")
                yield f"\n{name}: {value}" if is_headed else value
            yield from _lines(child, depth + 1, count, section)
        elif kind in ("CODE", "NUM"):
            meaning = _coded(child, "ConceptNameCodeSequence", "CodeMeaning")
            value = _coded(child, "ConceptCodeSequence", "CodeMeaning")
            if kind == "NUM":
                measured = next(iter(_items(child, "MeasuredValueSequence")), Dataset())
                unit = _coded(measured, "MeasurementUnitsCodeSequence", "CodeMeaning")
                value = f"{_text(measured, 'NumericValue')} {unit}".strip()
            if line := named_value(meaning, value, is_number=kind == "NUM"):
                yield line
            yield from _lines(child, depth + 1, count, section)


def _heading(child: Dataset) -> str:
    """Return the heading of a section, of those that are known; "" for any other."""
    code, meaning = (_coded(child, "ConceptNameCodeSequence", word) for word in ("CodeValue", "CodeMeaning"))
    return SECTION_CODES.get(code) or (meaning.upper() if kind_of(meaning) is not None else "")


def _coded(item: Dataset, sequence: str, keyword: str) -> str:
    """Return the code or the meaning of a coded concept, "" without one."""
    return next((_text(concept, keyword) for concept in _items(item, sequence)), "")


def _text(dataset: Dataset, keyword: str) -> str:
    value: Any = dataset.get(keyword)
    if value is None or isinstance(value, Dataset):
        return ""
    return str(value).replace("\0", "").replace("\r\n", "\n").strip()


def _items(dataset: Dataset, keyword: str) -> list[Dataset]:
    value: Any = dataset.get(keyword)
    return [item for item in value if isinstance(item, Dataset)] if isinstance(value, list) or value else []


def _names(dataset: Dataset, depth: int) -> Iterator[str]:
    for element in dataset:
        if element.VR == "SQ":
            if depth < _DEEPEST:
                for item in element.value or ():
                    yield from _names(item, depth + 1)
        elif element.VR == "PN" or element.keyword in _PERSONAL:
            yield str(element.value)
