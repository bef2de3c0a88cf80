"""Indiana University's radiographs as Open-i gives them: an XML file a report, with the ids of its images."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from training.data.readers.common.image_files import ImageFiles
from training.data.readers.common.reports import Report, make_report
from training.data.readers.common.splits import draw_split
from training.data.readers.listing import Listing
from training.data.record import Record
from training.data.rejections import LeftOut, Rejection
from training.errors import DataError

_PLACES: Final = ("ecgen-radiology", "NLMCXR_reports/ecgen-radiology", "NLMCXR_reports", "")
_SUFFIXES: Final = (".png", ".jpg", ".dcm.png", "")
_LARGEST: Final = 1 << 20


@dataclass(frozen=True)
class _Study:
    uid: str
    report: Report
    mesh: tuple[str, ...]
    images: tuple[str, ...]


def find_open_i(source: Path) -> Path | None:
    """The folder of XML files in `source`, if there is one."""
    places = (source / place for place in _PLACES)
    return next((folder for folder in places if next(folder.glob("*.xml"), None) is not None), None)


def list_open_i(folder: Path, images: Path) -> Listing:
    """List the images that the XML files name as parentImage.

    Raises:
        DataError: None of the files names an image.
    """
    paths = sorted(folder.glob("*.xml"), key=lambda path: (len(path.name), path.name))
    read = [(path, _read_study(path)) for path in paths]
    alone = sum(isinstance(study, _Study) and not study.images for _, study in read)
    total = sum(len(study.images) if isinstance(study, _Study) else 1 for _, study in read)
    if not any(isinstance(study, _Study) and study.images for _, study in read):
        raise DataError(f"None of the XML files in {folder} names an image as parentImage; is it Open-i's?")
    files = ImageFiles(images)
    return Listing(
        folder,
        images,
        total,
        _items(read, files),
        "image",
        left_out=[LeftOut("reports without an image", alone)] if alone else [],
        files=files.paths(),
    )


def _items(read: list[tuple[Path, _Study | str]], files: ImageFiles) -> Iterator[Record | Rejection]:
    number = 0
    for path, study in read:
        if isinstance(study, str):
            number += 1
            yield Rejection(number, study, path.name)
            continue
        for name in study.images:
            number += 1
            candidates = (files.find(name + suffix) for suffix in _SUFFIXES)
            image = next((found for found in candidates if found is not None), None)
            if image is None:
                yield Rejection(number, files.why_not(f"{name}.png"), path.name)
                continue
            yield Record(
                id=name,
                image=image,
                split=draw_split(study.uid),
                texts=study.report.sentences,
                group=study.uid,
                labels=tuple(dict.fromkeys(term.split("/")[0].strip() for term in study.mesh)),
                report=study.report.text,
                metadata={"mesh": study.mesh} if study.mesh else {},
                line=number,
                table=path.name,
                drawn=True,
            )


def _read_study(path: Path) -> _Study | str:
    """The study of a file, or why it cannot be used."""
    try:
        if path.stat().st_size > _LARGEST:
            return f"it has over {_LARGEST >> 20} MiB"
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        return f"it cannot be read as XML: {error}"
    sections: dict[str, str] = {}
    for node in root.iter("AbstractText"):
        label = (node.get("Label") or "").upper()
        sections[label] = f"{sections.get(label, '')} {''.join(node.itertext())}".strip()
    uid = next((node.get("id") for node in root.iter("uId") if node.get("id")), None) or path.stem
    mesh = ("".join(node.itertext()).strip() for node in root.iter("major"))
    images = (node.get("id") for node in root.iter("parentImage"))
    return _Study(
        uid=uid,
        report=make_report({name: sections.get(name, "") for name in ("FINDINGS", "IMPRESSION")}),
        mesh=tuple(dict.fromkeys(filter(None, mesh))),
        images=tuple(dict.fromkeys(name for name in images if name)),
    )
