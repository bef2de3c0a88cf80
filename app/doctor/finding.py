"""Finding of an examination."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        subject: What was looked at.
        state: Whether it is well; what is doubtful works now, what is wrong does not.
        found: What was found, and what to do about it unless it is well.
    """

    subject: str
    state: Literal["ok", "doubtful", "wrong"]
    found: str
