"""How a training run may end before its time."""

import signal

from training.common.errors import RecoquestError


class TrainingError(RecoquestError):
    """A run that can't start, continue or be resumed."""


class DivergedError(TrainingError):
    """A loss or a gradient is not a finite number."""


class TrainingInterruptedError(RecoquestError):
    """The run was asked to stop; its checkpoint is written and it can be resumed.

    Attributes:
        received: The signal that asked; None where another process of the run got it.
    """

    def __init__(self, sentence: str, received: signal.Signals | None) -> None:
        super().__init__(sentence)
        self.received = received


class AnotherProcessFailedError(RecoquestError):
    """Another process of the run has failed, and says why."""
