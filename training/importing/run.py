"""The import of a data set: its layout's reader writes the manifest."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from training.common.errors import DataError
from training.imaging.images import ImageLimits
from training.importing.folder.files import refuse_file
from training.importing.folder.own import WITHOUT_TEXT_FILES, list_folder
from training.importing.layouts import Layout
from training.importing.listing import MOST_DECODED, Listing, write_listing
from training.importing.published.captions import list_coco, list_karpathy
from training.importing.published.huggingface import list_huggingface
from training.importing.published.mimic_cxr import list_mimic_cxr
from training.importing.published.radiographs import (
    list_chexpert,
    list_chexpert_plus,
    list_iu_xray,
    list_nih_cxr14,
    list_padchest,
)
from training.importing.published.webdataset import list_webdataset
from training.importing.report import ImportReport

# Readers of tables and of images that lie beside them.
_BESIDE: Final[Mapping[str, Callable[[Path, Path | None], Listing]]] = {
    "karpathy": list_karpathy,
    "coco": list_coco,
    "nih-cxr14": list_nih_cxr14,
    "padchest": list_padchest,
    "iu-xray": list_iu_xray,
}
_CHEXPERT: Final[Mapping[str, Callable[[Path, Path | None, Path | None], Listing]]] = {
    "chexpert": list_chexpert,
    "chexpert-plus": list_chexpert_plus,
}
# Readers of files that hold the images themselves.
_INSIDE: Final[Mapping[str, Callable[[Path, Path], Listing]]] = {
    "huggingface": list_huggingface,
    "webdataset": list_webdataset,
}


def import_data_set(
    layout: Layout,
    source: Path,
    out: Path | None = None,
    *,
    images: Path | None = None,
    table: Path | None = None,
    leave_out: Path | None = None,
    encoding: str | None = None,
    keep_unknown_texts: bool = False,
    max_rejected: float = 1.0,
    most_decoded: int = MOST_DECODED,
    limits: ImageLimits | None = None,
) -> ImportReport:
    """Write a manifest for a data set in one of the layouts.

    Args:
        layout: "folder" (images of one's own), or a published layout; docs/layouts.md describes them.
        source: Folder of the data set.
        out: Folder of the manifest; `source` without it. A link `out`/images is made to images elsewhere;
            those of "huggingface" and "webdataset" are written there, and it must be given.
        images: Folder of the images where it is not the layout's usual one.
        table: For a folder, what its images show; `list_folder` says which columns count.
        leave_out: For CheXpert and CheXpert Plus, a table whose patients are left out of train.
        encoding: Of that table, of texts beside images, or of MIMIC-CXR's reports, without a byte order mark
            and not in UTF-8.
        keep_unknown_texts: Keep texts of that table that stand for "not known", such as "nan".
        max_rejected: Largest share of images that may be left out because they or their lines are broken.
        most_decoded: Number of files to decode; the others are listed as they are.
        limits: What an image may cost.

    Raises:
        DataError: The data set is not there or of another layout, or too much of it cannot be used.
    """
    if leave_out is not None and layout not in _CHEXPERT:
        raise DataError("Only CheXpert has a table of images to leave out of train.")
    if table is not None and layout != "folder":
        raise DataError("Only a folder of your own has a table of what its images show.")
    if keep_unknown_texts and table is None:
        raise DataError("Texts to keep belong to a table; give it as well with --table.")
    if encoding is not None and layout not in ("folder", "mimic-cxr"):
        raise DataError(WITHOUT_TEXT_FILES)
    if not source.exists():
        raise DataError(f"There is no {source}.")
    if layout not in _INSIDE and layout != "karpathy":
        refuse_file(source)
    folder = out or (source if source.is_dir() else source.parent)
    if layout == "folder":
        listing = list_folder(
            images or source, table, encoding=encoding, keep_unknown_texts=keep_unknown_texts
        )
    elif layout == "mimic-cxr":
        listing = list_mimic_cxr(source, images, encoding)
    elif layout in _CHEXPERT:
        listing = _CHEXPERT[layout](source, images, leave_out)
    elif layout in _BESIDE:
        listing = _BESIDE[layout](source, images)
    elif out is None or images is not None:
        raise DataError(
            f"The images of a {layout} data set are written out: give a second folder for them and the "
            "manifest, and no --images."
        )
    else:
        listing = _INSIDE[layout](source, out)
    return write_listing(listing, folder, max_rejected=max_rejected, most_decoded=most_decoded, limits=limits)
