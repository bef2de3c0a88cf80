"""Drawn radiographs as DICOM files as an archive has them, to try the way from an archive to a search."""

from pathlib import Path
from typing import Final

from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian, generate_uid

from training.common.manifest import read_manifest
from training.common.record import Record

# Edge of a drawn chest in millimetres.
_EDGE: Final = 400


def write_dicom_files(radiographs: Path, out: Path, *, seed: int) -> None:
    """Write each film of a folder of drawn radiographs as a study of its own into a new folder.

    The reports are left out.
    """
    out.mkdir()
    for number, record in enumerate(read_manifest(radiographs).records):
        with Image.open(radiographs / record.image) as picture:
            film = _film(record, number, picture.convert("L"), seed)
        film.save_as(out / f"{record.id}.dcm", enforce_file_format=True)


def _film(record: Record, number: int, picture: Image.Image, seed: int) -> Dataset:
    view = "LL" if record.metadata["view"] == "LATERAL" else record.metadata["view"]
    film = Dataset()
    film.SOPClassUID = DigitalXRayImageStorageForPresentation
    for keyword in ("SOPInstanceUID", "SeriesInstanceUID", "StudyInstanceUID"):
        sources = ["recoquest sample data", str(seed), record.id, keyword]
        setattr(film, keyword, generate_uid(entropy_srcs=sources))
    film.PatientID, film.PatientName = record.group, f"Drawn^{record.group}"
    film.PatientBirthDate, film.PatientSex = "", record.metadata["sex"]
    film.PatientAge = f"{record.metadata['age']:03}Y"
    film.StudyDate = f"{record.metadata['year']}{number % 12 + 1:02}{number % 28 + 1:02}"
    film.StudyTime, film.StudyID, film.AccessionNumber = "120000", str(number), f"DRAWN{number}"
    film.ReferringPhysicianName, film.Manufacturer = "", "Drawn"
    film.Modality, film.BodyPartExamined, film.ViewPosition = "DX", "CHEST", view
    film.SeriesNumber, film.InstanceNumber, film.ImageType = 1, 1, ["ORIGINAL", "PRIMARY"]
    film.BurnedInAnnotation, film.PresentationLUTShape = "NO", "IDENTITY"
    film.SamplesPerPixel, film.PhotometricInterpretation = 1, "MONOCHROME2"
    film.Columns, film.Rows = picture.size
    film.ImagerPixelSpacing = [round(_EDGE / film.Rows, 4), round(_EDGE / film.Columns, 4)]
    film.BitsAllocated, film.BitsStored, film.HighBit, film.PixelRepresentation = 8, 8, 7, 0
    film.WindowCenter, film.WindowWidth = "128", "256"
    film.PixelData = picture.tobytes() + b"\0" * (film.Rows * film.Columns % 2)
    film["PixelData"].VR = "OB"
    film.file_meta = FileMetaDataset()
    film.file_meta.MediaStorageSOPClassUID = film.SOPClassUID
    film.file_meta.MediaStorageSOPInstanceUID = film.SOPInstanceUID
    film.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    return film
