"""Settings of an image archive: its address, credentials, and when workers ask it."""

import shlex
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode

from app.setting_values import checked_times

# Forms of the results of a search: a secondary capture, a structured report, FHIR ImagingSelections.
ResultForm = Literal["capture", "report", "selection"]


def checked_archive_url(url: str) -> str:
    """Return the address of an archive without a final slash.

    Raises:
        ValueError: It is none, or holds a user, a password or parameters.
    """
    try:
        parts = urlsplit(url)
        is_address, port = parts.scheme in ("http", "https") and bool(parts.hostname), parts.port
    except ValueError:
        is_address, port = False, None
    if not is_address or port == 0:
        raise ValueError("give the address of the archive's DICOMweb, such as https://pacs/dicom-web")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            "give the address of the archive without a user and parameters: RECOQUEST_PACS_USER and "
            "RECOQUEST_PACS_PASSWORD are written down nowhere"
        )
    return url.rstrip("/")


class ArchiveSettings(BaseSettings):
    """The part of the settings that `recoquest pacs` reads."""

    pacs_url: str | None = Field(
        default=None, description="Address of an image archive's DICOMweb, such as https://pacs/dicom-web."
    )
    pacs_user: str | None = Field(default=None, min_length=1, description="User of the archive.")
    pacs_password: SecretStr | None = Field(default=None, description="Password of that user.")
    pacs_token: SecretStr | None = Field(
        default=None, min_length=1, description="Bearer token for the archive, instead of user and password."
    )
    pacs_ca: Path | None = Field(
        default=None,
        description="File (PEM) of the authority that signed the archive's certificate; None: those that "
        "Python knows.",
    )
    pacs_sync: str | None = Field(
        default=None, description="Arguments of the `recoquest pacs sync` that workers run by themselves."
    )
    pacs_sync_at: str | None = Field(
        default=None,
        description="Times of that, in UTC: minute, hour, day, month, weekday, such as */10 * * * *.",
    )

    pacs_write_back: Annotated[tuple[ResultForm, ...], NoDecode] = Field(
        default=(),
        description="Forms in which similar cases may be written back to the archive, separated by commas: "
        "capture, report, selection; empty: nothing is written.",
    )

    @field_validator("pacs_url")
    @classmethod
    def _is_archive(cls, value: str | None) -> str | None:
        return None if value is None else checked_archive_url(value)

    @field_validator("pacs_sync_at")
    @classmethod
    def _are_times_of_syncs(cls, value: str | None) -> str | None:
        return None if value is None else checked_times(value)

    @field_validator("pacs_sync")
    @classmethod
    def _are_arguments(cls, value: str | None) -> str | None:
        if value is not None and (shlex.split(value) or ["-"])[0].startswith("-"):
            raise ValueError("give a collection, then options, such as films --modality DX")
        return value

    @model_validator(mode="after")
    def _writes_somewhere(self) -> Self:
        if self.pacs_write_back and self.pacs_url is None:
            raise ValueError("RECOQUEST_PACS_WRITE_BACK needs RECOQUEST_PACS_URL, the archive to write to")
        return self
