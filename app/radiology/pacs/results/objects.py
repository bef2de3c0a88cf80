"""DICOM objects in the study of a film: identity as the archive has it, a series of their own, and a file."""

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from typing import Any, Final
from uuid import UUID

from pydicom import Dataset
from pydicom.datadict import dictionary_VR, tag_for_keyword
from pydicom.dataset import FileMetaDataset
from pydicom.uid import UID, ExplicitVRLittleEndian

from app.radiology.pacs.dicomweb.archive import Archive, ArchiveError
from app.radiology.pacs.dicomweb.listing import items, text
from training.clinical.dicom.elements import UNREADABLE, silence_pydicom
from training.clinical.dicom.films import IMPLEMENTATION
from training.clinical.dicom.objects import MANUFACTURER

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


@dataclass(frozen=True, slots=True)
class SourceFilm:
    """A film of the archive, to whose study results are written.

    Attributes:
        study: Study Instance UID.
        series: Series Instance UID.
        sop: SOP Instance UID.
        sop_class: UID of its class.
        frame: Number of the frame that was searched with, from 1; None: the film has one.
        identity: Attributes of patient and study.
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
        OutsideHoursError: The archive may not be asked now.
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
    """Unique identifiers that are the same for the same request, so that it can be sent again.

    Args:
        seed: Text that no other request has.
    """

    def __init__(self, seed: str) -> None:
        self._seed = seed

    def of(self, name: str) -> str:
        """Return the UID of a part of the request."""
        digest = hashlib.sha256(f"{self._seed}\n{name}".encode()).digest()
        return f"2.25.{UUID(bytes=digest[:16], version=4).int}"


def begin_object(source: SourceFilm, sop_class: str, modality: str, uids: Uids, at: datetime) -> Dataset:
    """Return an object in a series of its own, in the study of a film.

    Args:
        source: The film.
        sop_class: UID of the object's class.
        modality: Its modality, which also names it.
        uids: UIDs of the request.
        at: Local time of the search.
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
