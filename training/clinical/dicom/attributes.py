"""Attributes of DICOM images: their texts, dates and ages, and the metadata of which a catalogue may hold.

Values are read whatever their value representation says, and no log quotes them. Of views, sides, parts of
the body and makers, known terms are kept: other words may be anybody's.
"""

import datetime
import logging
import re
import struct
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from pydicom import Dataset
from pydicom.charset import convert_encodings, decode_bytes
from pydicom.dataelem import DataElement, RawDataElement
from pydicom.errors import BytesLengthException, InvalidDicomError
from pydicom.tag import Tag

from training.clinical.pseudonyms import keyed_hash, shift_days
from training.common.record import MetadataValue

# Errors of pydicom at bytes that are no DICOM attributes.
UNREADABLE: Final = (
    *(OSError, EOFError, ValueError, TypeError, LookupError, AttributeError, RecursionError, struct.error),
    *(ArithmeticError, NotImplementedError, InvalidDicomError, BytesLengthException, zlib.error),
)
# Longer values of the attributes that are read here are no values of theirs.
_MOST_BYTES: Final = 1024
_DELIMITERS: Final = set(b"\r\n\t\f\\")
# Spaces, and the zero bytes of files that pad text with them.
_PADDING: Final = " \t\r\n\f\v\0"
_DAY: Final = re.compile(r"(\d{4})([-./]?)(\d{2})\2(\d{2})")
_AGE: Final = re.compile(r"(\d{1,3})\s*([YMWD]?)")
_DAYS: Final = {"Y": 365.25, "M": 30.4375, "W": 7.0, "D": 1.0}
OLDEST: Final = 90
_IMPOSSIBLE: Final = 130
_UID: Final = re.compile(r"(?=.{1,64}\Z)[0-9]+(\.[0-9]+)*")
_UIDS: Final = {"study": "StudyInstanceUID", "series": "SeriesInstanceUID", "sop": "SOPInstanceUID"}
_DATES: Final = ("StudyDate", "SeriesDate", "AcquisitionDate", "AcquisitionDateTime", "ContentDate")
_MODIFIED: Final = "LongitudinalTemporalInformationModified"
_DIRECTION: Final = re.compile(r"[LRAPHF]{1,3}")
_SIDES: Final = {"L": "L", "R": "R", "LEFT": "L", "RIGHT": "R"}
_SIDE_CODES: Final = {"7771000": "L", "24028007": "R", "G-A101": "L", "G-A100": "R"}
_SEXES: Final = ("M", "F", "O")


def text_of(dataset: Dataset, keyword: str) -> str:
    """Return an attribute as text without its padding; "" where it has no value that is text."""
    element = _element(dataset, keyword)
    if element is None or element.VR == "SQ":
        return ""
    value = element.value
    if isinstance(value, bytes):
        if len(value) > _MOST_BYTES:
            return ""
        try:
            return decode_bytes(value, _encodings(dataset), _DELIMITERS).strip(_PADDING)
        except (LookupError, UnicodeError):
            return value.decode("latin-1").strip(_PADDING)
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = "\\".join(map(str, value))
    return "" if value is None else str(value)[:_MOST_BYTES].strip(_PADDING)


def values_of(dataset: Dataset, keyword: str) -> list[str]:
    """Return the values of an attribute without their padding; the empty ones are left out."""
    stripped = (value.strip(_PADDING) for value in text_of(dataset, keyword).split("\\"))
    return [value for value in stripped if value]


def items_of(dataset: Dataset, keyword: str) -> Iterator[Dataset]:
    """Give the items of a sequence; none where it is missing, damaged, or not a sequence."""
    try:
        element = dataset.get(Tag(keyword))
    except UNREADABLE:
        return
    if element is not None and element.VR == "SQ":
        yield from element.value or ()


def patient_ids(dataset: Dataset) -> tuple[str, ...]:
    """Return all ids of the patient, Patient ID first."""
    others = (text_of(item, "PatientID") for item in items_of(dataset, "OtherPatientIDsSequence"))
    given = (text_of(dataset, "PatientID"), *values_of(dataset, "OtherPatientIDs"), *others)
    return tuple(dict.fromkeys(filter(None, given)))


def uid_of(dataset: Dataset, keyword: str) -> str:
    """Return a unique identifier; "" where there is none, or none of valid form."""
    uid = text_of(dataset, keyword)
    return uid if _UID.fullmatch(uid) else ""


def day_of(dataset: Dataset, keyword: str) -> datetime.date | None:
    """Return a date or the day of a time; dates of 1993's form, 2024.01.31, count."""
    match = _DAY.match(text_of(dataset, keyword))
    try:
        return None if match is None else datetime.date(int(match[1]), int(match[3]), int(match[4]))
    except ValueError:
        return None


def age_of(dataset: Dataset, day: datetime.date | None) -> int | None:
    """Return the age in whole years, 90 for 90 and above, stated or on the study's day; None if unknown."""
    match, years = _AGE.fullmatch(text_of(dataset, "PatientAge").upper()), None
    if match is not None:
        years = int(int(match[1]) * _DAYS[match[2] or "Y"] / _DAYS["Y"] + 1e-9)
    # Devices write 000Y for "not known".
    if not years and day is not None and (born := day_of(dataset, "PatientBirthDate")) is not None:
        years = day.year - born.year - ((day.month, day.day) < (born.month, born.day))
    return None if years is None or not 0 <= years <= _IMPOSSIBLE else min(years, OLDEST)


def _element(dataset: Dataset, keyword: str) -> DataElement | RawDataElement | None:
    """Return an element as it was read; None where it is missing, or its value cannot be read."""
    try:
        element = dataset.get_item(Tag(keyword))
    except UNREADABLE:
        return None
    return element if isinstance(element, (DataElement, RawDataElement)) else None


def _encodings(dataset: Dataset) -> list[str]:
    element = _element(dataset, "SpecificCharacterSet")
    value = None if element is None else element.value
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    texts = text.split("\\") if isinstance(text, str) else text
    names = list(map(str, texts)) if isinstance(texts, Iterable) else []
    # Python's search for an encoding takes no text with a zero byte.
    return convert_encodings([name.strip(_PADDING).replace("\0", "?") for name in names])


def silence_pydicom() -> None:
    """Turn off pydicom's warnings and log lines in this process; errors are raised as before."""
    logging.getLogger("pydicom").setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module=r"pydicom(\.|$)")


def read_attributes(dataset: Dataset, *, key: bytes, keep_dates: bool) -> dict[str, MetadataValue]:
    """Return the metadata of an image; attributes without a usable value are left out.

    The key is the secret for the hashes of patient and accession number, and for the shift of dates: without
    `keep_dates`, the date of the study is moved back by the patient's shift.
    """
    silence_pydicom()
    days = (day_of(dataset, keyword) for keyword in _DATES)
    day = next((day for day in days if day is not None), None)
    shown = day
    if day is not None and not keep_dates:
        # Without a patient, the images of a study move together.
        shift = shift_days(key, text_of(dataset, "PatientID") or text_of(dataset, "StudyInstanceUID"))
        shown = day - datetime.timedelta(days=shift) if day.toordinal() > shift else None
    hashes = tuple(keyed_hash(key, "patient", patient) for patient in patient_ids(dataset))
    patient = hashes[0] if text_of(dataset, "PatientID") else None
    accession, modality = text_of(dataset, "AccessionNumber"), text_of(dataset, "Modality").upper()
    sex = text_of(dataset, "PatientSex").upper()[:1]
    directions = [value.upper() for value in values_of(dataset, "PatientOrientation")]
    is_oriented = len(directions) == 2 and all(map(_DIRECTION.fullmatch, directions))
    makers = re.findall(r"[^\W\d_]+", text_of(dataset, "Manufacturer"))
    values: dict[str, MetadataValue | None] = {
        **{name: uid_of(dataset, keyword) for name, keyword in _UIDS.items()},
        "patient": patient,
        "other_patients": tuple(other for other in hashes if other != patient),
        "accession": keyed_hash(key, "accession", accession) if accession else None,
        "modality": modality if modality in MODALITIES else None,
        "view": _known_words(text_of(dataset, "ViewPosition"), _VIEW_WORDS)
        or _known_code(_codes(dataset, "ViewCodeSequence"), _VIEW_CODES),
        "laterality": _laterality(dataset),
        "orientation": "\\".join(directions) if is_oriented else None,
        "sex": sex if sex in _SEXES else None,
        "date": None if shown is None else shown.isoformat(),
        "body_part": _known_words(text_of(dataset, "BodyPartExamined"), _BODY_WORDS)
        or _known_code(_codes(dataset, "AnatomicRegionSequence"), _BODY_CODES),
        "manufacturer": " ".join(word for word in makers if word.upper() in _MAKER_WORDS),
    }
    known: dict[str, MetadataValue] = {name: value for name, value in values.items() if value}
    if "date" in known:
        # Somebody else may have shifted it before.
        known["date_shifted"] = not keep_dates or text_of(dataset, _MODIFIED).upper() == "MODIFIED"
    # An age of 0 is known.
    if (age := age_of(dataset, day)) is not None:
        known["age"] = age
    return known


def _laterality(dataset: Dataset) -> str | None:
    groups = items_of(dataset, "SharedFunctionalGroupsSequence")
    frames = [item for group in groups for item in items_of(group, "FrameAnatomySequence")]
    texts = [text_of(dataset, "ImageLaterality"), text_of(dataset, "Laterality")]
    texts += [text_of(frame, "FrameLaterality") for frame in frames]
    stated = _known_code(map(str.upper, texts), _SIDES)
    regions = items_of(dataset, "AnatomicRegionSequence")
    codes = (code for item in regions for code in _codes(item, "AnatomicRegionModifierSequence"))
    return stated or _known_code(codes, _SIDE_CODES)


def _codes(dataset: Dataset, keyword: str) -> Iterator[str]:
    for item in items_of(dataset, keyword):
        yield text_of(item, "CodeValue")


def _known_code(codes: Iterable[str], known: Mapping[str, str]) -> str | None:
    return next((known[code] for code in codes if code in known), None)


def _known_words(text: str, known: frozenset[str]) -> str | None:
    words = dict.fromkeys(re.findall(r"[^\W\d_]+", text.upper()))
    return " ".join(word for word in words if word in known) or None


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _by_code(text: str) -> dict[str, str]:
    """Return names by code, of a table such as "AP 399348003 R-10206, PA 272479007"."""
    rows = (row.split() for row in text.split(","))
    return {code: name for name, *codes in rows for code in codes}


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
_VIEW_CODES: Final = _by_code(
    "AP 399348003 R-10206, PA 272479007 R-10214 R-40888, LL 399173006 R-10236, RL 399198007 R-10232, "
    "LAT 399067008 R-102CD, FRONTAL 399033003 R-10202, LAO 399135007 R-10220, "
    "RAO 399356000 R-10222 R-40985, LPO 399006002 R-10212, RPO 399038007 R-10210, CC 399162004 R-10242, "
    "MLO 399368009 R-10226, ML 399260004 R-10224, LM 399352003 R-10228, LMO 399099002 R-10230, "
    "DORSOPLANTAR 399335002 R-102C4, PLANTODORSAL 399071006 R-102C3"
)

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
_BODY_CODES: Final = _by_code(
    "CHEST 51185008 T-D3000, ABDOMEN 818981001 818983003 113345001 T-D4000, "
    "PELVIS 816092008 12921003 T-D6000, SKULL 89546000 T-11100, HEAD 69536005 T-D1100, "
    "NECK 45048000 T-D1600, SPINE 421060004 T-11500, CSPINE 122494005 T-11501, TSPINE 122495006 T-11502, "
    "LSPINE 122496007 T-11503, SHOULDER 16982005 T-D2220, HUMERUS 85050009 T-12410, ELBOW 16953009 T-15430, "
    "FOREARM 14975008 T-D8500, WRIST 74670003 T-15460, HAND 85562004 T-D8700, FINGER 7569003 T-D8800, "
    "HIP 24136001 T-15710, FEMUR 71341001 T-12710, KNEE 72696002 T-D9200, TIBIA 12611008 T-12740, "
    "ANKLE 70258002 T-15750, FOOT 56459004 T-D9700, TOE 29707007 T-D9800, BREAST 76752008 T-04000, "
    "RIB 113197003 T-11300"
)

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
