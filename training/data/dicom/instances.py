"""Films of an instance: one for each frame, with the UIDs and the group of their records."""

from collections.abc import Iterator, Mapping

from training.data.decoding.dicom.picture import DicomImage
from training.data.decoding.images import ImageLimits, decode_whole
from training.data.dicom.burned_text import as_grey, find_text
from training.data.dicom.elements import UNREADABLE
from training.data.dicom.films import write_film
from training.data.dicom.pseudonyms import keyed_hash
from training.data.record import MetadataValue
from training.errors import ImageError


def missing_uid(metadata: Mapping[str, MetadataValue]) -> str:
    """Return "instance" or "study", of which metadata has no UID; "" where both are there."""
    return next((name for key, name in (("sop", "instance"), ("study", "study")) if key not in metadata), "")


def group_of(metadata: Mapping[str, MetadataValue], key: bytes) -> str:
    """Return the pseudonym of the patient; without a patient, the films of a study stay together."""
    return str(metadata.get("patient") or keyed_hash(key, "study", str(metadata["study"])))


def write_films(
    image: DicomImage,
    metadata: Mapping[str, MetadataValue],
    sop_class: str,
    most_frames: int,
    *,
    looked_at: bool = False,
) -> Iterator[bytes]:
    """Give the film of each frame in order.

    Args:
        image: The image as it came.
        metadata: As `read_attributes` returns it.
        sop_class: UID of the image's SOP class; "": it is not known.
        most_frames: Number of the first frames to write.
        looked_at: Whether a person took it from quarantine.

    Raises:
        ImageTooLargeError: A frame has more parts than any program writes.
        ImageError: One is damaged, or cannot be read.
    """
    for frame in range(min(image.attributes.frames, most_frames)):
        try:
            film = write_film(image, range(frame, frame + 1), metadata, sop_class, looked_at=looked_at)
        except UNREADABLE:
            raise ImageError("The DICOM image is damaged: its attributes or pixels cannot be read.") from None
        yield film


def find_text_on(film: bytes, limits: ImageLimits) -> str:
    """Decode a film, and return where there seems to be text on it, as `find_text` does.

    Raises:
        ImageTooLargeError: The film exceeds the limits.
        ImageError: The film cannot be decoded.
    """
    return find_text(as_grey(decode_whole(film, limits).pixels))
