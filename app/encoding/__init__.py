"""Encoding of queries: a queue in front of each encoder, with isolation of failures and of hanging passes."""

from app.encoding.errors import (
    EncoderLostError,
    EncoderMemoryError,
    EncodingError,
    EncodingFailedError,
    EncodingTimeoutError,
    InvalidTextError,
    QueueClosedError,
    QueueFullError,
)
from app.encoding.jobs import Encoded, Kind, Priority, QueryEncoder, QueueLimits, QueueObserver
from app.encoding.queue import EncodingQueue

__all__ = [
    "Encoded",
    "EncoderLostError",
    "EncoderMemoryError",
    "EncodingError",
    "EncodingFailedError",
    "EncodingQueue",
    "EncodingTimeoutError",
    "InvalidTextError",
    "Kind",
    "Priority",
    "QueryEncoder",
    "QueueClosedError",
    "QueueFullError",
    "QueueLimits",
    "QueueObserver",
]
