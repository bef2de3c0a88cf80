"""Settings of retrainings that workers do by themselves; part of `app.settings.Settings`."""

from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode

from app.setting_values import checked_times


class WorkerSettings(BaseSettings):
    """Settings of retrainings."""

    retrain: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Collections that workers retrain by themselves, separated by commas."
    )
    retrain_at: str | None = Field(
        default=None, description="Times in UTC: minute, hour, day, month, weekday, such as 0 3 * * 0."
    )
    retrain_feedback: int | None = Field(
        default=None, ge=1, description="New usable judgements of hits that start a retraining."
    )
    retrain_promote: bool = Field(
        default=False, description="Activate a model that passes at once; False: it waits for an operator."
    )

    @field_validator("retrain_at")
    @classmethod
    def _are_times_of_retrainings(cls, value: str | None) -> str | None:
        return None if value is None else checked_times(value)
