"""How a training run may end before its time."""

from training.errors import RecoquestError


class TrainingError(RecoquestError):
    """A run that cannot start, go on or be resumed."""


class TrainingInterruptedError(RecoquestError):
    """The run was asked to stop; its checkpoint is written and it can be resumed."""


class AnotherProcessFailedError(RecoquestError):
    """Another process of the run has failed, and says why."""
