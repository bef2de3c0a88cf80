"""Reasons why a decoding process has not done a task that are no fault of the image."""

from typing import Literal

from training.common.errors import RecoquestError

LossReason = Literal["crash", "cpu", "wall", "memory", "stopped", "closed"]


class DecoderLostError(Exception):
    """A process ended, or was killed, before it had done its task: the cause of what the caller is told."""

    def __init__(self, reason: LossReason) -> None:
        super().__init__(reason)
        self.reason = reason


class DecoderStartError(RecoquestError):
    """No decoding process can be started."""


class DecodingError(RecoquestError):
    """A task was not done by the processes of a pool."""


class DecodersBusyError(DecodingError):
    """More tasks wait than the queue holds."""


class DecodingTimeoutError(DecodingError):
    """The answer was not there by the deadline."""


class DecodersClosedError(DecodingError):
    """The pool is closed; it takes no more tasks."""
