"""Finding of an examination."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        subject: Name of the check.
        state: Whether it is well; what is doubtful works now, what is wrong does not.
        found: Result, and a remedy unless all is well.
    """

    subject: str
    state: Literal["ok", "doubtful", "wrong"]
    found: str
