"""Settings of the archive behind the viewer, and of the viewer; part of `app.settings.Settings`."""

from typing import Self

from pydantic import Field, field_validator, model_validator

from app.archive_settings import ArchiveSettings
from app.setting_values import checked_template


class ViewerSettings(ArchiveSettings):
    """Settings of the viewer."""

    dicomweb: bool = Field(
        default=False,
        description="Whether readers of all collections reach the archive of RECOQUEST_PACS_URL, with the "
        "names of patients, under /dicomweb; not with open reading.",
    )
    viewer_url: str | None = Field(
        default=None,
        description="Address that opens a study in a viewer, with {study}, {series} and {sop}; None: that "
        "of the installed viewer, where RECOQUEST_DICOMWEB is on.",
    )

    @field_validator("viewer_url")
    @classmethod
    def _is_template(cls, value: str | None) -> str | None:
        return None if value is None else checked_template(value)

    @model_validator(mode="after")
    def _has_archive(self) -> Self:
        if self.dicomweb and self.pacs_url is None:
            raise ValueError("RECOQUEST_DICOMWEB needs RECOQUEST_PACS_URL, the archive to open")
        return self
