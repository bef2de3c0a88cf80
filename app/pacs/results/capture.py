"""Similar cases as a secondary capture, which every archive and every viewer shows."""

from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version

from PIL import Image
from pydicom import Dataset
from pydicom.uid import SecondaryCaptureImageStorage

from app.pacs.results.objects import NOTICE, WHOSE, SourceFilm, Uids, begin_object
from app.pacs.results.sheet import SheetFilm, draw_sheet
from app.schemas.radiology.studies import SimilarHit
from index.studies.members import StudyImage

MODALITY = "OT"


def make_capture(
    source: SourceFilm,
    query: tuple[StudyImage, Image.Image],
    cases: Sequence[tuple[SimilarHit, Image.Image]],
    model: str,
    uids: Uids,
    at: datetime,
) -> Dataset:
    """Draw similar cases beside a film, on a page that names nobody.

    Args:
        source: The film in the archive.
        query: The film in the collection, and its picture.
        cases: Similar cases with their pictures.
        model: Name of the model that compared them.
        uids: UIDs of the request.
        at: Local time of the search.
    """
    image, picture = query
    known = [image.metadata.get(name) for name in ("modality", "view", "laterality", "body_part")]
    sheet = draw_sheet(
        NOTICE,
        f"recoquest {version('recoquest')}, model {model}, {at:%Y-%m-%d %H:%M}. Scores are cosines, no "
        "probabilities.",
        SheetFilm(picture, "This film", [_joined(known)]),
        [_film(number, hit, shown) for number, (hit, shown) in enumerate(cases, 1)],
    )
    made = begin_object(source, SecondaryCaptureImageStorage, MODALITY, uids, at)
    made.ConversionType = "WSD"
    made.ImageType = ["DERIVED", "SECONDARY"]
    made.BurnedInAnnotation = "YES"
    made.DerivationDescription = NOTICE
    made.SourceImageSequence = [source.reference()]
    made.PatientOrientation = made.Laterality = None
    made.DateOfSecondaryCapture, made.TimeOfSecondaryCapture = made.ContentDate, made.ContentTime
    _write_pixels(made, sheet)
    return made


def _film(number: int, hit: SimilarHit, picture: Image.Image) -> SheetFilm:
    whose = WHOSE[hit.same_patient]
    score = f"Score {hit.score:.3f}".replace("-", "−")
    return SheetFilm(
        picture,
        f"{number}. {whose}",
        [
            _joined([hit.modality, hit.view, hit.laterality, hit.age_band, hit.sex]),
            f"{score}{_distance(hit)}",
        ],
        "" if hit.sentence is None else f"“{hit.sentence.text}”",
    )


def _distance(hit: SimilarHit) -> str:
    # Shifted dates compare within a patient alone, and a day of another one may name who that is.
    if hit.same_patient is not True or hit.days is None:
        return ""
    if hit.days == 0:
        return ", the same day"
    unit, side = "day" if abs(hit.days) == 1 else "days", "before" if hit.days < 0 else "after"
    return f", {abs(hit.days):,} {unit} {side}"


def _joined(facts: Sequence[object]) -> str:
    return " · ".join(str(fact) for fact in facts if fact is not None)


def _write_pixels(made: Dataset, page: Image.Image) -> None:
    is_grey = page.mode == "L"
    made.SamplesPerPixel = 1 if is_grey else 3
    made.PhotometricInterpretation = "MONOCHROME2" if is_grey else "RGB"
    if not is_grey:
        made.PlanarConfiguration = 0
    made.Columns, made.Rows = page.size
    made.BitsAllocated = made.BitsStored = 8
    made.HighBit, made.PixelRepresentation = 7, 0
    made.PixelData = page.tobytes()
    made["PixelData"].VR = "OB"
