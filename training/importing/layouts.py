"""Names of the layouts that an import reads."""

from typing import Literal

Layout = Literal[
    "folder",
    "karpathy",
    "coco",
    "mimic-cxr",
    "chexpert",
    "chexpert-plus",
    "nih-cxr14",
    "padchest",
    "iu-xray",
    "huggingface",
    "webdataset",
    "dicom",
]
