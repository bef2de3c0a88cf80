"""Films of an instance: one for each frame, with the UIDs and the group of their records."""

import hashlib
from collections.abc import Iterator, Mapping

from training.data.decoding.dicom.picture import DicomImage
from training.data.decoding.images import ImageLimits, decode_whole
from training.data.dicom.burned_text import as_grey, find_text
from training.data.dicom.elements import UNREADABLE
from training.data.dicom.films import write_film
from training.data.dicom.pseudonyms import keyed_hash
from training.data.record import MetadataValue
from training.errors import ImageError


def with_uid(metadata: Mapping[str, MetadataValue], content: bytes) -> Mapping[str, MetadataValue]:
    """Return metadata with the UID of its instance: one of the file's content where there is no valid one."""
    if "sop" in metadata:
        return metadata
    return {**metadata, "sop": f"2.25.{int.from_bytes(hashlib.sha256(content).digest()[:16])}"}


def group_of(metadata: Mapping[str, MetadataValue], key: bytes) -> str:
    """Return the pseudonym of the patient, else of the study, else of the instance: these stay together."""
    return str(
        metadata.get("patient") or keyed_hash(key, "study", str(metadata.get("study") or metadata["sop"]))
    )


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


def look_at(film: bytes, limits: ImageLimits) -> tuple[str, bool]:
    """Decode a film, and return where there seems to be text on it, as `find_text` does.

    Returns:
        The place of the text, and whether the film's window or table shows nothing of its picture.

    Raises:
        ImageTooLargeError: The film exceeds the limits.
        ImageError: The film cannot be decoded.
    """
    decoded = decode_whole(film, limits)
    is_unfit = decoded.levels is not None and decoded.levels.unfit
    grey = as_grey(decoded.pixels)
    # The search for text needs the memory of the pixels.
    del decoded
    return find_text(grey), is_unfit
