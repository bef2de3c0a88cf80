"""Client of recoquest, a search over images."""

from recoquest_client.answers import (
    Alias,
    AuditEvent,
    BatchResult,
    Collection,
    Embedding,
    Embeddings,
    Facets,
    Generation,
    Hit,
    Image,
    Job,
    ListedImage,
    Model,
    PictureLink,
    SearchPage,
    Uploaded,
    Written,
)
from recoquest_client.async_client import AsyncClient
from recoquest_client.client import Client
from recoquest_client.errors import (
    AccessError,
    AnswerError,
    BusyError,
    FieldError,
    NotFoundError,
    PreconditionError,
    ProblemError,
    RecoquestError,
    UnreachableError,
)
from recoquest_client.files import ImageFile, NewImage, UploadProgress
from recoquest_client.filters import Filter
from recoquest_client.options import Record, Search
from recoquest_client.retry import Retry

__all__ = [
    "AccessError",
    "Alias",
    "AnswerError",
    "AsyncClient",
    "AuditEvent",
    "BatchResult",
    "BusyError",
    "Client",
    "Collection",
    "Embedding",
    "Embeddings",
    "Facets",
    "FieldError",
    "Filter",
    "Generation",
    "Hit",
    "Image",
    "ImageFile",
    "Job",
    "ListedImage",
    "Model",
    "NewImage",
    "NotFoundError",
    "PictureLink",
    "PreconditionError",
    "ProblemError",
    "RecoquestError",
    "Record",
    "Retry",
    "Search",
    "SearchPage",
    "UnreachableError",
    "UploadProgress",
    "Uploaded",
    "Written",
]
