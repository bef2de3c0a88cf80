"""The base of typed settings."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Base of all settings: unknown keys are refused, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)
