"""Readers that turn folders of images and the published layouts of data sets into manifests."""

from pathlib import Path
from typing import Literal

from training.data.readers.chexpert import list_chexpert
from training.data.readers.folder import list_folder
from training.data.readers.karpathy import list_karpathy
from training.data.readers.listing import write_listing
from training.data.readers.mimic_cxr import list_mimic_cxr
from training.data.readers.report import ImportReport
from training.errors import DataError

__all__ = ["ImportReport", "Layout", "import_data_set"]

Layout = Literal["folder", "karpathy", "mimic-cxr", "chexpert"]


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
    max_rejected: float = 0.01,
) -> ImportReport:
    """Write a manifest for a data set in one of the layouts.

    Args:
        layout: "folder" (images of one's own), "karpathy" (Flickr8K, Flickr30K, MS-COCO), "mimic-cxr"
            (MIMIC-CXR-JPG) or "chexpert".
        source: Folder of the data set.
        out: Folder of the manifest; `source` without it. A link `out`/images is made to images elsewhere.
        images: Folder of the images where it is not the layout's usual one.
        table: For a folder, what its images show; `list_folder` says which columns count.
        leave_out: For CheXpert, a table whose patients are left out of train.
        encoding: Of that table, where it has no byte order mark and is not UTF-8.
        keep_unknown_texts: Keep texts of that table that stand for "not known", such as "nan".
        max_rejected: Largest share of images that may be left out because they or their lines are broken.

    Raises:
        DataError: The data set is not there or of another layout, or too much of it cannot be used.
    """
    if leave_out is not None and layout != "chexpert":
        raise DataError("Only CheXpert has a table of images to leave out of train.")
    if table is not None and layout != "folder":
        raise DataError("Only a folder of your own has a table of what its images show.")
    if table is None and (encoding is not None or keep_unknown_texts):
        raise DataError("An encoding and texts to keep belong to a table; give it as well.")
    if layout == "folder":
        listing = list_folder(
            images or source, table, encoding=encoding, keep_unknown_texts=keep_unknown_texts
        )
    elif layout == "karpathy":
        listing = list_karpathy(source, images)
    elif layout == "mimic-cxr":
        listing = list_mimic_cxr(source, images)
    else:
        listing = list_chexpert(source, images, leave_out)
    folder = source if source.is_dir() else source.parent
    return write_listing(listing, out or folder, max_rejected=max_rejected)
