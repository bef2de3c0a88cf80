"""Settings of radiology: an image archive, when workers ask it, and the viewer."""

import shlex
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode

from app.setting_values import checked_template, checked_times

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


class RadiologySettings(BaseSettings):
    """The part of the settings that only radiology reads."""

    radiology: bool = Field(
        default=True,
        description="Whether DICOM files, reports and an image archive are taken; False: photographs alone, "
        "and none of the code for the others is loaded.",
    )
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

    @field_validator("viewer_url")
    @classmethod
    def _is_template(cls, value: str | None) -> str | None:
        return None if value is None else checked_template(value)

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if self.pacs_write_back and self.pacs_url is None:
            raise ValueError("RECOQUEST_PACS_WRITE_BACK needs RECOQUEST_PACS_URL, the archive to write to")
        if self.dicomweb and self.pacs_url is None:
            raise ValueError("RECOQUEST_DICOMWEB needs RECOQUEST_PACS_URL, the archive to open")
        if not self.radiology:
            for name in ("pacs_url", "pacs_sync", "pacs_sync_at", "viewer_url"):
                if getattr(self, name) is not None:
                    raise ValueError(f"RECOQUEST_{name.upper()} needs RECOQUEST_RADIOLOGY=true")
        return self
