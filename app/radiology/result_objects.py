"""Results of a search as DICOM objects in the study of a film, and as FHIR resources."""

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from typing import Any, Final
from uuid import UUID

from pydicom import Dataset
from pydicom.datadict import dictionary_VR, tag_for_keyword
from pydicom.dataset import FileMetaDataset
from pydicom.sr.codedict import codes
from pydicom.sr.coding import Code
from pydicom.uid import UID, EnhancedSRStorage, ExplicitVRLittleEndian

from app.radiology.archive import Archive, ArchiveError, items, text
from app.radiology.studies import SimilarHit
from index.studies import Wanted
from training.clinical.dicom.elements import UNREADABLE, silence_pydicom
from training.clinical.dicom.films import IMPLEMENTATION
from training.clinical.dicom.objects import MANUFACTURER

MAX_CASES: Final = 6
NOTICE: Final = "Not for diagnosis. Similar cases found by recoquest."
WHOSE: Final = {True: "Same patient", False: "Another patient", None: "Patient not known"}
# Attributes of patient and study that an object has of its study; the first ones it has even without a value.
_REQUIRED: Final = (
    *("PatientName", "PatientID", "PatientBirthDate", "PatientSex"),
    *("StudyDate", "StudyTime", "ReferringPhysicianName", "StudyID", "AccessionNumber"),
)
_OPTIONAL: Final = ("IssuerOfPatientID", "OtherPatientIDsSequence", "StudyDescription")
# Behind the series of devices, which viewers list by number.
_SERIES: Final = 9001
_SOP_CLASS: Final = "00080016"
_SOP: Final = "00080018"
_STUDY: Final = "0020000D"
REPORT_MODALITY: Final = "SR"
_SCHEME: Final = "99RECOQUEST"
_SIMILARITY: Final = Code("cosine", _SCHEME, "Cosine of two images")
_FRAME: Final = Code("frame", _SCHEME, "Frame number")
_INSTANCE: Final = Code("instance", _SCHEME, "SOP Instance UID")
# Not a finding: programs would take it for one of this patient.
_SENTENCE: Final = Code("sentence", _SCHEME, "Sentence of the report of the similar case")
_NO_UNITS: Final = Code("1", "UCUM", "no units")
_CONTAINS: Final = "CONTAINS"
_CONTEXT: Final = "HAS OBS CONTEXT"
_MODIFIES: Final = "HAS CONCEPT MOD"
_DICOM: Final = "http://dicom.nema.org/resources/ontology/DCM"


@dataclass(frozen=True, slots=True)
class SourceFilm:
    """A film of the archive, to whose study results are written.

    Attributes:
        frame: Number of the frame that was searched with, from 1; None: the film has one.
    """

    study: str
    series: str
    sop: str
    sop_class: str
    frame: int | None
    identity: Dataset

    def reference(self) -> Dataset:
        """Return the item that names the film in another object."""
        item = Dataset()
        item.ReferencedSOPClassUID, item.ReferencedSOPInstanceUID = self.sop_class, self.sop
        if self.frame is not None:
            item.ReferencedFrameNumber = self.frame
        return item


def read_source(archive: Archive, study: str, series: str, sop: str, frame: int | None) -> SourceFilm:
    """Read the film from the archive by WADO-RS.

    Raises:
        ArchiveError: The archive does not have it, or does not answer.
    """
    answer = archive.get_json(f"studies/{study}/series/{series}/instances/{sop}/metadata")
    found = next((item for item in items(answer.value) if text(item, _SOP) == sop), None)
    if found is None or text(found, _STUDY) != study or not text(found, _SOP_CLASS):
        raise ArchiveError("The archive gives other metadata than that of the film.", 200)
    return SourceFilm(study, series, sop, text(found, _SOP_CLASS), frame, _identity(found))


def _identity(metadata: Mapping[str, Any]) -> Dataset:
    silence_pydicom()
    tags = {f"{tag_for_keyword(keyword):08X}": keyword for keyword in (*_REQUIRED, *_OPTIONAL)}
    try:
        found = Dataset.from_json(
            {
                tag: {**metadata[tag], "vr": dictionary_VR(keyword)}
                for tag, keyword in tags.items()
                if tag in metadata
            }
        )
        # JSON is UTF-8. Values are converted where they are written.
        found.SpecificCharacterSet = "ISO_IR 192"
        found.save_as(io.BytesIO(), implicit_vr=False, little_endian=True)
    except UNREADABLE:
        # An object without the patient's id would be another patient's.
        raise ArchiveError("The archive gives the patient's attributes in no DICOM JSON.", 200) from None
    for keyword in _REQUIRED:
        if keyword not in found:
            setattr(found, keyword, "")
    return found


class Uids:
    """Unique identifiers that are the same for the same request, so that it can be sent again."""

    def __init__(self, seed: str) -> None:
        self._seed = seed

    def of(self, name: str) -> str:
        """Return the UID of a part of the request."""
        digest = hashlib.sha256(f"{self._seed}\n{name}".encode()).digest()
        return f"2.25.{UUID(bytes=digest[:16], version=4).int}"


def begin_object(source: SourceFilm, sop_class: str, modality: str, uids: Uids, at: datetime) -> Dataset:
    """Return an object in a series of its own, in the study of a film.

    `modality`: its modality, which also names it.
    """
    made = Dataset()
    made.update(source.identity)
    made.StudyInstanceUID = source.study
    made.SeriesInstanceUID, made.SOPInstanceUID = uids.of(f"{modality} series"), uids.of(modality)
    made.SOPClassUID, made.Modality = sop_class, modality
    made.SeriesDescription = "Similar cases, not for diagnosis"
    made.SeriesNumber, made.InstanceNumber = _SERIES, 1
    made.SeriesDate = made.ContentDate = made.InstanceCreationDate = at.strftime("%Y%m%d")
    made.SeriesTime = made.ContentTime = made.InstanceCreationTime = at.strftime("%H%M%S")
    made.Manufacturer = made.ManufacturerModelName = MANUFACTURER
    made.SoftwareVersions = version("recoquest")
    return made


def encode(made: Dataset) -> bytes:
    """Return an object as a DICOM file."""
    made.file_meta = FileMetaDataset()
    made.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    made.file_meta.ImplementationClassUID = UID(IMPLEMENTATION)
    file = io.BytesIO()
    made.save_as(file, enforce_file_format=True)
    return file.getvalue()


def make_report(
    source: SourceFilm, hits: Sequence[SimilarHit], model: str, uids: Uids, at: datetime
) -> Dataset:
    """Return a measurement report: a group for each case, with the cosine as its measurement."""
    made = begin_object(source, EnhancedSRStorage, REPORT_MODALITY, uids, at)
    made.CompletionFlag, made.VerificationFlag = "COMPLETE", "UNVERIFIED"
    made.ReferencedPerformedProcedureStepSequence = []
    made.PerformedProcedureCodeSequence = []
    made.CurrentRequestedProcedureEvidenceSequence = [_evidence(source)]
    root = _container(codes.DCM.ImagingMeasurementReport, "1500")
    root.ContentSequence = [
        _coded(_MODIFIES, codes.DCM.LanguageOfContentItemAndDescendants, Code("en", "RFC5646", "English")),
        _coded(_CONTEXT, codes.DCM.ObserverType, codes.DCM.Device),
        _uid(_CONTEXT, codes.DCM.DeviceObserverUID, IMPLEMENTATION),
        _text(_CONTEXT, codes.DCM.DeviceObserverName, "recoquest"),
        _text(_CONTEXT, codes.DCM.DeviceObserverManufacturer, "recoquest"),
        _coded(_MODIFIES, codes.DCM.ProcedureReported, codes.SCT.ImagingProcedure),
        _library(source),
        _measurements(source, hits, model, uids),
        _text(_CONTAINS, codes.DCM.Comment, NOTICE),
    ]
    made.update(root)
    return made


def _evidence(source: SourceFilm) -> Dataset:
    reference, series, study = source.reference(), Dataset(), Dataset()
    if "ReferencedFrameNumber" in reference:
        del reference.ReferencedFrameNumber
    series.SeriesInstanceUID, series.ReferencedSOPSequence = source.series, [reference]
    study.StudyInstanceUID, study.ReferencedSeriesSequence = source.study, [series]
    return study


def _library(source: SourceFilm) -> Dataset:
    group = _container(codes.DCM.ImageLibraryGroup, None, _CONTAINS)
    group.ContentSequence = [_image(_CONTAINS, None, source)]
    library = _container(codes.DCM.ImageLibrary, None, _CONTAINS)
    library.ContentSequence = [group]
    return library


def _measurements(source: SourceFilm, hits: Sequence[SimilarHit], model: str, uids: Uids) -> Dataset:
    container = _container(codes.DCM.ImagingMeasurements, None, _CONTAINS)
    container.ContentSequence = [
        _case(number, hit, source, model, uids) for number, hit in enumerate(hits, 1)
    ]
    return container


def _case(number: int, hit: SimilarHit, source: SourceFilm, model: str, uids: Uids) -> Dataset:
    group = _container(codes.DCM.MeasurementGroup, "1501", _CONTAINS)
    cosine = _item(_CONTAINS, "NUM", _SIMILARITY)
    value = Dataset()
    value.NumericValue = f"{hit.score:.6f}"
    value.MeasurementUnitsCodeSequence = [_code(_NO_UNITS)]
    cosine.MeasuredValueSequence = [value]
    cosine.ContentSequence = [
        _text(_MODIFIES, codes.DCM.AlgorithmName, model),
        _text(_MODIFIES, codes.DCM.AlgorithmVersion, f"recoquest {version('recoquest')}"),
        _image("INFERRED FROM", codes.DCM.SourceOfMeasurement, source),
    ]
    told = [WHOSE[hit.same_patient], hit.modality, hit.view, hit.laterality, hit.age_band, hit.sex]
    group.ContentSequence = [
        _text(_CONTEXT, codes.DCM.TrackingIdentifier, f"Similar case {number}"),
        _uid(_CONTEXT, codes.DCM.TrackingUniqueIdentifier, uids.of(f"case {number}")),
        cosine,
        _uid(_CONTAINS, codes.DCM.StudyInstanceUID, str(hit.study)),
        _uid(_CONTAINS, codes.DCM.SeriesInstanceUID, str(hit.series)),
        _uid(_CONTAINS, _INSTANCE, str(hit.sop)),
        *([] if hit.frame is None else [_text(_CONTAINS, _FRAME, str(hit.frame))]),
        _text(_CONTAINS, codes.DCM.Comment, ", ".join(fact for fact in told if fact is not None)),
        *([] if hit.sentence is None else [_text(_CONTAINS, _SENTENCE, hit.sentence.text)]),
    ]
    return group


def _container(name: Code, template: str | None, relationship: str | None = None) -> Dataset:
    item = _item(relationship, "CONTAINER", name)
    item.ContinuityOfContent = "SEPARATE"
    if template is not None:
        used = Dataset()
        used.MappingResource, used.TemplateIdentifier = "DCMR", template
        item.ContentTemplateSequence = [used]
    return item


def _item(relationship: str | None, kind: str, name: Code | None) -> Dataset:
    item = Dataset()
    if relationship is not None:
        item.RelationshipType = relationship
    item.ValueType = kind
    if name is not None:
        item.ConceptNameCodeSequence = [_code(name)]
    return item


def _code(code: Code) -> Dataset:
    item = Dataset()
    item.CodeValue, item.CodingSchemeDesignator, item.CodeMeaning = (
        code.value,
        code.scheme_designator,
        code.meaning,
    )
    return item


def _text(relationship: str, name: Code, text: str) -> Dataset:
    item = _item(relationship, "TEXT", name)
    item.TextValue = text
    return item


def _coded(relationship: str, name: Code, value: Code) -> Dataset:
    item = _item(relationship, "CODE", name)
    item.ConceptCodeSequence = [_code(value)]
    return item


def _uid(relationship: str, name: Code, uid: str) -> Dataset:
    item = _item(relationship, "UIDREF", name)
    item.UID = uid
    return item


def _image(relationship: str, name: Code | None, source: SourceFilm) -> Dataset:
    item = _item(relationship, "IMAGE", name)
    item.ReferencedSOPSequence = [source.reference()]
    return item


def make_selections(
    film: Wanted, series: str, hits: Sequence[SimilarHit], model: str, uids: Uids, at: datetime
) -> dict[str, Any]:
    """Return a Bundle: a selection of the film that was searched with, and one of each similar case.

    No selection has a subject: the caller's server knows the patients by the studies.
    """
    issued = at.isoformat(timespec="seconds")
    place = film.study, series, str(film.sop)
    selections = [_selection("The film that was searched with", *place, film.frame, model, issued)]
    for number, hit in enumerate(hits, 1):
        text = f"Similar case {number}, cosine {hit.score:.6f}; not for diagnosis"
        place = str(hit.study), str(hit.series), str(hit.sop)
        selections.append(_selection(text, *place, hit.frame, model, issued))
    entries = [
        {"fullUrl": _urn(uids, f"selection {number}"), "resource": selection}
        for number, selection in enumerate(selections)
    ]
    return {
        "resourceType": "Bundle",
        "identifier": {"system": "urn:ietf:rfc:3986", "value": _urn(uids, "bundle")},
        "type": "collection",
        "timestamp": issued,
        "entry": entries,
    }


def _selection(
    text: str, study: str, series: str, sop: str, frame: int | None, model: str, issued: str
) -> dict[str, Any]:
    subset = {} if frame is None else {"subset": [str(frame)]}
    identifier = {"system": "urn:dicom:uid", "value": f"urn:oid:{study}"}
    return {
        "resourceType": "ImagingSelection",
        "status": "available",
        "issued": issued,
        "performer": [{"actor": {"display": f"recoquest {version('recoquest')}, model {model}"}}],
        "code": {
            "coding": [{"system": _DICOM, "code": "113000", "display": "Of Interest"}],
            "text": text,
        },
        "derivedFrom": [{"type": "ImagingStudy", "identifier": identifier}],
        "studyUid": study,
        "seriesUid": series,
        "instance": [{"uid": sop, **subset}],
    }


def _urn(uids: Uids, name: str) -> str:
    number = int(uids.of(name).rpartition(".")[2])
    return f"urn:uuid:{UUID(int=number)}"
