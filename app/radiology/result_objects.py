"""Results of a search as DICOM objects in the study of a film, and as FHIR resources."""

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
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
from index.search.results import ActiveGeneration
from index.studies import StudyImage, StudyReference
from training.clinical.dicom.attributes import UNREADABLE, silence_pydicom
from training.clinical.dicom.films import IMPLEMENTATION
from training.clinical.dicom.objects import MANUFACTURER

MAX_CASES: Final = 6
NOTICE: Final = "Not for diagnosis. Similar cases found by recoquest."
WHOSE: Final = {True: "Same patient", False: "Another patient", None: "Patient unknown"}
# Attributes of patient and study that an object gets from its study; the first ones even without a value.
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


def dataset(**values: Any) -> Dataset:
    """Return a data set with attributes, by their keywords."""
    made = Dataset()
    for keyword, value in values.items():
        setattr(made, keyword, value)
    return made


@dataclass(frozen=True, slots=True)
class ChosenCases:
    """An image and similar cases, as they are written into its study.

    Attributes:
        film: The image by its study, instance and frame.
        hits: The cases, the most similar first; each has the UIDs of study, series and instance.
        seed: Objects of the same seed have the same UIDs, so that a request can be sent again.
        at: Time of the objects.
    """

    active: ActiveGeneration
    query: StudyImage
    film: StudyReference
    series: str
    hits: Sequence[SimilarHit]
    seed: str
    at: datetime = field(default_factory=lambda: datetime.now(UTC).astimezone())

    def uid(self, name: str) -> str:
        """Return the UID of a part of the objects."""
        digest = hashlib.sha256(f"{self.seed}\n{name}".encode()).digest()
        return f"2.25.{UUID(bytes=digest[:16], version=4).int}"


@dataclass(frozen=True, slots=True)
class SourceFilm:
    """A film of the archive, to whose study results are written."""

    cases: ChosenCases
    sop_class: str
    identity: Dataset

    def reference(self, *, whole: bool = False) -> Dataset:
        """Return the item that references the film in another object, all frames or the compared one."""
        film = self.cases.film
        item = dataset(ReferencedSOPClassUID=self.sop_class, ReferencedSOPInstanceUID=film.sop)
        if film.frame is not None and not whole:
            item.ReferencedFrameNumber = film.frame
        return item


def read_source(archive: Archive, cases: ChosenCases) -> SourceFilm:
    """Read the film from the archive by WADO-RS.

    Raises:
        ArchiveError: The archive does not have it, or does not answer.
    """
    film = cases.film
    answer = archive.get_json(f"studies/{film.study}/series/{cases.series}/instances/{film.sop}/metadata")
    metadata = next((item for item in items(answer.value) if text(item, _SOP) == film.sop), None)
    if metadata is None or text(metadata, _STUDY) != film.study or not text(metadata, _SOP_CLASS):
        raise ArchiveError("The archive returns metadata of another film.", 200)
    return SourceFilm(cases, text(metadata, _SOP_CLASS), _identity(metadata))


def _identity(metadata: Mapping[str, Any]) -> Dataset:
    silence_pydicom()
    tags = {f"{tag_for_keyword(keyword):08X}": keyword for keyword in (*_REQUIRED, *_OPTIONAL)}
    try:
        identity = Dataset.from_json(
            {
                tag: {**metadata[tag], "vr": dictionary_VR(keyword)}
                for tag, keyword in tags.items()
                if tag in metadata
            }
        )
        # JSON is UTF-8. Values are converted where they are written.
        identity.SpecificCharacterSet = "ISO_IR 192"
        identity.save_as(io.BytesIO(), implicit_vr=False, little_endian=True)
    except UNREADABLE:
        # An object without the patient's id would be another patient's.
        raise ArchiveError("The archive gives the patient's attributes in no DICOM JSON.", 200) from None
    for keyword in _REQUIRED:
        if keyword not in identity:
            setattr(identity, keyword, "")
    return identity


def begin_object(source: SourceFilm, sop_class: str, modality: str) -> Dataset:
    """Return an object in a series of its own, in the study of a film.

    `modality`: its modality, which also names it.
    """
    cases = source.cases
    day, time = cases.at.strftime("%Y%m%d"), cases.at.strftime("%H%M%S")
    made = dataset(
        StudyInstanceUID=cases.film.study,
        SeriesInstanceUID=cases.uid(f"{modality} series"),
        SOPInstanceUID=cases.uid(modality),
        SOPClassUID=sop_class,
        Modality=modality,
        SeriesDescription="Similar cases, not for diagnosis",
        SeriesNumber=_SERIES,
        InstanceNumber=1,
        **dict.fromkeys(("SeriesDate", "ContentDate", "InstanceCreationDate"), day),
        **dict.fromkeys(("SeriesTime", "ContentTime", "InstanceCreationTime"), time),
        **dict.fromkeys(("Manufacturer", "ManufacturerModelName"), MANUFACTURER),
        SoftwareVersions=version("recoquest"),
    )
    made.update(source.identity)
    return made


def encode(made: Dataset) -> bytes:
    """Return an object as a DICOM file."""
    made.file_meta = FileMetaDataset()
    made.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    made.file_meta.ImplementationClassUID = UID(IMPLEMENTATION)
    file = io.BytesIO()
    made.save_as(file, enforce_file_format=True)
    return file.getvalue()


def make_report(source: SourceFilm) -> Dataset:
    """Return a measurement report: a group for each case, with the cosine as its measurement."""
    cases = source.cases
    made = begin_object(source, EnhancedSRStorage, REPORT_MODALITY)
    made.CompletionFlag, made.VerificationFlag = "COMPLETE", "UNVERIFIED"
    made.ReferencedPerformedProcedureStepSequence = []
    made.PerformedProcedureCodeSequence = []
    references = [source.reference(whole=True)]
    series = dataset(SeriesInstanceUID=cases.series, ReferencedSOPSequence=references)
    study = dataset(StudyInstanceUID=cases.film.study, ReferencedSeriesSequence=[series])
    made.CurrentRequestedProcedureEvidenceSequence = [study]
    film = _container(codes.DCM.ImageLibraryGroup, _CONTAINS, [_image(_CONTAINS, None, source)])
    groups = [_case(number, hit, source) for number, hit in enumerate(cases.hits, 1)]
    content = [
        _coded(_MODIFIES, codes.DCM.LanguageOfContentItemAndDescendants, Code("en", "RFC5646", "English")),
        _coded(_CONTEXT, codes.DCM.ObserverType, codes.DCM.Device),
        _uid(_CONTEXT, codes.DCM.DeviceObserverUID, IMPLEMENTATION),
        _text(_CONTEXT, codes.DCM.DeviceObserverName, "recoquest"),
        _text(_CONTEXT, codes.DCM.DeviceObserverManufacturer, "recoquest"),
        _coded(_MODIFIES, codes.DCM.ProcedureReported, codes.SCT.ImagingProcedure),
        _container(codes.DCM.ImageLibrary, _CONTAINS, [film]),
        _container(codes.DCM.ImagingMeasurements, _CONTAINS, groups),
        _text(_CONTAINS, codes.DCM.Comment, NOTICE),
    ]
    made.update(_container(codes.DCM.ImagingMeasurementReport, None, content, template="1500"))
    return made


def _case(number: int, hit: SimilarHit, source: SourceFilm) -> Dataset:
    cases = source.cases
    value = dataset(NumericValue=f"{hit.score:.6f}", MeasurementUnitsCodeSequence=[_code(_NO_UNITS)])
    measured = [
        _text(_MODIFIES, codes.DCM.AlgorithmName, cases.active.model),
        _text(_MODIFIES, codes.DCM.AlgorithmVersion, f"recoquest {version('recoquest')}"),
        _image("INFERRED FROM", codes.DCM.SourceOfMeasurement, source),
    ]
    facts = [WHOSE[hit.same_patient], hit.modality, hit.view, hit.laterality, hit.age_band, hit.sex]
    content = [
        _text(_CONTEXT, codes.DCM.TrackingIdentifier, f"Similar case {number}"),
        _uid(_CONTEXT, codes.DCM.TrackingUniqueIdentifier, cases.uid(f"case {number}")),
        _item(_CONTAINS, "NUM", _SIMILARITY, MeasuredValueSequence=[value], ContentSequence=measured),
        _uid(_CONTAINS, codes.DCM.StudyInstanceUID, str(hit.study)),
        _uid(_CONTAINS, codes.DCM.SeriesInstanceUID, str(hit.series)),
        _uid(_CONTAINS, _INSTANCE, str(hit.sop)),
        *([] if hit.frame is None else [_text(_CONTAINS, _FRAME, str(hit.frame))]),
        _text(_CONTAINS, codes.DCM.Comment, ", ".join(fact for fact in facts if fact is not None)),
        *([] if hit.sentence is None else [_text(_CONTAINS, _SENTENCE, hit.sentence.text)]),
    ]
    return _container(codes.DCM.MeasurementGroup, _CONTAINS, content, template="1501")


def _item(relationship: str | None, kind: str, name: Code | None, **values: Any) -> Dataset:
    related = {} if relationship is None else {"RelationshipType": relationship}
    named = {} if name is None else {"ConceptNameCodeSequence": [_code(name)]}
    return dataset(ValueType=kind, **related, **named, **values)


def _container(
    name: Code, relationship: str | None, content: Sequence[Dataset], template: str | None = None
) -> Dataset:
    used = {}
    if template is not None:
        used["ContentTemplateSequence"] = [dataset(MappingResource="DCMR", TemplateIdentifier=template)]
    return _item(
        relationship, "CONTAINER", name, ContinuityOfContent="SEPARATE", ContentSequence=content, **used
    )


def _code(code: Code) -> Dataset:
    return dataset(
        CodeValue=code.value, CodingSchemeDesignator=code.scheme_designator, CodeMeaning=code.meaning
    )


def _text(relationship: str, name: Code, text: str) -> Dataset:
    return _item(relationship, "TEXT", name, TextValue=text)


def _coded(relationship: str, name: Code, value: Code) -> Dataset:
    return _item(relationship, "CODE", name, ConceptCodeSequence=[_code(value)])


def _uid(relationship: str, name: Code, uid: str) -> Dataset:
    return _item(relationship, "UIDREF", name, UID=uid)


def _image(relationship: str, name: Code | None, source: SourceFilm) -> Dataset:
    return _item(relationship, "IMAGE", name, ReferencedSOPSequence=[source.reference()])


def make_selections(cases: ChosenCases) -> dict[str, Any]:
    """Return a Bundle: a selection of the film that was searched with, and one of each similar case.

    No selection has a subject: the caller's server knows the patients by the studies.
    """
    issued, film = cases.at.isoformat(timespec="seconds"), cases.film
    named = [("The film that was searched with", film.study, cases.series, str(film.sop), film.frame)]
    for number, hit in enumerate(cases.hits, 1):
        text = f"Similar case {number}, cosine {hit.score:.6f}; not for diagnosis"
        named.append((text, str(hit.study), str(hit.series), str(hit.sop), hit.frame))
    actor = {"display": f"recoquest {version('recoquest')}, model {cases.active.model}"}
    entries = [
        {
            "fullUrl": _urn(cases, f"selection {number}"),
            "resource": {
                "resourceType": "ImagingSelection",
                "status": "available",
                "issued": issued,
                "performer": [{"actor": actor}],
                "code": {
                    "coding": [{"system": _DICOM, "code": "113000", "display": "Of Interest"}],
                    "text": text,
                },
                "derivedFrom": [
                    {
                        "type": "ImagingStudy",
                        "identifier": {"system": "urn:dicom:uid", "value": f"urn:oid:{study}"},
                    }
                ],
                "studyUid": study,
                "seriesUid": series,
                "instance": [{"uid": sop} if frame is None else {"uid": sop, "subset": [str(frame)]}],
            },
        }
        for number, (text, study, series, sop, frame) in enumerate(named)
    ]
    return {
        "resourceType": "Bundle",
        "identifier": {"system": "urn:ietf:rfc:3986", "value": _urn(cases, "bundle")},
        "type": "collection",
        "timestamp": issued,
        "entry": entries,
    }


def _urn(cases: ChosenCases, name: str) -> str:
    number = int(cases.uid(name).rpartition(".")[2])
    return f"urn:uuid:{UUID(int=number)}"
