"""The layouts of data sets that `recoquest import` reads: ours, and those that other packages add.

A package adds one by an entry point of the group `recoquest.layouts` that names a `Layout`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final

from training.common.errors import DataError
from training.imaging.images import ImageLimits
from training.importing.files import refuse_file
from training.importing.listing import MOST_DECODED, Listing, write_listing
from training.importing.report import ImportReport

GROUP: Final = "recoquest.layouts"
# Loaded when they are asked for, like those of other packages.
_OWN: Final = tuple(
    EntryPoint(name, f"training.importing.{target}", GROUP)
    for name, target in (
        ("folder", "folder:FOLDER"),
        ("karpathy", "captions:KARPATHY"),
        ("coco", "captions:COCO"),
        ("mimic-cxr", "mimic_cxr:MIMIC_CXR"),
        ("chexpert", "radiographs:CHEXPERT"),
        ("chexpert-plus", "radiographs:CHEXPERT_PLUS"),
        ("nih-cxr14", "radiographs:NIH_CXR14"),
        ("padchest", "radiographs:PADCHEST"),
        ("iu-xray", "radiographs:IU_XRAY"),
        ("huggingface", "embedded:HUGGINGFACE"),
        ("webdataset", "embedded:WEBDATASET"),
        ("dicom", "dicom:DICOM"),
    )
)


@dataclass(frozen=True)
class Source:
    """A data set and the options of its import; a layout reads those that it names.

    Attributes:
        out: Folder of the manifest, if it is not that of the source.
        images: Folder of the images where it is not the layout's usual one.
        table: Table of what the images of a folder show.
        encoding: Encoding of texts and tables without a byte order mark that are not UTF-8.
        keep_unknown_texts: Keep texts of the table that stand for "not known", such as "nan".
        leave_out: Table whose patients are left out of train.
        modality: DICOM modalities that are taken in addition to those of films, such as CT.
        take_quarantined: File with SOP Instance UIDs, one a line or in the first column of a table: these are
            never quarantined.
        reports: File or folder of reports for the studies.
        key: Secret of pseudonyms and of the shifts of dates.
        limits: What an image may cost.
    """

    path: Path
    out: Path | None = None
    images: Path | None = None
    table: Path | None = None
    encoding: str | None = None
    keep_unknown_texts: bool = False
    leave_out: Path | None = None
    modality: frozenset[str] = frozenset()
    take_quarantined: Path | None = None
    reports: Path | None = None
    key: bytes = field(default=b"", repr=False)
    keep_dates: bool = False
    limits: ImageLimits = field(default_factory=ImageLimits)

    @property
    def folder(self) -> Path:
        """Folder of the manifest."""
        return self.out or (self.path if self.path.is_dir() else self.path.parent)


# Not options of a user's.
_GENERAL: Final = frozenset({"path", "out", "key", "keep_dates", "limits"})


@dataclass(frozen=True)
class Layout:
    """A layout of data sets.

    Attributes:
        name: What users call it; the entry point has the same name.
        help: What it is, in a few words.
        read: Lists the images of a source; raises a DataError where it cannot be read or is of another.
        options: Fields of a `Source` that it reads in addition to `path`, such as images and encoding.
        is_folder: Whether a source must be a folder; otherwise, `read` refuses what is not there.
        writes_images: Whether it writes images into `Source.folder`, which users must then give as OUT.
        pseudonymizes: Whether it needs `Source.key`.
    """

    name: str
    help: str
    read: Callable[[Source], Listing]
    options: frozenset[str] = frozenset({"images"})
    is_folder: bool = True
    writes_images: bool = False
    pseudonymizes: bool = False


def layout_names() -> tuple[str, ...]:
    """Names of all layouts, ours first, whether or not those of other packages can be loaded."""
    own = (entry.name for entry in _OWN)
    return tuple(dict.fromkeys((*own, *sorted(entry_points(group=GROUP).names))))


def find_layout(name: str) -> Layout:
    """Load the layout of a name.

    Raises:
        DataError: There is none, or several packages have one, or that of another package cannot be loaded.
    """
    entries = [*(entry for entry in _OWN if entry.name == name), *entry_points(group=GROUP, name=name)]
    if not entries:
        raise DataError(f"There is no layout {name!r}; there are {', '.join(layout_names())}.")
    if len(entries) > 1:
        packages = " and ".join(map(_package, entries))
        raise DataError(f"The layout {name!r} is in {packages}: uninstall one, or have its owner rename it.")
    (entry,) = entries
    try:
        layout = entry.load()
    # Whatever the package does when it is imported.
    except Exception as error:
        raise DataError(
            f"The layout {name!r} of {_package(entry)} ({entry.value}) cannot be loaded: "
            f"{type(error).__name__}: {error}."
        ) from error
    if not isinstance(layout, Layout) or layout.name != name:
        raise DataError(
            f"The layout {name!r} of {_package(entry)} ({entry.value}) is no Layout of this name, as "
            "training.importing.layouts has it."
        )
    return layout


def _package(entry: EntryPoint) -> str:
    return "recoquest itself" if entry.dist is None else f"the package {entry.dist.name}"


def describe_layouts() -> Iterator[tuple[str, str]]:
    """Names of all layouts with what they are, or why they cannot be used."""
    for name in layout_names():
        try:
            yield name, find_layout(name).help
        except DataError as error:
            yield name, str(error)


def import_data_set(
    layout: Layout, source: Source, *, max_rejected: float = 1.0, most_decoded: int = MOST_DECODED
) -> ImportReport:
    """Write the manifest of a data set into `source.folder`, with a link images to images elsewhere.

    `max_rejected` and `most_decoded` are those of `write_listing`.

    Raises:
        DataError: The data set is not there or of another layout, the layout has no such option, or too much
            cannot be used.
    """
    given = [
        one.name for one in fields(source) if getattr(source, one.name) not in (None, False, frozenset())
    ]
    if others := sorted({*given} - layout.options - _GENERAL):
        takes = ", ".join(map(_option, sorted(layout.options)))
        raise DataError(
            f"`recoquest import {layout.name}` takes no {_option(others[0])}{takes and f', only {takes}'}."
        )
    if layout.writes_images and source.out is None:
        raise DataError(
            f"The images of `recoquest import {layout.name}` are written out: give a second folder for them "
            "and the manifest."
        )
    if layout.is_folder:
        if not source.path.exists():
            raise DataError(f"There is no {source.path}.")
        refuse_file(source.path)
    return write_listing(
        layout.read(source),
        source.folder,
        max_rejected=max_rejected,
        most_decoded=most_decoded,
        limits=source.limits,
    )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
