"""Schemas of the findings that texts and reports state."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from training.clinical.findings import State


class StatedFindings(TypedDict):
    """Names of the findings that texts and report of an image mention, by what they say of them."""

    present: list[str]
    uncertain: list[str]
    absent: list[str]


StatedByImage = Annotated[
    StatedFindings,
    Field(description="What texts and report say of findings, each in one state over all mentions."),
]


def stated_from(findings: Mapping[State, Sequence[str]]) -> StatedFindings:
    """Describe the findings of an image."""
    return {
        "present": [*findings["present"]],
        "uncertain": [*findings["uncertain"]],
        "absent": [*findings["absent"]],
    }
