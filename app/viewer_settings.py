"""Settings of the archive behind the viewer, and of the viewer; part of `app.settings.Settings`."""

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings

from app.setting_values import checked_template


class ViewerSettings(BaseSettings):
    """Settings of the viewer."""

    viewer_url: str | None = Field(
        default=None,
        description="Address that opens a study in a viewer, with {study}, {series} and {sop}; None: hits "
        "have no link to one.",
    )

    @field_validator("viewer_url")
    @classmethod
    def _is_template(cls, value: str | None) -> str | None:
        return None if value is None else checked_template(value)
