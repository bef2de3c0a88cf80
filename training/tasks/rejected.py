"""Report of the records that a run left out."""

import logging

from training.data.rejections import Rejections

logger = logging.getLogger(__name__)


def report(*parts: Rejections) -> int:
    """Name what was left out, and count it."""
    for rejections in parts:
        if rejections.items:
            logger.warning("%s", rejections.summary())
    return sum(map(len, parts))
