"""Similar cases as a structured report by template TID 1500 of PS3.16, which programs read.

Cases are named by UIDs in its content, and are no references: a program that follows references would fetch
films of other patients under the name of this one.
"""

from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version
from typing import Final

from pydicom import Dataset
from pydicom.sr.codedict import codes
from pydicom.sr.coding import Code
from pydicom.uid import EnhancedSRStorage

from app.radiology.pacs.results.objects import NOTICE, WHOSE, SourceFilm, Uids, begin_object
from app.radiology.schemas.studies import SimilarHit
from training.clinical.dicom.films import IMPLEMENTATION

MODALITY = "SR"
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


def make_report(
    source: SourceFilm, hits: Sequence[SimilarHit], model: str, uids: Uids, at: datetime
) -> Dataset:
    """Return a measurement report: a group for each case, with the cosine as its measurement.

    Args:
        source: The film in the archive.
        hits: Similar cases.
        model: Name of the model that compared them.
        uids: UIDs of the request.
        at: Local time of the search.
    """
    made = begin_object(source, EnhancedSRStorage, MODALITY, uids, at)
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
