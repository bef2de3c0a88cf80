"""The kinds of problems, and which error is of which kind, in one table."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus

from app.encoding.pool import EncoderBrokenError, EncoderLoadingError
from app.encoding.queue import (
    EncoderLostError,
    EncoderMemoryError,
    EncodingFailedError,
    EncodingTimeoutError,
    InvalidTextError,
    QueueClosedError,
    QueueFullError,
)
from index import errors
from index.errors import shortened
from training.common.errors import (
    BundleError,
    ImageError,
    ImageTooLargeError,
    MissingModalityError,
    NoRegionsError,
    RecoquestError,
)
from training.imaging.processes.errors import (
    DecodersBusyError,
    DecodersClosedError,
    DecoderStartError,
    DecodingTimeoutError,
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem.

    Attributes:
        detail: Said instead of the error's own words, which may name files of the server.
        retry_after_s: Sent as Retry-After.
        field: The field of the request that is at fault.
        authenticate: Sent as WWW-Authenticate.
    """

    slug: str
    title: str
    status: HTTPStatus
    detail: str | None = None
    retry_after_s: int | None = None
    field: str | None = None
    authenticate: str | None = None


def type_of(kind: Kind) -> str:
    """Return the URN of a kind, by which programs know it."""
    return f"urn:recoquest:{kind.slug}"


def help_of(kind: Kind) -> str:
    """Return the path of the section that explains a kind, in `app/edge/http/description/problems.md`."""
    return f"/docs/problems#{kind.slug}"


INVALID = Kind("invalid-request", "The request is not valid", HTTPStatus.UNPROCESSABLE_ENTITY)
TOO_LARGE = Kind("content-too-large", "The request is too large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
UNSUPPORTED = Kind(
    "unsupported-media-type", "The content type is not supported", HTTPStatus.UNSUPPORTED_MEDIA_TYPE
)
NOT_ACCEPTABLE = Kind("not-acceptable", "No such format can be made", HTTPStatus.NOT_ACCEPTABLE)
NOT_READY = Kind("not-ready", "The service is not ready", HTTPStatus.SERVICE_UNAVAILABLE, retry_after_s=1)
BUSY = Kind("too-many-requests", "The service is busy", HTTPStatus.TOO_MANY_REQUESTS, retry_after_s=1)
ENCODED_LATE = Kind("encoding-timeout", "Encoding took too long", HTTPStatus.GATEWAY_TIMEOUT)
REPLACED = Kind(
    "encoder-replaced", "The encoder is being replaced", HTTPStatus.SERVICE_UNAVAILABLE, retry_after_s=1
)
LATE = Kind("deadline-passed", "The answer took too long", HTTPStatus.GATEWAY_TIMEOUT)
STOPPING = Kind(
    "stopping",
    "The service is stopping",
    HTTPStatus.SERVICE_UNAVAILABLE,
    detail="The service stops before the request could be answered; try again in a moment.",
    retry_after_s=2,
)
DEFECT = Kind(
    "internal-error",
    "The service made an error",
    HTTPStatus.INTERNAL_SERVER_ERROR,
    detail="The request could not be answered; the service's log has more under this request id.",
)

KINDS: Mapping[type[RecoquestError], Kind] = {
    errors.UnknownCollectionError: Kind(
        "unknown-collection", "There is no such collection", HTTPStatus.NOT_FOUND
    ),
    errors.UnknownImageError: Kind("unknown-image", "There is no such image", HTTPStatus.NOT_FOUND),
    errors.NoActiveGenerationError: Kind(
        "nothing-indexed", "The collection cannot be searched yet", HTTPStatus.CONFLICT
    ),
    errors.QueryError: INVALID,
    errors.FilterError: Kind("invalid-filter", "The filter is not valid", INVALID.status, field="filter"),
    errors.CursorError: Kind("invalid-cursor", "The cursor is not valid", INVALID.status, field="cursor"),
    ImageTooLargeError: Kind("image-too-large", "The image is too large", TOO_LARGE.status, field="image"),
    ImageError: Kind("not-an-image", "The file is not a usable image", UNSUPPORTED.status, field="image"),
    MissingModalityError: Kind(
        "no-text-search", "The collection cannot be searched by text", INVALID.status, field="text"
    ),
    NoRegionsError: Kind("no-regions", "The model has no regions", INVALID.status),
    QueueFullError: BUSY,
    DecodersBusyError: BUSY,
    EncodingTimeoutError: ENCODED_LATE,
    DecodingTimeoutError: ENCODED_LATE,
    QueueClosedError: REPLACED,
    DecodersClosedError: REPLACED,
    DecoderStartError: Kind(
        "decoding-unavailable",
        "Images cannot be decoded now",
        HTTPStatus.SERVICE_UNAVAILABLE,
        retry_after_s=1,
    ),
    EncoderLostError: replace(
        REPLACED,
        detail="The process that encodes was lost and is replaced; try again in a moment.",
        retry_after_s=2,
    ),
    EncoderLoadingError: Kind(
        "encoder-loading", "The encoder is being loaded", HTTPStatus.SERVICE_UNAVAILABLE, retry_after_s=2
    ),
    EncoderMemoryError: Kind(
        "encoder-out-of-memory",
        "The encoder has too little memory",
        HTTPStatus.SERVICE_UNAVAILABLE,
        retry_after_s=5,
    ),
    InvalidTextError: Kind("invalid-text", "The text is not valid", INVALID.status, field="text"),
    EncodingFailedError: Kind("encoding-failed", "The encoder failed", HTTPStatus.INTERNAL_SERVER_ERROR),
    # The log has its reason once for each try, not for each request.
    EncoderBrokenError: Kind(
        "encoder-unavailable",
        "The encoder cannot be loaded",
        HTTPStatus.SERVICE_UNAVAILABLE,
        retry_after_s=10,
    ),
    BundleError: Kind(
        "encoder-unavailable",
        "The encoder cannot be loaded",
        HTTPStatus.SERVICE_UNAVAILABLE,
        detail="The collection's encoder cannot be loaded; the service's log has the reason.",
    ),
    errors.CatalogueError: Kind(
        "catalogue-unavailable",
        "The catalogue cannot be read",
        HTTPStatus.SERVICE_UNAVAILABLE,
        detail="The catalogue cannot be read; the service's log has the reason.",
        retry_after_s=2,
    ),
    errors.CatalogueBusyError: Kind(
        "catalogue-busy",
        "Another process writes to the catalogue",
        HTTPStatus.SERVICE_UNAVAILABLE,
        detail="Another process is writing to the catalogue; nothing was written: send the request again.",
        retry_after_s=2,
    ),
    errors.CatalogueTimeoutError: Kind(
        "catalogue-timeout",
        "The catalogue took too long",
        HTTPStatus.GATEWAY_TIMEOUT,
        detail="The catalogue took too long to answer and was not waited for: ask for less, or try again.",
        retry_after_s=2,
    ),
    errors.HomeError: Kind(
        "home-moved",
        "The home folder was moved or replaced",
        HTTPStatus.SERVICE_UNAVAILABLE,
        detail="The service's home folder is not where it was, and nothing was written; its log has more.",
        retry_after_s=30,
    ),
    errors.UnknownGenerationError: Kind(
        "unknown-generation", "There is no such generation", HTTPStatus.NOT_FOUND
    ),
    errors.IncompleteGenerationError: Kind(
        "incomplete-generation", "The generation is not complete", HTTPStatus.CONFLICT
    ),
    errors.GenerationError: Kind(
        "generation-replaced",
        "The index was replaced meanwhile",
        HTTPStatus.CONFLICT,
        detail="The generation that this search began with is no longer searched; search again.",
    ),
    errors.ViewError: Kind(
        "vectors-damaged",
        "The vectors are read again",
        HTTPStatus.SERVICE_UNAVAILABLE,
        detail="The file of the collection's vectors was damaged; they are read from the catalogue again.",
        retry_after_s=2,
    ),
    errors.UnknownJobError: Kind("unknown-job", "There is no such job", HTTPStatus.NOT_FOUND),
    errors.JobExistsError: Kind(
        "job-exists", "A job for this collection is already running", HTTPStatus.CONFLICT
    ),
    errors.CollectionInUseError: Kind(
        "collection-in-use", "Work on the collection goes on", HTTPStatus.CONFLICT
    ),
    errors.JobStateError: Kind("job-ended", "The job has ended", HTTPStatus.CONFLICT),
    errors.StoreError: Kind(
        "image-file-unavailable",
        "The image's file cannot be read",
        HTTPStatus.INTERNAL_SERVER_ERROR,
        detail="The file of an image is missing or damaged; the service's log has the reason.",
    ),
    errors.StoreWriteError: Kind(
        "file-not-written",
        "A file cannot be written",
        HTTPStatus.INTERNAL_SERVER_ERROR,
        detail="The disk of the service does not take a file, or does not let go of one; "
        "the service's log has the reason.",
    ),
    errors.FeedbackFullError: Kind(
        "feedback-full",
        "The collection keeps no more judgements",
        HTTPStatus.CONFLICT,
        detail="The collection has as many judgements as it keeps: whoever runs the service can remove them "
        "or allow more.",
    ),
    errors.UnknownCaseListError: Kind(
        "unknown-case-list", "There is no such list of cases", HTTPStatus.NOT_FOUND
    ),
    errors.CaseListExistsError: Kind(
        "case-list-exists", "There is such a list of cases", HTTPStatus.CONFLICT, field="name"
    ),
    errors.CasesFullError: Kind("cases-full", "No more cases are kept here", HTTPStatus.CONFLICT),
    errors.CollectionNameError: Kind("invalid-name", "The name is not valid", INVALID.status, field="name"),
    errors.CollectionExistsError: Kind(
        "collection-exists", "There is such a collection", HTTPStatus.CONFLICT, field="name"
    ),
    errors.AliasNameError: Kind("invalid-name", "The name is not valid", INVALID.status, field="alias"),
    errors.AliasTakenError: Kind(
        "collection-exists", "There is such a collection", HTTPStatus.CONFLICT, field="alias"
    ),
    errors.UnknownAliasError: Kind("unknown-alias", "There is no such alias", HTTPStatus.NOT_FOUND),
    errors.AliasLimitError: Kind("too-many-aliases", "There are too many aliases", HTTPStatus.CONFLICT),
    errors.KeyScopeError: Kind(
        "keys-of-name", "Keys have roles in this name", HTTPStatus.CONFLICT, field="name"
    ),
    errors.UnknownModelError: Kind("unknown-model", "There is no such model", INVALID.status, field="model"),
    errors.UnregisteredModelError: Kind("unregistered-model", "There is no such model", HTTPStatus.NOT_FOUND),
    errors.StaleWriteError: Kind(
        "changed-meanwhile", "Somebody else changed it", HTTPStatus.CONFLICT, retry_after_s=1
    ),
    errors.UnexpectedCountError: Kind(
        "unexpected-count", "The filter finds another number of images", HTTPStatus.CONFLICT
    ),
    errors.ConditionError: Kind(
        "precondition-failed",
        "The condition of the request does not hold",
        HTTPStatus.PRECONDITION_FAILED,
    ),
    errors.KeyInUseError: Kind(
        "request-in-progress",
        "The first request is still being answered",
        HTTPStatus.CONFLICT,
        retry_after_s=1,
    ),
    errors.KeyReusedError: Kind(
        "idempotency-key-reused", "The key was sent with another request", INVALID.status
    ),
    errors.DiskFullError: Kind(
        "disk-full",
        "The disk is full",
        HTTPStatus.INSUFFICIENT_STORAGE,
        detail="The disk of the service is full, so nothing was written; searches go on. Free some space "
        "there and send it again.",
    ),
    RecoquestError: DEFECT,
}


# Failed writes and failed reads have words of their own.
_UNWRITABLE = replace(
    KINDS[errors.CatalogueError],
    title="The catalogue cannot be written",
    detail="The catalogue cannot be written; the service's log has the reason.",
)
_NO_SPACE_TO_READ = replace(
    KINDS[errors.DiskFullError],
    detail="The disk of the service is full, so the catalogue cannot be read. Free some space there and "
    "send it again.",
)


def kind_of(error: Exception) -> Kind:
    """Return the kind of problem that an error is."""
    kind = next(KINDS[cls] for cls in type(error).__mro__ if cls in KINDS)
    # Errors that wait or time out have kinds of their own, for reads as for writes.
    if isinstance(error, errors.CatalogueError) and error.writing and kind is KINDS[errors.CatalogueError]:
        return _UNWRITABLE
    if isinstance(error, errors.DiskFullError) and not error.writing:
        return _NO_SPACE_TO_READ
    if isinstance(error, errors.UnknownCollectionError):
        # The error's own words list collections that the caller may not know.
        name = shortened(error.collection)
        return replace(
            kind,
            detail=f"There is no collection {name!r}: GET /v1/collections lists those that you may read.",
        )
    return kind


FRAMEWORK_KINDS = {
    HTTPStatus.NOT_FOUND: Kind(
        "not-found",
        "There is nothing here",
        HTTPStatus.NOT_FOUND,
        detail="Nothing is at this address; /docs lists every path.",
    ),
    HTTPStatus.METHOD_NOT_ALLOWED: Kind(
        "method-not-allowed",
        "The method is not taken here",
        HTTPStatus.METHOD_NOT_ALLOWED,
        detail="This address does not take this method; /docs lists what it takes.",
    ),
    TOO_LARGE.status: TOO_LARGE,
    BUSY.status: BUSY,
}
