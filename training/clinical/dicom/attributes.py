"""The metadata of a DICOM image: what of its attributes a catalogue may hold.

Of views, sides, parts of the body and makers, known terms are kept: other words may be anybody's.
"""

import datetime
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pydicom import Dataset

from training.clinical.dicom.elements import (
    age_of,
    day_of,
    items_of,
    patient_ids,
    silence_pydicom,
    text_of,
    uid_of,
    values_of,
)
from training.clinical.pseudonyms import keyed_hash, shift_days
from training.common.record import MetadataValue

_UIDS: Final = {"study": "StudyInstanceUID", "series": "SeriesInstanceUID", "sop": "SOPInstanceUID"}
_DATES: Final = ("StudyDate", "SeriesDate", "AcquisitionDate", "AcquisitionDateTime", "ContentDate")
_MODIFIED: Final = "LongitudinalTemporalInformationModified"
_DIRECTION: Final = re.compile(r"[LRAPHF]{1,3}")
_SIDES: Final = {"L": "L", "R": "R", "LEFT": "L", "RIGHT": "R"}
_SIDE_CODES: Final = {"7771000": "L", "24028007": "R", "G-A101": "L", "G-A100": "R"}
_SEXES: Final = ("M", "F", "O")


def read_attributes(dataset: Dataset, *, key: bytes, keep_dates: bool) -> dict[str, MetadataValue]:
    """Return the metadata of an image; attributes without a usable value are left out.

    Args:
        dataset: Attributes of the image; its pixels need not be there.
        key: Secret for the hashes of patient and accession number, and for the shift of dates.
        keep_dates: Keep the date of the study as it is, instead of moving it back by the patient's shift.
    """
    silence_pydicom()
    day = study_day(dataset)
    values: dict[str, MetadataValue | None] = {
        name: uid_of(dataset, keyword) for name, keyword in _UIDS.items()
    }
    values["patient"] = _hashed(dataset, "PatientID", key, "patient")
    hashes = tuple(keyed_hash(key, "patient", own) for own in patient_ids(dataset))
    values["other_patients"] = tuple(own for own in hashes if own != values["patient"])
    values["accession"] = _hashed(dataset, "AccessionNumber", key, "accession")
    values["modality"] = _modality(dataset)
    values["view"] = _view(dataset)
    values["laterality"] = _laterality(dataset)
    values["orientation"] = _orientation(dataset)
    values["sex"] = _one_of(text_of(dataset, "PatientSex").upper()[:1], _SEXES)
    values["date"] = _shown_day(dataset, day, key, keep_dates=keep_dates)
    values["body_part"] = _body_part(dataset)
    values["manufacturer"] = manufacturer_in(text_of(dataset, "Manufacturer"))
    known: dict[str, MetadataValue] = {name: value for name, value in values.items() if value}
    if "date" in known:
        # Somebody else may have shifted it before.
        known["date_shifted"] = not keep_dates or text_of(dataset, _MODIFIED).upper() == "MODIFIED"
    # An age of 0 is known.
    if (age := age_of(dataset, day)) is not None:
        known["age"] = age
    return known


def study_day(dataset: Dataset) -> datetime.date | None:
    """Return the day of the study, else that of the series or the image; None where none is known."""
    days = (day_of(dataset, keyword) for keyword in _DATES)
    return next((day for day in days if day is not None), None)


def _shown_day(dataset: Dataset, day: datetime.date | None, key: bytes, *, keep_dates: bool) -> str | None:
    if day is None or keep_dates:
        return None if day is None else day.isoformat()
    # Without a patient, the images of a study move together.
    patient = text_of(dataset, "PatientID") or text_of(dataset, "StudyInstanceUID")
    try:
        return (day - datetime.timedelta(days=shift_days(key, patient))).isoformat()
    except OverflowError:
        return None


def _hashed(dataset: Dataset, keyword: str, key: bytes, kind: str) -> str | None:
    text = text_of(dataset, keyword)
    return keyed_hash(key, kind, text) if text else None


def _modality(dataset: Dataset) -> str | None:
    return _one_of(text_of(dataset, "Modality").upper(), MODALITIES)


def _view(dataset: Dataset) -> str | None:
    return view_in(text_of(dataset, "ViewPosition")) or view_of_code(_codes(dataset, "ViewCodeSequence"))


def _laterality(dataset: Dataset) -> str | None:
    groups = list(items_of(dataset, "SharedFunctionalGroupsSequence"))
    frames = [item for group in groups for item in items_of(group, "FrameAnatomySequence")]
    texts = [text_of(dataset, "ImageLaterality"), text_of(dataset, "Laterality")]
    texts += [text_of(frame, "FrameLaterality") for frame in frames]
    stated = next((_SIDES[text.upper()] for text in texts if text.upper() in _SIDES), None)
    if stated is not None:
        return stated
    regions = items_of(dataset, "AnatomicRegionSequence")
    codes = [code for item in regions for code in _codes(item, "AnatomicRegionModifierSequence")]
    return next((_SIDE_CODES[code] for code in codes if code in _SIDE_CODES), None)


def _orientation(dataset: Dataset) -> str | None:
    directions = [value.upper() for value in values_of(dataset, "PatientOrientation")]
    if len(directions) != 2 or not all(map(_DIRECTION.fullmatch, directions)):
        return None
    return "\\".join(directions)


def _body_part(dataset: Dataset) -> str | None:
    part = body_part_in(text_of(dataset, "BodyPartExamined"))
    return part or body_part_of_code(_codes(dataset, "AnatomicRegionSequence"))


def _codes(dataset: Dataset, keyword: str) -> Iterator[str]:
    for item in items_of(dataset, keyword):
        yield text_of(item, "CodeValue")


def _one_of(text: str, known: tuple[str, ...] | frozenset[str]) -> str | None:
    return text if text in known else None


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Modalities of images, current and retired.
MODALITIES: Final = _words(
    "AR BI BMD CD CF CP CR CS CT DD DF DG DM DS DX EC ES FA FS GM HC IO IVOCT IVUS KER LEN LP LS MA MG MR "
    "MS NM OAM OCT OP OPM OPR OPT OPV OSS OT PT PX RF RG RTIMAGE SC SM SRF ST TG US VA VF VL XA XC"
)

_VIEW_WORDS: Final = _words(
    "PA AP LL RL RLD LLD RLO LLO LAO RAO LPO RPO LAT LATERAL OBL OBLIQUE FRONTAL ANTERIOR POSTERIOR LEFT "
    "RIGHT ANTERO POSTERO ANTEROPOSTERIOR POSTEROANTERIOR ERECT UPRIGHT STANDING SITTING SUPINE PRONE "
    "RECUMBENT SEMIERECT SEMI DECUB DECUBITUS PORTABLE BEDSIDE XTABLE CROSSTABLE AXIAL AXILLARY TANGENTIAL "
    "LORDOTIC SWIMMERS SUNRISE SKYLINE FROGLEG CALDWELL WATERS TOWNE TOWNES FLEXION EXTENSION INSPIRATION "
    "EXPIRATION DORSOPLANTAR PLANTODORSAL DP PD LM CC MLO ML LMO XCCL XCCM FB SIO ISO CV AT INTERNAL "
    "EXTERNAL ROTATION"
)
# Views by code: SNOMED CT, and SRT as older files have it.
_VIEW_CODES: Final[Mapping[str, str]] = {
    code: view
    for view, codes in {
        "AP": "399348003 R-10206",
        "PA": "272479007 R-10214 R-40888",
        "LL": "399173006 R-10236",
        "RL": "399198007 R-10232",
        "LAT": "399067008 R-102CD",
        "FRONTAL": "399033003 R-10202",
        "LAO": "399135007 R-10220",
        "RAO": "399356000 R-10222 R-40985",
        "LPO": "399006002 R-10212",
        "RPO": "399038007 R-10210",
        "CC": "399162004 R-10242",
        "MLO": "399368009 R-10226",
        "ML": "399260004 R-10224",
        "LM": "399352003 R-10228",
        "LMO": "399099002 R-10230",
        "DORSOPLANTAR": "399335002 R-102C4",
        "PLANTODORSAL": "399071006 R-102C3",
    }.items()
    for code in codes.split()
}

_BODY_WORDS: Final = _words(
    "ABDOMEN ABDOMENPELVIS ACJOINT ANKLE ARM AXILLA BACK BLADDER BODY BONE BREAST BRAIN CALCANEUS CALF "
    "CAROTID CERVICAL CERVIX CHEEK CHEST CHESTABDOMEN CHESTABDPELVIS CLAVICLE COCCYX COLON COSTAE CSPINE "
    "CTSPINE DUODENUM EAR ELBOW ESOPHAGUS EXTREMITY EYE FACE FACIAL FEMUR FIBULA FINGER FOOT FOREARM "
    "GALLBLADDER HAND HEAD HEADNECK HEART HEEL HIP HUMERUS ILIUM JAW JOINT KIDNEY KNEE KUB LARYNX LEG LIVER "
    "LOWER LSPINE LSSPINE LUMBAR LUNG LUNGS MANDIBLE MASTOID MAXILLA MEDIASTINUM NASAL NECK NECKCHEST NOSE "
    "ORBIT PANCREAS PATELLA PELVIS PHALANX RADIUS RIB RIBS SACRUM SCAPULA SELLA SHOULDER SIJOINT SINUS "
    "SINUSES SKULL SPINE SPLEEN SSPINE STERNUM STOMACH TEETH TEMPORAL THIGH THORACIC THORAX THUMB TIBIA "
    "TLSPINE TMJ TOE TRUNK TSPINE UPPER URINARY UTERUS WHOLEBODY WRIST ZYGOMA BECKEN BRUSTKORB BWS "
    "ELLENBOGEN FUSS HWS HÜFTE KNIE LWS SCHULTER SCHÄDEL"
)
_BODY_CODES: Final[Mapping[str, str]] = {
    code: part
    for part, codes in {
        "CHEST": "51185008 T-D3000",
        "ABDOMEN": "818981001 818983003 113345001 T-D4000",
        "PELVIS": "816092008 12921003 T-D6000",
        "SKULL": "89546000 T-11100",
        "HEAD": "69536005 T-D1100",
        "NECK": "45048000 T-D1600",
        "SPINE": "421060004 T-11500",
        "CSPINE": "122494005 T-11501",
        "TSPINE": "122495006 T-11502",
        "LSPINE": "122496007 T-11503",
        "SHOULDER": "16982005 T-D2220",
        "HUMERUS": "85050009 T-12410",
        "ELBOW": "16953009 T-15430",
        "FOREARM": "14975008 T-D8500",
        "WRIST": "74670003 T-15460",
        "HAND": "85562004 T-D8700",
        "FINGER": "7569003 T-D8800",
        "HIP": "24136001 T-15710",
        "FEMUR": "71341001 T-12710",
        "KNEE": "72696002 T-D9200",
        "TIBIA": "12611008 T-12740",
        "ANKLE": "70258002 T-15750",
        "FOOT": "56459004 T-D9700",
        "TOE": "29707007 T-D9800",
        "BREAST": "76752008 T-04000",
        "RIB": "113197003 T-11300",
    }.items()
    for code in codes.split()
}

# Makers of X-ray, CT and MR devices, detectors and plate readers, and the words of their names.
_MAKER_WORDS: Final = _words(
    "AG AGFA ALLENGERS ANALOGIC APELEM ARCOMA CANON CARESTREAM CO COMPANY CORP CORPORATION CURVEBEAM DEL "
    "DENTSPLY DIAGNOSTIC DIAGNOSTICS DIGITAL DMS DRGEM DRTECH DYNAMICS EASTMAN ELECTRIC ELECTRON "
    "ELECTRONICS ELEKTA EOS ESAOTE EXAMION FILM FONAR FUJI FUJIFILM GE GEHC GENDEX GENERAL GENORAY "
    "GEVAERT GIOTTO GMBH GMM HEALTH HEALTHCARE HEALTHINEERS HITACHI HOLOGIC ICRCO IDC IMAGING IMS INC "
    "INDUSTRIES INSTRUMENTARIUM INSTRUMENTS INTERNATIONAL IRAY ITALRAY KAVO KODAK KONICA KUBTEC LG "
    "LIMITED LODOX LORAD LTD LUMISYS MARCONI MEDICAL METALTRONICA MINDRAY MINOLTA MINXRAY NEUSOFT NV OEC "
    "OLDELFT OREX ORTHOSCAN OWANDY PERKINELMER PHILIPS PHOTO PLANMECA PLANMED POSKOM PRIMAX RADIOLOGY "
    "RAYENCE SAMSUNG SECTRA SEDECAL SHIMADZU SIEMENS SIRONA SOREDEX SPA SRL STEPHANIX SWISSRAY SYNTHETIC "
    "SYSTEM SYSTEMS TECHNOLOGIES TECHNOLOGY THALES TOSHIBA TRIXELL UIH UNITED VAREX VARIAN VATECH VIDAR "
    "VIEWORKS XORAN ZIEHM"
)


def view_in(text: str) -> str | None:
    """The words of a view position that are terms for views, such as "AP SUPINE"; None without any."""
    return _known_words(text, _VIEW_WORDS)


def view_of_code(codes: Iterable[str]) -> str | None:
    """The view of the first known code value; None without any."""
    return next((_VIEW_CODES[code] for code in codes if code in _VIEW_CODES), None)


def body_part_in(text: str) -> str | None:
    """The words of a text that are parts of the body, such as "CHEST"; None without any."""
    return _known_words(text, _BODY_WORDS)


def body_part_of_code(codes: Iterable[str]) -> str | None:
    """The part of the body of the first known code value; None without any."""
    return next((_BODY_CODES[code] for code in codes if code in _BODY_CODES), None)


def manufacturer_in(text: str) -> str | None:
    """The words of a text that are of makers' names, as they are written there; None without any."""
    words = re.findall(r"[^\W\d_]+", text)
    return " ".join(word for word in words if word.upper() in _MAKER_WORDS) or None


def _known_words(text: str, known: frozenset[str]) -> str | None:
    words = dict.fromkeys(re.findall(r"[^\W\d_]+", text.upper()))
    return " ".join(word for word in words if word in known) or None
