"""The failures of the index that a person can act on."""

from collections.abc import Collection
from itertools import islice
from typing import Final

from training.common.errors import RecoquestError

_SHOWN: Final = 80
_LISTED: Final = 20


def shortened(text: str, most: int = _SHOWN) -> str:
    """A text of a request, cut for a message; lone surrogates are replaced, as UTF-8 cannot encode them."""
    shown = text if len(text) <= most else f"{text[:most]}..."
    return shown.encode("utf-8", "replace").decode("utf-8")


def listed(names: Collection[str]) -> str:
    """The first names for a message, and the number of the others."""
    shown = [shortened(name) for name in islice(names, _LISTED)]
    if len(names) > len(shown):
        shown.append(f"and {len(names) - len(shown):,} more")
    return ", ".join(shown)


class CatalogueError(RecoquestError):
    """The catalogue's database cannot be used.

    Attributes:
        writing: Whether it was to be written.
    """

    writing = False


class CatalogueBusyError(CatalogueError):
    """Another process has been writing to the catalogue for too long; nothing was written."""


class CatalogueTimeoutError(CatalogueError):
    """A read of the catalogue took too long and was cut off."""


class DamagedCatalogueError(CatalogueError):
    """The catalogue's file is damaged, or is none of a database."""


class CatalogueSchemaError(CatalogueError):
    """A newer version of recoquest made the catalogue, or one that is too old."""


class HomeError(RecoquestError):
    """A home folder and a catalogue that do not belong together."""


class StoreError(RecoquestError):
    """A stored image file is missing or damaged."""


class StoreWriteError(StoreError):
    """The disk does not take a file, or does not let go of one."""


class DiskFullError(RecoquestError):
    """The disk has no space for what is to be written; nothing of it was.

    Attributes:
        writing: Whether something was to be written; False where SQLite needs the space to read.
    """

    writing = True


class ViewError(RecoquestError):
    """The files that vectors are searched in were damaged meanwhile; the next search reads them again."""


class BackupError(RecoquestError):
    """A backup that cannot be written or restored."""


class StaleWriteError(RecoquestError):
    """The target of a write has changed meanwhile; nothing was written, and it can be tried again."""


class UnexpectedCountError(RecoquestError):
    """A deletion by filter would remove another number of images than its caller expects."""

    def __init__(self, matching: int, expected: int) -> None:
        super().__init__(
            f"The filter matches {matching:,} images and not {expected:,}, and nothing was deleted: list "
            "them by a dry run, then send the number that it gives."
        )


class ConditionError(RecoquestError):
    """A write whose condition on the present revision of its image does not hold; nothing was written.

    Attributes:
        revision: Present revision of the image; None: there is no such image.
    """

    def __init__(self, message: str, revision: str | None) -> None:
        self.revision = revision
        super().__init__(message)


class KeyReusedError(RecoquestError):
    """An idempotency key that was sent with another request before."""

    def __init__(self) -> None:
        super().__init__(
            "This Idempotency-Key was sent with another request before, and nothing was done: draw a new key "
            "for a new request, or send exactly the first one again."
        )


class KeyInUseError(RecoquestError):
    """A request with an idempotency key that is still being answered."""

    def __init__(self) -> None:
        super().__init__(
            "The request that was first sent with this Idempotency-Key is still being answered: send this "
            "again in a moment to get its answer."
        )


class CollectionNameError(RecoquestError):
    """A name that no collection can have."""


class UnknownCollectionError(RecoquestError):
    """A collection that the catalogue does not have."""

    def __init__(self, collection: str, known: list[str]) -> None:
        self.collection = collection
        have = f"There are: {listed(known)}." if known else "There is none yet: `recoquest index` makes one."
        super().__init__(f"There is no collection {shortened(collection)!r}. {have}")


class CollectionExistsError(RecoquestError):
    """A new collection or alias would have the name of one that there is."""

    def __init__(self, name: str, *, alias: bool = False) -> None:
        kind = "an alias" if alias else "a collection"
        super().__init__(f"There is {kind} {name!r} already: remove it, or choose another name.")


class AliasNameError(CollectionNameError):
    """A name that no alias can have."""


class AliasTakenError(CollectionExistsError):
    """An alias would have the name of a collection."""

    def __init__(self, name: str) -> None:
        RecoquestError.__init__(
            self, f"{name!r} is the name of a collection, which no alias can have: choose another alias."
        )


class NoErasureError(RecoquestError):
    """There is no interrupted erasure to continue."""


class UnknownAliasError(RecoquestError):
    """No collection has an alias of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is no alias {shortened(name)!r}: GET /v1/aliases and `recoquest aliases list` list them."
        )


class AliasLimitError(RecoquestError):
    """There are as many aliases as there may be."""


class KeyScopeError(RecoquestError):
    """Keys hold roles in collections of a name that a collection is to take."""

    def __init__(self, name: str, keys: Collection[str]) -> None:
        super().__init__(
            f"Keys have roles in {name!r}, which they would gain in the renamed collection: {listed(keys)}. "
            "Revoke them by `recoquest keys revoke`, or choose another name."
        )


class UnknownModelError(RecoquestError):
    """A bundle that is not registered, or a name that several have."""


class UnregisteredModelError(RecoquestError):
    """A digest that no registered bundle has."""

    def __init__(self, digest: str) -> None:
        super().__init__(
            f"No registered model has the digest {shortened(digest)!r}: `recoquest models list` shows those "
            "there are."
        )


class UnknownImageError(RecoquestError):
    """An image that a collection does not have."""

    def __init__(self, collection: str, image_id: str) -> None:
        self.collection = collection
        self.image_id = image_id
        super().__init__(f"Collection {shortened(collection)!r} has no image {shortened(image_id)!r}.")


class NoActiveGenerationError(RecoquestError):
    """A collection that cannot be searched yet."""

    def __init__(self, collection: str) -> None:
        self.collection = collection
        super().__init__(
            f"Collection {collection!r} cannot be searched yet: its indexing has not finished. "
            "Run `recoquest index` for it again; it continues where it stopped."
        )


class GenerationError(RecoquestError):
    """A generation that cannot be built, activated or searched as requested."""


class UnknownGenerationError(GenerationError):
    """A generation that a collection does not have."""


class IncompleteGenerationError(GenerationError):
    """A generation that lacks images or texts of its collection, so that it cannot be searched in full."""


class ActiveChangedError(GenerationError):
    """The active generation is no longer the one to be replaced."""


class QueryError(RecoquestError):
    """A search that cannot be made as requested.

    Attributes:
        field: The part of the request that is wrong; None where it is not one part.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        self.field = field
        super().__init__(message)


class FeedbackFullError(RecoquestError):
    """A collection that has as many judgements of hits as it may have."""


class UnknownCaseListError(RecoquestError):
    """A list of cases that a collection does not have."""

    def __init__(self, list_id: str) -> None:
        super().__init__(f"The collection has no list of cases {shortened(list_id)!r}.")


class CaseListExistsError(RecoquestError):
    """A name that another list of cases of the collection has."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Another list is called {shortened(name)!r}: choose another name.")


class CasesFullError(RecoquestError):
    """A collection that has as many lists of cases as it may have, or a list with as many images."""


class CursorError(RecoquestError):
    """A cursor that is damaged, of another query, or of a generation no longer searched."""


class FilterError(RecoquestError):
    """A filter that cannot be applied.

    Attributes:
        field: The filtered field, or the path in the filter such as `and[1]`; empty for the whole filter.
    """

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


SearchError = QueryError | FilterError | CursorError
# The same, to be caught.
SEARCH_ERRORS: Final = (QueryError, FilterError, CursorError)


class UnknownJobError(RecoquestError):
    """A job that the catalogue does not have."""

    def __init__(self, job: int) -> None:
        super().__init__(f"There is no job {job}: `recoquest jobs list` shows those that there are.")


class JobExistsError(RecoquestError):
    """A job that isn't submitted because another already does the same."""


class JobStateError(RecoquestError):
    """A job that is not in a state in which this can be done with it."""


class CollectionInUseError(JobStateError):
    """A job or an erasure is at work on a collection, which must be left alone meanwhile."""


class UnknownKeyError(RecoquestError):
    """There is no API key of this identifier or name."""


class KeyNameError(RecoquestError):
    """The name of a new API key is not valid, or has as many keys as it may have."""
