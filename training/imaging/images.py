"""Decodes untrusted image files: the header is checked before any pixel is decoded."""

import io
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops
from PIL.ExifTags import Base as Tag
from PIL.ImageFile import ImageFile as OpenedImage
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from training.common.errors import ImageError, ImageTooLargeError
from training.common.record import BLANK_FIELD, PICTURE_FIELDS, PREVIEW_FIELD, TRUNCATED_FIELD
from training.imaging.colour import is_blank, lay_on_ground, spread, to_srgb
from training.imaging.depth import DeepImage, Levels, split_bands, to_eight_bits
from training.imaging.formats import (
    MEDIA_TYPES,
    OPENERS,
    check_size,
    check_structure,
    count_gif_frames,
    count_tiff_pages,
    megapixels,
    sniff_format,
    stated_sizes,
)
from training.imaging.jpeg import check_jpeg, ended, read_deep_jpeg, with_end
from training.imaging.png import EXIF_MARKS, clean_png, read_deep_png
from training.imaging.tiff import (
    check_tiles,
    first_page,
    number,
    open_page,
    read_deep_tiff,
    read_tags,
)
from training.imaging.window import Window

if TYPE_CHECKING:
    from training.imaging.dicom.picture import DicomImage

# To be raised when decoding gives other pixels of the same file: what was made of them is made anew.
PIXELS_VERSION: Final = 7

# Turns by the orientation of EXIF data.
_TURNS: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_ON_ITS_SIDE: Final = range(5, 9)
# Frames that are looked at for one that is not blank, and the pixels of all of them.
_MOST_FRAMES: Final = 16
_MOST_FRAME_PIXELS: Final = 100_000_000
# Pillow's mode of 16 bits in grey, which a later frame of a PNG may have.
_DEEP_GREY: Final = "I;16"
# Pillow's words for its error code -9.
_OUT_OF_MEMORY: Final = "out of memory"
_TRUNCATED: Final = "truncated"
NO_DICOM: Final = "DICOM files are not taken here: the setting RECOQUEST_RADIOLOGY=true takes them."


@dataclass(frozen=True)
class ImageLimits:
    """Limits of an image.

    Attributes:
        max_bytes: Size of the file.
        max_pixels: Width times height, as the header states them; of a JPEG that is decoded at a part of its
            size, those of the part.
        max_frames: Frames of an animation or pages of a TIFF.
        max_scans: Passes of a progressive JPEG; each costs a walk over all its pixels.
        accept_truncated: Whether a JPEG whose end is missing is decoded as far as it goes.
        checksums: Whether a PNG with a wrong checksum in what its picture needs is refused.
        dicom: Whether DICOM files are taken.
    """

    max_bytes: int = 20 * 1024 * 1024
    max_pixels: int = 50_000_000
    max_frames: int = 1_000
    max_scans: int = 100
    accept_truncated: bool = False
    checksums: bool = True
    dicom: bool = True

    @property
    def max_dicom_bytes(self) -> int:
        """Size of a DICOM file: most have two bytes for each pixel, no compression, and a header."""
        return max(self.max_bytes, 2 * self.max_pixels + (1 << 20))


@dataclass(frozen=True)
class ImageHeader:
    """The header of an image file, before any rotation that its EXIF data asks for."""

    format: str
    width: int
    height: int
    frames: int

    @property
    def media_type(self) -> str:
        """Media type of the format."""
        return MEDIA_TYPES[self.format]


@dataclass(frozen=True)
class DecodedImage:
    """The picture of an image file.

    Attributes:
        header: Header of the file.
        width, height: Size of the upright picture.
        pixels: 8-bit RGB, upright; fewer where the file was decoded at a part of its size.
        blank: Whether the picture has one colour.
        truncated: Whether the end of the file is missing.
        levels: Stored values of more than 8 bits, where no window was given.
        preview_skipped: Whether pages ahead of it are marked as thumbnails.
    """

    header: ImageHeader
    width: int
    height: int
    pixels: Image.Image
    blank: bool = False
    truncated: bool = False
    levels: Levels | None = None
    preview_skipped: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """The `PICTURE_FIELDS` that are true of the picture."""
        flags = {
            BLANK_FIELD: self.blank,
            TRUNCATED_FIELD: self.truncated,
            PREVIEW_FIELD: self.preview_skipped,
        }
        return tuple(filter(flags.__getitem__, PICTURE_FIELDS))


@dataclass
class _File:
    """An image file whose header was checked.

    Attributes:
        content: The file, a PNG without the chunks that are ignored.
        profile: Profile of a PNG.
        image: Opened by Pillow; None for what it does not read, for a TIFF, whose frames are opened one by
            one, and once the only frame is decoded, so that its pixels can be freed.
        first: The first frame; a TIFF may have thumbnails ahead of it.
    """

    content: bytes
    header: ImageHeader
    profile: bytes | None = None
    image: OpenedImage | None = None
    first: int = 0
    dicom: "DicomImage | None" = None


def read_header(
    source: bytes | Path, limits: ImageLimits | None = None, min_side: int | None = None
) -> ImageHeader:
    """Read format, size and number of frames without decoding a pixel; arguments as of `decode_whole`.

    Raises:
        ImageTooLargeError: The file, its pixels or its frames are over the limits.
        ImageError: It is not an image of a format that can be read.
    """
    limits = limits or ImageLimits()
    return _open(*read_file(source, limits), limits, min_side).header


def decode_image(
    source: bytes | Path, limits: ImageLimits | None = None, min_side: int | None = None
) -> Image.Image:
    """Decode the picture of a file to 8-bit RGB, upright, as `decode_whole` does."""
    return decode_whole(source, limits, min_side).pixels


def decode_whole(
    source: bytes | Path,
    limits: ImageLimits | None = None,
    min_side: int | None = None,
    window: Window | None = None,
    frame: int | None = None,
) -> DecodedImage:
    """Read the header and decode the first frame that is not blank to 8-bit RGB, upright and in sRGB.

    Transparent pixels are laid on white, or on black where all that can be seen is nearly white. Samples of
    more than 8 bits are spread over the grey levels as a DICOM file asks for, else by `find_range`, all
    colours alike.

    Args:
        source: The bytes of a file, or its path.
        limits: What the image may cost.
        min_side: Both sides of the result need no more pixels than this. A larger JPEG is then decoded at
            1/2, 1/4 or 1/8 of its size, which is many times faster; other formats keep their size.
        window: Stored values that are spread over the grey levels: of a DICOM file, values after its modality
            transform, such as Hounsfield units. None: as the file or its values suggest.
        frame: Number of the frame, from 1; None: the first that is not blank, of a DICOM file the first.

    Raises:
        ImageTooLargeError: The file, its parts, its pixels or its frames are over the limits.
        ImageError: It is not an image of a format that can be read, is damaged, or has no such frame.
        MemoryError: The process may not have as much memory as decoding takes.
    """
    limits = limits or ImageLimits()
    return decode_content(*read_file(source, limits), limits, min_side, window, frame)


def decode_content(
    content: bytes,
    format_name: str,
    limits: ImageLimits,
    min_side: int | None = None,
    window: Window | None = None,
    frame: int | None = None,
) -> DecodedImage:
    """Decode what `read_file` has read, as `decode_whole` does."""
    file = _open(content, format_name, limits, min_side)
    if frame is not None:
        if not 1 <= frame <= file.header.frames:
            raise ImageError(f"There is no frame {frame:,}: the image has {file.header.frames:,}.")
        return _decode(file, frame - 1, limits, min_side, window)
    first = _decode(file, file.first, limits, min_side, window)
    # Each frame of a DICOM image is an image of its own.
    if not first.blank or file.header.frames == 1 or file.dicom is not None:
        return first
    # The opened file is the canvas of all its frames.
    first = replace(first, pixels=first.pixels.copy())
    most = min(file.header.frames, _MOST_FRAMES, _MOST_FRAME_PIXELS // (first.width * first.height))
    for later in range(file.first + 1, file.first + most):
        try:
            decoded = _decode(file, later, limits, min_side, window)
        except ImageError:
            break
        if not decoded.blank:
            return decoded
    return first


def to_planes(picture: Image.Image) -> NDArray[np.uint8]:
    """A picture of RGB as (3, H, W)."""
    return np.array(np.asarray(picture).transpose(2, 0, 1), order="C")


def read_file(source: bytes | Path, limits: ImageLimits) -> tuple[bytes, str]:
    """Return the bytes of an image file and the name of its format, by size and signature alone.

    Raises:
        ImageTooLargeError: The file has more bytes than the limit.
        ImageError: It cannot be read, is empty, is no image of a format that can be read, or is DICOM where
            this is not taken.
    """
    if isinstance(source, Path):
        path = source
        try:
            about = path.stat()
            if not stat.S_ISREG(about.st_mode):
                raise ImageError(f"{path} is not a file.")
            # Whether it is DICOM, the first bytes tell.
            if about.st_size > limits.max_dicom_bytes:
                raise _too_many_bytes(about.st_size, limits.max_dicom_bytes)
            source = path.read_bytes()
        except FileNotFoundError:
            raise ImageError(f"There is no image file {path}.") from None
        except OSError as error:
            raise ImageError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not source:
        raise ImageError("The image file is empty.")
    name = sniff_format(source)
    if name == "DICOM" and not limits.dicom:
        raise ImageError(NO_DICOM)
    most = limits.max_dicom_bytes if name == "DICOM" else limits.max_bytes
    if len(source) > most:
        raise _too_many_bytes(len(source), most)
    return source, name


def _too_many_bytes(size: int, most: int) -> ImageTooLargeError:
    return ImageTooLargeError(
        f"The image file has {size / 1e6:,.1f} MB; the limit is {most / 1e6:,.1f} MB "
        "(RECOQUEST_MAX_IMAGE_BYTES)."
    )


def _open(content: bytes, name: str, limits: ImageLimits, min_side: int | None) -> _File:
    with _naming_damage(f"The header of the {name} image is damaged", limits):
        if name == "DICOM":
            # Few installations take such files.
            from training.imaging.dicom.picture import open_dicom

            dicom = open_dicom(content, limits.max_dicom_bytes, limits.max_pixels)
            layout = dicom.attributes
            header = ImageHeader(name, layout.columns, layout.rows, layout.frames)
            return _File(content, header, dicom=dicom)
        if name == "JPEG":
            deep = check_jpeg(content, limits.max_scans)
            if deep is not None:
                check_size(deep.width, deep.height, limits.max_pixels)
                return _File(content, ImageHeader(name, deep.width, deep.height, 1))
        else:
            check_structure(content, name)
            for size in stated_sizes(content, name):
                check_size(*size, limits.max_pixels)
        if name == "TIFF":
            frames = _bounded_frames(count_tiff_pages(content, limits.max_frames), limits)
            first = first_page(content, frames)
            tags = read_tags(content, first)
            _check_page(tags, limits)
            size = number(tags, Tag.ImageWidth, 0), number(tags, Tag.ImageLength, 0)
            return _File(content, ImageHeader(name, *size, frames), first=first)
        profile = None
        if name == "PNG":
            content, profile = clean_png(content, checked=limits.checksums)
        image = OPENERS[name](io.BytesIO(content))
        size = image.size
        # A progressive one is kept whole, at whatever size it is decoded.
        if min_side is not None and not image.info.get("progressive"):
            image.draft(None, (min_side, min_side))
        is_too_large = image.size[0] * image.size[1] > limits.max_pixels
        check_size(*size, limits.max_pixels if is_too_large else size[0] * size[1])
        is_gif = name == "GIF"
        frames = count_gif_frames(content, limits.max_frames) if is_gif else getattr(image, "n_frames", 1)
        frames = _bounded_frames(frames, limits)
        return _File(content, ImageHeader(name, *size, frames), profile, image)


def _bounded_frames(frames: int, limits: ImageLimits) -> int:
    if frames > limits.max_frames:
        raise ImageTooLargeError(f"The image has more than {limits.max_frames} frames.")
    return frames


@contextmanager
def _naming_damage(what: str, limits: ImageLimits) -> Iterator[None]:
    """Raise what decoders raise for damaged files as an ImageError with a sentence."""
    try:
        yield
    except (ImageError, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageTooLargeError(f"The image has over {megapixels(limits.max_pixels)}, the limit.") from error
    except Exception as error:
        if _OUT_OF_MEMORY in str(error):
            raise MemoryError from error
        raise ImageError(f"{what}: {_reason(error)}.") from error


def _check_page(tags: ImageFileDirectory_v2, limits: ImageLimits) -> None:
    check_size(number(tags, Tag.ImageWidth, 0), number(tags, Tag.ImageLength, 0), limits.max_pixels)
    check_tiles(tags, limits.max_pixels)


def _decode(
    file: _File, frame: int, limits: ImageLimits, min_side: int | None, window: Window | None
) -> DecodedImage:
    header = file.header
    with _naming_damage(f"The {header.format} image is damaged", limits):
        is_paged = header.format == "TIFF"
        loaded = _load_page(file, frame, limits) if is_paged else _load(file, frame, min_side)
        truncated = False
        if loaded is None:
            mended = with_end(file.content)
            truncated = mended is None
            if truncated and not limits.accept_truncated:
                raise ImageError("The JPEG image is damaged: image file is truncated, its end is missing.")
            # libjpeg fills what is missing before a marker of the end.
            content = mended or ended(file.content)
            loaded = _load(_File(content, header, image=OPENERS["JPEG"](io.BytesIO(content))), 0, min_side)
            if loaded is None:
                raise ImageError(
                    "The JPEG image is damaged: image file is truncated, and nothing of it is left."
                )
        image, orientation, profile = loaded
        # Deep samples take more memory than the pixels.
        del loaded
        levels, is_deep = None, isinstance(image, DeepImage)
        if isinstance(image, DeepImage):
            image, levels = to_eight_bits(image, window)
        # A JPEG may have been decoded at a part of its size.
        width, height = (header.width, header.height) if header.format == "JPEG" else image.size
        if orientation in _TURNS:
            image = image.transpose(_TURNS[orientation])
            if orientation in _ON_ITS_SIDE:
                width, height = height, width
        if profile is not None or image.mode != "RGB" or "transparency" in image.info:
            image = to_srgb(image, profile)
        if window is not None and not is_deep:
            image = spread(image, window)
        pixels = image if image.mode == "RGB" else lay_on_ground(image)
        return DecodedImage(
            header, width, height, pixels, is_blank(pixels), truncated, levels, file.first > 0
        )


# A frame with all of its bits, its orientation and its profile.
_Loaded = tuple[Image.Image | DeepImage, int, bytes | None]


def _load(file: _File, frame: int, min_side: int | None) -> _Loaded | None:
    """Decode a frame; None: the end of a JPEG is missing."""
    if file.dicom is not None:
        return file.dicom.decode(frame), 1, None
    image, name = file.image, file.header.format
    if image is None:
        return read_deep_jpeg(file.content), 1, None
    if file.header.frames == 1:
        file.image = None
    if name == "PNG" and frame == 0 and (deep := read_deep_png(file.content)):
        # To look for an orientation, Pillow may decode all of the file.
        is_turned = any(mark in file.content for mark in EXIF_MARKS)
        return deep, read_orientation(image) if is_turned else 1, file.profile
    if min_side is not None:
        image.draft(None, (min_side, min_side))
    if frame:
        image.seek(frame)
    try:
        image.load()
    except OSError as error:
        if name == "JPEG" and _TRUNCATED in str(error):
            return None
        raise
    profile = file.profile or image.info.get("icc_profile")
    orientation = read_orientation(image)
    if image.mode == _DEEP_GREY:
        samples = np.asarray(image)[..., None]
        return DeepImage(*image.size, 1, lambda: split_bands(samples)), orientation, profile
    if name == "JPEG" and image.mode == "CMYK" and "adobe" not in image.info:
        # Pillow takes all inks for inverted; they are where Adobe's marker says so.
        return ImageChops.invert(image), orientation, profile
    return image, orientation, profile


def _load_page(file: _File, page: int, limits: ImageLimits) -> _Loaded:
    """Decode a page of a TIFF."""
    tags = read_tags(file.content, page)
    _check_page(tags, limits)
    value = tags.get(Tag.InterColorProfile)
    profile = value if isinstance(value, bytes) else None
    deep = read_deep_tiff(file.content, page, tags, limits.max_pixels)
    if deep is not None:
        return deep, number(tags, Tag.Orientation, 1), profile
    image = open_page(file.content, page, tags)
    image.load()
    # Pillow has turned it.
    return image, 1, profile


def _reason(error: Exception) -> str:
    """The words of a decoder, as the end of a sentence."""
    words = " ".join(str(error).split()) or type(error).__name__
    if words == "not identified by this driver":
        return "it gives no size"
    return words.rstrip(".")


def read_orientation(image: Image.Image) -> int:
    """Return the orientation by EXIF or XMP data; 1 where there is none, or it is damaged."""
    if image.format in ("AVIF", "HEIF"):
        # Pillow gives their own turns as EXIF data, and would take XMP data without these for one.
        image.info.pop("xmp", None)
    try:
        orientation = image.getexif().get(Tag.Orientation, 1)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - Pillow raises whatever a damaged block leads to; the pixels are whole
        return 1
    return orientation if isinstance(orientation, int) else 1
