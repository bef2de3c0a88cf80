"""Image files full of metadata: every text in them has the word `secret` in it."""

import struct
import zlib
from collections.abc import Callable
from typing import Final

import numpy as np
from PIL import Image, ImageCms, TiffImagePlugin
from PIL.PngImagePlugin import PngInfo

from tests.image_files import encoded
from tests.index.pictures import smooth_picture

SECRET: Final = b"secret"
XMP: Final = b'<x:xmpmeta><dc:creator>secret</dc:creator><rdf:Description tiff:Orientation="3"/></x:xmpmeta>'
PROFILE: Final = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
_GPS_IFD, _EXIF_IFD = 0x8825, 0x8769


def exif(orientation: int | None = 6) -> bytes:
    """EXIF data with a position, names, serial numbers and comments."""
    made = Image.Exif()
    if orientation is not None:
        made[0x0112] = orientation
    for tag in (0x010E, 0x010F, 0x0110, 0x0131, 0x013B, 0x8298, 0x9C9C, 0x9C9D):
        made[tag] = "secret words"
    position = made.get_ifd(_GPS_IFD)
    position.update({1: "N", 2: (48.0, 12.0, 30.0), 29: "secret day"})
    details = made.get_ifd(_EXIF_IFD)
    details.update({0x9286: b"ASCII\0\0\0secret", 0xA430: "secret", 0xA431: "secret", 0x927C: b"secret note"})
    return made.tobytes()


def colours(size: tuple[int, int] = (40, 24)) -> Image.Image:
    return smooth_picture(5, size)


def deep_grey() -> Image.Image:
    values = np.linspace(0, 4095, 40 * 24).reshape(24, 40).astype(np.uint16)
    return Image.fromarray(values)


def jpeg(*, progressive: bool = False, mode: str = "RGB") -> bytes:
    content = encoded(
        colours().convert(mode),
        "JPEG",
        exif=exif(),
        comment=b"secret comment",
        icc_profile=None if mode == "CMYK" else PROFILE,
        progressive=progressive,
        xmp=XMP,
    )
    iptc = b"Photoshop 3.0\x008BIM\x04\x04\0\0\0\0\0\x06secret"
    # In front of the scan, and behind the end of the image, as phones append films.
    start = content.index(b"\xff\xdb")
    marked = b"\xff\xed" + (len(iptc) + 2).to_bytes(2) + iptc
    return content[:start] + marked + b"stray secret" + content[start:] + b"\0\0\0\x18ftypmp42 secret film"


def png(image: Image.Image | None = None, *, raw: bool = False) -> bytes:
    texts = PngInfo()
    texts.add_text("Author", "secret")
    texts.add_text("Comment", "secret " * 50, zip=True)
    texts.add_itxt("XML:com.adobe.xmp", XMP.decode(), zip=False)
    if raw:
        digits = exif().hex()
        texts.add_text("Raw profile type exif", f"\nexif\n{len(digits) // 2:8}\n{digits}\n", zip=True)
        content = encoded(image or colours(), "PNG", pnginfo=texts)
    else:
        content = encoded(image or colours(), "PNG", pnginfo=texts, exif=exif(), icc_profile=PROFILE)
    private = b"secret place"
    chunk = len(private).to_bytes(4) + b"prVt" + private + zlib.crc32(b"prVt" + private).to_bytes(4)
    return content[:-12] + chunk + content[-12:] + b"secret trailer"


def webp(*, animated: bool = False, lossless: bool = True) -> bytes:
    more = {"save_all": True, "append_images": [colours().rotate(90)]} if animated else {}
    content = encoded(colours(), "WEBP", lossless=lossless, exif=exif(), xmp=XMP, icc_profile=PROFILE, **more)
    own = b"prVt" + (6).to_bytes(4, "little") + b"secret"
    body = content[8:] + own
    return b"RIFF" + len(body).to_bytes(4, "little") + body + b"secret trailer"


def avif(*, animated: bool = False, orientation: int | None = 6) -> bytes:
    more = {"save_all": True, "append_images": [colours().rotate(90)]} if animated else {}
    data = {} if orientation is None else {"exif": exif(orientation)}
    content = encoded(colours(), "AVIF", xmp=XMP, icc_profile=PROFILE, speed=10, **data, **more)
    return content + (18).to_bytes(4) + b"uuid" + b"secret tag"


def gif() -> bytes:
    content = encoded(
        colours(), "GIF", save_all=True, append_images=[colours().rotate(180)], loop=3, comment=b"secret"
    )
    packet = b"!\xff\x0bXMP DataXMP" + b"\x06secret\0"
    head = content.index(b"!\xff\x0bNETSCAPE2.0")
    return content[:head] + packet + content[head:] + b"secret trailer"


def tiff(image: Image.Image | None = None, *, orientation: int | None = 6, **settings: object) -> bytes:
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    for tag in (269, 270, 271, 272, 285, 305, 306, 315, 316, 33432):
        tags[tag] = "secret words of some length"
    tags[700] = XMP
    tags[33723] = b"secret iptc"
    tags[34377] = b"8BIM secret"
    tags[65000] = "secret of a program of its own"
    if orientation is not None:
        tags[0x0112] = orientation
    if "compression" not in settings:
        # libtiff writes no directories of this kind.
        tags[_GPS_IFD] = {1: "N", 2: (48.0, 12.0, 30.0), 29: "secret day"}
        tags[_EXIF_IFD] = {0xA430: "secret", 0x927C: b"secret note of the maker"}
    return (
        encoded(image or colours(), "TIFF", tiffinfo=tags, icc_profile=PROFILE, **settings)
        + b"secret trailer"
    )


def sparse_tiff() -> bytes:
    """An uncompressed TIFF that lacks the sizes of its strips, with a text behind its pixels."""
    pixels = bytes(range(64))
    entries = [(256, 4, 8), (257, 4, 8), (258, 3, 8), (259, 3, 1), (262, 3, 1), (273, 4, 8), (277, 3, 1)]
    table = struct.pack("<H", len(entries))
    table += b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in entries)
    text = b"secret"
    place = 8 + len(pixels) + len(text)
    return struct.pack("<2sHI", b"II", 42, place) + pixels + text + table + bytes(4)


FILES: Final[dict[str, Callable[[], bytes]]] = {
    "jpeg": jpeg,
    "jpeg-progressive": lambda: jpeg(progressive=True),
    "jpeg-grey": lambda: jpeg(mode="L"),
    "jpeg-cmyk": lambda: jpeg(mode="CMYK"),
    "png": png,
    "png-deep": lambda: png(deep_grey()),
    "png-alpha": lambda: png(colours().convert("RGBA")),
    "png-palette": lambda: png(colours().convert("P")),
    "png-raw-profile": lambda: png(raw=True),
    "webp": webp,
    "webp-lossy": lambda: webp(lossless=False),
    "webp-animated": lambda: webp(animated=True),
    "gif": gif,
    "avif": avif,
    "avif-animated": lambda: avif(animated=True, orientation=1),
    "avif-turned-by-xmp": lambda: avif(orientation=None),
    "tiff": tiff,
    "tiff-big": lambda: tiff(big_tiff=True),
    "tiff-deep": lambda: tiff(deep_grey()),
    "tiff-lzw": lambda: tiff(compression="tiff_lzw"),
    "tiff-deflate": lambda: tiff(compression="tiff_adobe_deflate"),
    "tiff-jpeg": lambda: tiff(compression="jpeg"),
    "tiff-pages": lambda: tiff(save_all=True, append_images=[colours().rotate(90)]),
    "tiff-turned-by-xmp": lambda: tiff(orientation=None),
    "tiff-without-sizes": sparse_tiff,
}


def _box(kind: bytes, *content: bytes) -> bytes:
    body = b"".join(content)
    return (len(body) + 8).to_bytes(4) + kind + body


def avif_of(*boxes: bytes) -> bytes:
    """A file with these boxes in its directory."""
    return _box(b"ftyp", b"avif", bytes(4), b"avif") + _box(b"meta", bytes(4), *boxes)


def tiff_of_pages(pages: int, entries: int) -> bytes:
    """A TIFF of directories alone, all entries of which are empty."""
    size = 2 + 12 * entries + 4
    ends = (8 + size * (number + 1) for number in range(pages))
    tables = (struct.pack("<H", entries) + bytes(12 * entries) + struct.pack("<I", end) for end in ends)
    return struct.pack("<2sHI", b"II", 42, 8) + b"".join(tables) + bytes(6)


def _places(items: int, extents: int, *, length: int) -> bytes:
    """A list of items without a byte for each extent, all of which span the file."""
    sizes = 0x0400 if length else 0
    item = bytes(4) + extents.to_bytes(2) + length.to_bytes(4) * (extents if length else 0)
    return _box(b"iloc", bytes(4), sizes.to_bytes(2), items.to_bytes(2), item * items)


# Files that cost far more than their size, if a walk over them had no bounds.
HOSTILE: Final = {
    "padding": jpeg()[:-30] + b"\xff\xdd\0\4\0\0" + b"\xff\0" * 100_000,
    "segments": jpeg()[:-30] + b"\xff\xdd\0\4\0\0" * 5_000,
    "directories": tiff_of_pages(25, 3_000),
    "pages": tiff_of_pages(1_100, 0),
    "boxes": avif_of(*[_box(b"iprp", _box(b"ipco") * 99) for _ in range(200)]),
    "deep boxes": avif_of(_box(b"free") * 11_000),
    "extents": avif_of(_places(9_000, 60_000, length=0)),
    "whole items": avif_of(_places(100, 50, length=4_000)),
}
