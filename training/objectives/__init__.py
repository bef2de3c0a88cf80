"""Losses over Features, one a file, chosen by name in a recipe."""

from typing import Annotated

from pydantic import Field

from training.objectives.infonce import InfoNCESettings
from training.objectives.reco import ReCoSettings

ObjectiveSettings = Annotated[InfoNCESettings | ReCoSettings, Field(discriminator="name")]

__all__ = ["InfoNCESettings", "ObjectiveSettings", "ReCoSettings"]
