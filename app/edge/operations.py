"""What a route declares beside its role: its action in the audit trail, and its kind of work."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from index.audit.event import Action

Work = Literal["search", "image-search", "read", "write", "change"]
Endpoint = TypeVar("Endpoint", bound=Callable[..., object])

_DECLARED: Final = "recoquest_operation"


@dataclass(frozen=True, slots=True)
class Operation:
    """What was declared.

    Attributes:
        audit: Action of its events; None: "change" where the method may change something, else it has none.
        work: Kind of work, which is admitted apart from others; None: "read" or "write", by the method.
        files_in_json: Whether its JSON may have files, and be as large as a form.
    """

    audit: Action | None = None
    work: Work | None = None
    files_in_json: bool = False


def operation(
    audit: Action | None = None, *, work: Work | None = None, files_in_json: bool = False
) -> Callable[[Endpoint], Endpoint]:
    """Return the decorator of a route's function that declares its operation."""

    def declare(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _DECLARED, Operation(audit, work, files_in_json))
        return endpoint

    return declare


def operation_of(endpoint: object) -> Operation:
    """Return what a route's function declares."""
    declared = getattr(endpoint, _DECLARED, None)
    return declared if isinstance(declared, Operation) else Operation()
