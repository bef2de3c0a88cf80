"""Report of the records that a run left out."""

import logging

from training.common.rejections import Rejections
from training.trainer.run_state.processes import Processes

logger = logging.getLogger(__name__)


def report(processes: Processes, *parts: Rejections) -> int:
    """Name what any process left out, and count it."""
    whole = [part.joined(processes.gathered(part)) for part in parts]
    for rejections in whole:
        if rejections.items:
            logger.warning("%s", rejections.summary())
    return sum(map(len, whole))
