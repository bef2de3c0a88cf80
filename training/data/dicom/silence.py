"""Logs without the values of DICOM files: pydicom's warnings quote them."""

import logging
import warnings
from typing import Final

_MODULES: Final = r"pydicom(\.|$)"


def silence_pydicom() -> None:
    """Turn off pydicom's warnings and log lines in this process; errors are raised as before."""
    logging.getLogger("pydicom").setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module=_MODULES)
