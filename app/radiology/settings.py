"""Settings of films, reports and an image archive."""

import shlex
from pathlib import Path
from string import Formatter
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, NoDecode

from app.setting_values import BY_COMMAS, Times

# UIDs in the address of a viewer.
_PLACEHOLDERS: Final = frozenset({"study", "series", "sop"})
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


def _checked_template(template: str) -> str:
    """Return the template of a viewer's address, if it has a placeholder for the study and no unknown one."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"{template!r} is not an address with placeholders in braces: {error}") from None
    names = [name for _, name, _, _ in parts if name is not None]
    plain = all(not spec and conversion is None for _, _, spec, conversion in parts)
    if not plain or "study" not in names or not set(names) <= _PLACEHOLDERS:
        raise ValueError(
            f"{template!r} needs {{study}}, and may have {{series}} and {{sop}}, such as "
            "/reading#study={study}&image={sop}"
        )
    if not template.startswith(("/", "https://", "http://")) or template.startswith("//"):
        raise ValueError(
            f"{template!r} is no path of the service, and does not begin with https:// or http://"
        )
    return template


def _checked_arguments(line: str) -> str:
    if (shlex.split(line) or ["-"])[0].startswith("-"):
        raise ValueError("give a collection, then options, such as films --modality DX")
    return line


class RadiologySettings(BaseSettings):
    """Those of `app.settings.Settings` that radiology alone reads."""

    radiology: bool = True
    """Whether DICOM files, reports and an image archive are taken; False: photographs alone, and none of the
    code for the others is loaded. Films that were indexed before stay, and are shown."""
    pacs_url: Annotated[str, AfterValidator(checked_archive_url)] | None = None
    """Address of an image archive's DICOMweb, such as https://pacs/dicom-web."""
    pacs_user: str | None = Field(default=None, min_length=1)
    """User of the archive."""
    pacs_password: SecretStr | None = None
    """Password of that user."""
    pacs_token: SecretStr | None = Field(default=None, min_length=1)
    """Bearer token for the archive, instead of user and password."""
    pacs_ca: Path | None = None
    """File (PEM) of the authority that signed the archive's certificate; None: those of the system."""
    pacs_sync: Annotated[str, AfterValidator(_checked_arguments)] | None = None
    """Arguments of the `recoquest pacs sync` that workers run by themselves."""
    pacs_sync_at: Times | None = None
    """Times of that, in UTC: minute, hour, day, month, weekday, such as */10 * * * *."""

    pacs_write_back: Annotated[tuple[ResultForm, ...], NoDecode, BY_COMMAS] = ()
    """Forms in which similar cases may be written back to the archive, separated by commas: capture, report,
    selection; empty: nothing is written."""

    dicomweb: bool = False
    """Whether readers of all collections reach the archive of RECOQUEST_PACS_URL, with the names of patients,
    under /dicomweb; not with open reading."""
    viewer_url: Annotated[str, AfterValidator(_checked_template)] | None = None
    """Address that opens a study in a viewer, with {study}, {series} and {sop}; None: that of the installed
    viewer, where RECOQUEST_DICOMWEB is on."""

    keep_dates: bool = False
    """Whether dates of DICOM studies are kept; False: shifted by patient."""

    keep_waiting_reports_days: int = Field(default=90, ge=0)
    """Days after which reports whose studies have no image are forgotten; 0: never."""

    @model_validator(mode="after")
    def _have_archive(self) -> Self:
        if self.pacs_url is None:
            if self.pacs_write_back:
                raise ValueError(
                    "RECOQUEST_PACS_WRITE_BACK needs RECOQUEST_PACS_URL, the archive to write to"
                )
            if self.dicomweb:
                raise ValueError("RECOQUEST_DICOMWEB needs RECOQUEST_PACS_URL, the archive to open")
        if not self.radiology:
            for name in ("pacs_url", "pacs_sync", "pacs_sync_at", "viewer_url"):
                if getattr(self, name) is not None:
                    raise ValueError(f"RECOQUEST_{name.upper()} needs RECOQUEST_RADIOLOGY=true")
        return self
