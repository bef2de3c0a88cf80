"""The GPU that vectors may be scanned on."""

import logging
from functools import cached_property
from typing import TYPE_CHECKING

from training.errors import RecoquestError

if TYPE_CHECKING:
    import torch

_log = logging.getLogger(__name__)


class Gpu:
    """The GPU that a setting names, if there is one; to look for it loads torch, so this waits until asked.

    Args:
        name: As `choose_device` takes it: "auto", "cuda" or "cuda:N"; "cpu" for none.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @cached_property
    def device(self) -> "torch.device | None":
        """The GPU as torch has it."""
        from training.models.encoder import choose_device

        try:
            device = choose_device(self._name)
        except RecoquestError as error:
            _log.warning("no vectors are scanned on a GPU: %s", error)
            return None
        return device if device.type == "cuda" else None

    def free(self) -> int | None:
        """Return the bytes that can still be taken on it; None where there is none, or it does not answer."""
        if self.device is None:
            return None
        import torch

        try:
            free, _ = torch.cuda.mem_get_info(self.device)
            # What torch keeps for later is taken first.
            kept = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        except RuntimeError as error:
            _log.warning("no vectors are scanned on the GPU, which does not answer: %s", error)
            return None
        return free + kept
