"""Reasons why a query has no vector, one class for each answer that its caller gets."""

from training.common.errors import RecoquestError

TOO_SLOW = "The query could not be encoded in time; try again when the service is less busy."
FAILED = "The encoder failed on this query; the service's log says why."
NO_MEMORY = "There is too little memory to encode this query now; try again in a moment."
INVALID_TEXT = "The text holds half of a surrogate pair, which is no character: send valid Unicode."


class EncodingError(RecoquestError):
    """A query could not be turned into a vector."""


class QueueFullError(EncodingError):
    """More queries wait than the queue holds."""


class EncodingTimeoutError(EncodingError):
    """The vector was not there by the deadline."""


class QueueClosedError(EncodingError):
    """The queue is closed; its encoder is no longer in use."""


class EncodingFailedError(EncodingError):
    """The encoder raised an error on this query alone, or gave no finite vector."""


class EncoderLostError(EncodingError):
    """The process that encodes ended, or was killed, before it answered."""


class EncoderMemoryError(EncodingError):
    """The memory did not suffice for this query alone."""


class InvalidTextError(EncodingError):
    """The text is not valid Unicode, so no tokenizer takes it."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception of NumPy or torch, on the CPU or a GPU, reports a failed allocation."""
    if isinstance(error, MemoryError):
        return True
    words = str(error).lower() if isinstance(error, RuntimeError) else ""
    return "out of memory" in words or "can't allocate memory" in words
