"""Settings, from the environment, an environment file, files of secrets, or arguments."""

import json
import os
import re
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, get_args
from urllib.parse import urlsplit

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from sqlalchemy import make_url

from index.audit.event import QueryForm
from index.catalogue.connections import without_password
from index.keys.api_keys import Role, parse_grants
from training.common.errors import RecoquestError

if TYPE_CHECKING:
    from training.imaging.images import ImageLimits

PREFIX: Final = "RECOQUEST_"
ENV_FILE_VARIABLE: Final = PREFIX + "ENV_FILE"
_TEST_PREFIX: Final = PREFIX + "TEST_"
# Secrets may be in files of their own, as Docker and Kubernetes give them to containers: variables with this
# end name the files.
_END: Final = "_FILE"
_MAX_SECRET_BYTES: Final = 1 << 16
_OF_CALLERS: Final = frozenset(
    {"admin_key", "oidc_issuer", "oidc_audience", "oidc_client_id", "oidc_client_secret", "oidc_groups_claim"}
    | {"oidc_roles", "public_url", "backup_passphrase"}
)
MIB: Final = 2**20

_CRON_FIELDS: Final = ("minute", "hour", "day", "month", "weekday")
# A name or an address, without a port; with a first dot, or `*.`, all names below it.
_HOST: Final = re.compile(r"\*|(\*?\.)?[A-Za-z0-9_-][A-Za-z0-9._-]*|\[?[0-9A-Fa-f:.]+\]?")
# As browsers send it: lower case, no path. A wildcard would let every page of the web call the service.
_ORIGIN: Final = re.compile(r"https?://[a-z0-9._\[\]:-]+")
_AN_ORIGIN: Final = "an origin such as https://viewer.example.org"
# Sources of a content security policy, wildcards among them; none may end its directive.
_ANCESTOR: Final = re.compile(r"[^;,'\" \r\n]*")
_PUBLIC_URL: Final = re.compile(rf"{_ORIGIN.pattern}(/[a-z0-9._~/-]*)?")
# UIDs in the address of a viewer.
_PLACES: Final = frozenset({"study", "series", "sop"})


class SettingsError(RecoquestError):
    """A setting is unknown, or its value or the file of its secret cannot be used."""


def is_safe_url(url: str) -> bool:
    """Whether nobody between can change what an address answers: HTTPS, or HTTP on this machine."""
    try:
        parts = urlsplit(url)
        name = parts.hostname or ""
        local = name == "localhost" or (parts.scheme == "http" and ip_address(name).is_loopback)
    except ValueError:
        return False
    is_plain = parts.username is None and not parts.query and not parts.fragment
    return bool(name) and is_plain and (parts.scheme == "https" or (parts.scheme == "http" and local))


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


def _checked_public_url(url: str) -> str:
    """Return the address of the service in browsers, without a final slash."""
    found = url.rstrip("/")
    origin, path = _PUBLIC_URL.fullmatch(found.lower()), found.partition("://")[2].partition("/")[2]
    if origin is None or any(not part or part in (".", "..") for part in path.split("/") if path):
        raise ValueError(f"{url!r} is not an address such as https://images.example.org")
    return found


def _each(form: re.Pattern[str], described: str) -> AfterValidator:
    """What checks that each of several values has a form."""

    def check(values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            if not form.fullmatch(value):
                raise ValueError(f"{value!r} is not {described}")
        return values

    return AfterValidator(check)


def _checked_template(template: str) -> str:
    """Return the template of a viewer's address, with a place for the study and for nothing strange."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"{template!r} is not an address with places in braces: {error}") from None
    places = [name for _, name, _, _ in parts if name is not None]
    plain = all(not spec and conversion is None for _, _, spec, conversion in parts)
    if not plain or "study" not in places or not set(places) <= _PLACES:
        raise ValueError(
            f"{template!r} needs {{study}}, and may have {{series}} and {{sop}}, such as "
            "/reading#study={study}&image={sop}"
        )
    if not template.startswith(("/", "https://", "http://")) or template.startswith("//"):
        raise ValueError(
            f"{template!r} is no path of the service, and does not begin with https:// or http://"
        )
    return template


def _checked_times(times: str) -> str:
    if len(times.split()) != len(_CRON_FIELDS):
        raise ValueError(f"give {len(_CRON_FIELDS)} parts: {', '.join(_CRON_FIELDS)}")
    try:
        CronSim(times, datetime.now(UTC))
    except CronSimError as error:
        raise ValueError(f"{error}: give times as in a crontab, such as 0 3 * * 0") from None
    return times


def _checked_arguments(line: str) -> str:
    if (shlex.split(line) or ["-"])[0].startswith("-"):
        raise ValueError("give a collection, then options, such as films --modality DX")
    return line


def _parsed_roles(value: object) -> dict[str, Mapping[str, frozenset[Role]]]:
    try:
        groups = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        groups = None
    if not isinstance(groups, dict):
        raise ValueError('give JSON such as {"radiology": {"scenes": ["reader"]}}')
    return {str(group): parse_grants(grants) for group, grants in groups.items()}


def _split_commas(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


_BY_COMMAS: Final = BeforeValidator(_split_commas)
Names = Annotated[tuple[str, ...], NoDecode, _BY_COMMAS]
RolesOfGroups = Annotated[dict[str, dict[str, frozenset[Role]]], NoDecode, BeforeValidator(_parsed_roles)]
# As in a crontab.
Times = Annotated[str, AfterValidator(_checked_times)]
# Forms of the results of a search: a secondary capture, a structured report, FHIR ImagingSelections.
ResultForm = Literal["capture", "report", "selection"]


class Settings(BaseSettings):
    """Every setting of the service; each is read from the variable `RECOQUEST_<NAME>`.

    docs/configuration.md has their texts, with links.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    retrain: Names = ()
    """Collections that workers retrain by themselves, separated by commas."""
    retrain_at: Times | None = None
    """Times in UTC: minute, hour, day, month, weekday, such as 0 3 * * 0."""
    retrain_feedback: int | None = Field(default=None, ge=1)
    """New usable judgements of hits that start a retraining."""
    retrain_promote: bool = False
    """Activate a model that passes at once; False: it waits for an operator."""

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

    pacs_write_back: Annotated[tuple[ResultForm, ...], NoDecode, _BY_COMMAS] = ()
    """Forms in which similar cases may be written back to the archive, separated by commas: capture, report,
    selection; empty: nothing is written."""

    dicomweb: bool = False
    """Whether readers of all collections reach the archive of RECOQUEST_PACS_URL, with the names of patients,
    under /dicomweb; not with open reading."""
    viewer_url: Annotated[str, AfterValidator(_checked_template)] | None = None
    """Address that opens a study in a viewer, with {study}, {series} and {sop}; None: that of the installed
    viewer, where RECOQUEST_DICOMWEB is on."""

    home: Path = Path("recoquest-data")
    """Folder of the catalogue, images and bundles."""
    database_url: str | None = None
    """SQLAlchemy URL of the catalogue; None: SQLite inside the home folder."""
    database_timeout_s: float = Field(default=10.0, gt=0)
    """Maximum seconds of a reading statement on a PostgreSQL catalogue."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    device: str = "auto"
    """Device of encoders, training and `gpu` views: auto, cpu, cuda or cuda:N."""
    threads: int | None = Field(default=None, ge=1)
    """Threads that encode queries on the CPU; None: the number of cores."""

    admin_key: SecretStr | None = Field(default=None, min_length=16)
    """A key with every right, beside those of `recoquest keys`."""
    open_reading: bool = False
    """Whether everybody who reaches the service may search, without a key."""
    open_network: bool = False
    """Whether that holds for other machines too; False: the service does not start with both open reading and
    an address that others reach."""
    oidc_issuer: str | None = None
    """Address of an OpenID Connect provider whose tokens are taken."""
    oidc_audience: str | None = None
    """Audience that tokens of programs must name; None: none of these are taken."""
    oidc_client_id: str | None = Field(default=None, min_length=1)
    """Client of the page at the provider; with it, people sign in there."""
    oidc_client_secret: SecretStr | None = Field(default=None, min_length=1)
    """Secret of that client; None: it is a public one."""
    public_url: Annotated[str, AfterValidator(_checked_public_url)] | None = None
    """Address of the service in browsers, to which the provider sends them back; with a path, as in
    https://example.org/photos, a proxy serves it below the path. None: as the request says."""
    oidc_groups_claim: str = Field(default="groups", min_length=1)
    """Claim with a caller's groups; a dot leads into an object, as in realm_access.roles."""
    oidc_roles: RolesOfGroups = {}
    """Roles by group and collection as JSON, such as {"radiology": {"scenes": ["reader"]}}; *: every
    collection."""

    traces_url: str | None = Field(default=None, pattern="^https?://")
    """Collector that takes traces as OTLP over HTTP; needs the extra `telemetry`."""

    audit: bool = True
    """Whether an audit trail is kept."""
    audit_queries: QueryForm = "text"
    """Form of queries in the audit trail: text, a keyed hash (`hash`), or none."""
    audit_key: SecretStr | None = Field(default=None, min_length=16)
    """Key of its hashes; None: one in the home folder."""
    backup_passphrase: SecretStr | None = Field(default=None, min_length=12)
    """Encrypts the keys of the home folder in backups; None: a backup has none of them."""

    max_connections: int = Field(default=1024, ge=8)
    """Most open connections; more get status 503."""
    max_bodies_bytes: int = Field(default=128 * MIB, ge=1024)
    """Most bytes of bodies at a time; more get status 429."""
    max_body_bytes: int = Field(default=24 * MIB, ge=1024)
    """Largest body of a form, or of embeddings, with an image."""
    max_json_bytes: int = Field(default=MIB, ge=1024)
    """Largest body of any other request."""
    max_image_bytes: int = Field(default=20 * MIB, ge=1)
    """Largest image file."""
    max_image_pixels: int = Field(default=50_000_000, ge=1)
    """Most pixels of an image; a JPEG counts with the size that it is decoded at."""
    accept_truncated_images: bool = False
    """Whether a JPEG whose end is missing is taken as far as it goes; False: it is refused."""
    max_text_length: int = Field(default=10_000, ge=1)
    """Most characters of a text query."""
    max_filter_length: int = Field(default=16_384, ge=2)
    """Most characters of a filter as JSON."""
    concurrent_decodes: int = Field(default=2, ge=1)
    """Images decoded at the same time, each in a process of its own."""
    decode_memory_bytes: int = Field(default=560 * MIB, ge=32 * MIB)
    """Memory that decoding one image may take."""

    keep_metadata: bool = False
    """Whether image files are stored with position, names, serial numbers and comments; False: these are
    taken out."""

    keep_dates: bool = False
    """Whether dates of DICOM studies are kept; False: shifted by patient."""

    encode_batch_size: int = Field(default=16, ge=1)
    """Most queries in one forward pass."""
    encode_batch_wait_ms: float = Field(default=3.0, ge=0, le=1000)
    """Milliseconds that a busy encoder waits for a batch to fill."""
    encode_queue_size: int = Field(default=64, ge=1)
    """Most waiting searches, and most waiting uploads; more get status 429."""
    encode_deadline_s: float = Field(default=10.0, gt=0)
    """Maximum seconds from arrival to answer of a search."""
    readiness_timeout_s: float = Field(default=5.0, gt=0)
    """Maximum seconds of a readiness pass."""
    readiness_cache_s: float = Field(default=1.0, ge=0)
    """Seconds that a readiness report is kept."""
    refresh_s: float = Field(default=1.0, gt=0)
    """Seconds between checks for new active generations."""

    keep_generations: int = Field(default=1, ge=1)
    """Number of former active generations kept for a rollback."""

    open_feedback: bool = False
    """Whether everybody who may search may judge hits; False: only who has the role judge."""
    max_feedback: int = Field(default=100_000, ge=0)
    """Most judgements in a collection."""

    job_lease_s: float = Field(default=30.0, ge=1)
    """Seconds without a heartbeat after which a worker loses its job."""
    job_stop_s: float = Field(default=30.0, ge=0)
    """Seconds that a job may take to stop before it is killed."""
    train_processes: int = Field(default=0, ge=0)
    """Processes that share a training job or a retraining; 0: one for each GPU."""
    keep_jobs_days: int = Field(default=90, ge=0)
    """Days after which `recoquest tidy` removes the files of ended jobs; 0: never."""
    keep_waiting_reports_days: int = Field(default=90, ge=0)
    """Days after which reports whose studies have no image are forgotten; 0: never."""

    allowed_hosts: Annotated[Names, _each(_HOST, "a name without a port, such as images.example.org")] = ()
    """Names under which the service answers beside localhost, separated by commas, such as
    images.example.org; .example.org: all below it, *: every name."""
    cors_origins: Annotated[Names, _each(_ORIGIN, _AN_ORIGIN)] = ()
    """Origins of other pages that may call the service, separated by commas."""
    frame_ancestors: Annotated[Names, _each(_ANCESTOR, _AN_ORIGIN)] = ()
    """Origins that may show the service's page in a frame, separated by commas."""
    hidden_fields: Names = ()
    """Fields that the page does not show, separated by commas; programs still get them."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level of the log."""

    @model_validator(mode="before")
    @classmethod
    def _read_lines(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Leave out lines of a settings file that name the file of a secret."""
        files = {name + _END for name in _secrets()}
        return {name: value for name, value in values.items() if name.upper() not in files}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic gives it by name
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read the files that variables of the environment and of the settings file name."""
        assert isinstance(dotenv_settings, DotEnvSettingsSource)
        secrets = InitSettingsSource(settings_cls, _secrets_of_files(dotenv_settings.env_vars))
        return init_settings, env_settings, secrets, dotenv_settings

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

    @model_validator(mode="after")
    def _is_whole_provider(self) -> Self:
        if self.oidc_issuer is not None:
            if not is_safe_url(self.oidc_issuer):
                raise ValueError("RECOQUEST_OIDC_ISSUER must be an address that begins with https://")
            if not self.oidc_audience and self.oidc_client_id is None:
                raise ValueError(
                    "RECOQUEST_OIDC_ISSUER needs RECOQUEST_OIDC_AUDIENCE, for tokens of programs, or "
                    "RECOQUEST_OIDC_CLIENT_ID, for people at the page, beside it"
                )
        elif self.oidc_client_id is not None:
            raise ValueError("RECOQUEST_OIDC_CLIENT_ID needs RECOQUEST_OIDC_ISSUER beside it")
        if self.oidc_client_secret is not None and self.oidc_client_id is None:
            raise ValueError("RECOQUEST_OIDC_CLIENT_SECRET needs RECOQUEST_OIDC_CLIENT_ID beside it")
        return self

    @property
    def root_path(self) -> str:
        """Path that a proxy serves the service below, such as `/photos`; empty at the root of its host."""
        return urlsplit(self.public_url or "").path

    @property
    def catalogue_url(self) -> str:
        """The catalogue's SQLAlchemy URL, the default one filled in."""
        return self.database_url or f"sqlite:///{self.home / 'catalogue.sqlite3'}"

    @property
    def image_limits(self) -> "ImageLimits":
        """What an image may cost, in imports, indexes and the service alike."""
        # Its decoders take longer to load than most commands.
        from training.imaging.images import ImageLimits

        return ImageLimits(
            max_bytes=self.max_image_bytes,
            max_pixels=self.max_image_pixels,
            accept_truncated=self.accept_truncated_images,
            dicom=self.radiology,
        )

    def environment_of_a_job(self, environment: Mapping[str, str]) -> dict[str, str]:
        """An environment like the one given, in which another process has these settings in any folder.

        What says who may send requests is left out, and the passphrase of backups: a job does neither.
        """
        known = _known_variables()
        kept = {name: value for name, value in environment.items() if name.upper() not in known}
        values = {name: getattr(self, name) for name in self.model_fields_set - _OF_CALLERS}
        values["home"] = self.home
        # No path may depend on the folder that the process works in.
        for name, value in values.items():
            if isinstance(value, SecretStr):
                values[name] = value.get_secret_value()
            elif isinstance(value, Path):
                values[name] = value.absolute()
        if self.database_url is not None:
            values["database_url"] = _absolute_url(self.database_url)
        given = {PREFIX + n.upper(): as_text(value) for n, value in values.items() if value is not None}
        return {**kept, **given}

    def printable(self) -> dict[str, Any]:
        """Every setting resolved, as JSON values and without a password."""
        values = self.model_dump(mode="json")
        values["database_url"] = without_password(self.catalogue_url)
        return values


def load_settings(env_file: Path | None = None, **values: Any) -> Settings:
    """Read settings: arguments but None win over the environment, the environment over the file.

    The file, which RECOQUEST_ENV_FILE names by default, has lines of NAME=value, settings alone.

    Raises:
        SettingsError: The file is missing, or a setting is unknown or not valid.
    """
    named = os.environ.get(ENV_FILE_VARIABLE)
    if env_file is None and named:
        env_file = Path(named)
    if env_file is not None and not env_file.is_file():
        raise SettingsError(f"The settings file {env_file} does not exist.")
    given = {name: value for name, value in values.items() if value is not None}
    try:
        return Settings(_env_file=env_file, **given)
    except ValidationError as error:
        raise SettingsError(_explained(error)) from None


def _explained(error: ValidationError) -> str:
    parts = []
    for found in error.errors(include_url=False, include_input=False):
        name = ".".join(str(part) for part in found["loc"]).upper().removeprefix(PREFIX)
        if found["type"] == "extra_forbidden":
            parts.append(f"{PREFIX}{name} is not a setting")
        elif found["type"] == "too_short":
            parts.append(f"{PREFIX}{name}: at least {found['ctx']['min_length']} letters are needed")
        else:
            message = found["msg"].removeprefix("Value error, ")
            parts.append(f"{PREFIX}{name}: {message}" if name else message)
    return f"The settings cannot be used: {'; '.join(parts)}."


def _secrets() -> list[str]:
    """Variables of secrets; the address of the database may hold a password."""
    return [
        PREFIX + name.upper()
        for name, field in Settings.model_fields.items()
        if SecretStr in get_args(field.annotation) or name == "database_url"
    ]


def _secrets_of_files(lines: Mapping[str, str | None]) -> dict[str, Any]:
    """Read the files that the environment or the settings file, whose lines these are, names for secrets."""
    given: dict[str, str] = {}
    for source in (lines, os.environ):
        given |= {name.upper(): value for name, value in source.items() if value}
    return {
        name.removeprefix(PREFIX).lower(): _secret(name, given) for name in _secrets() if name + _END in given
    }


def _secret(name: str, given: Mapping[str, str]) -> str:
    """Read the file of a secret; the last end of line does not count."""
    variable, path = name + _END, given[name + _END]
    if name in given:
        raise SettingsError(f"Give {name} or {variable}, not both: variables and lines of the settings file.")
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_SECRET_BYTES + 1)
        secret = content.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise SettingsError(f"{variable} names {path}, which cannot be read: {error.strerror}.") from None
    except ValueError:
        raise SettingsError(f"{variable} names {path}, which holds no secret in UTF-8.") from None
    if len(content) > _MAX_SECRET_BYTES:
        raise SettingsError(f"{variable} names {path}, which has more than {_MAX_SECRET_BYTES:,} bytes.")
    if not secret.strip():
        raise SettingsError(f"{variable} names {path}, which is empty: write the secret into it.")
    return secret


def as_text(value: object) -> str:
    """A setting as a variable from which the same setting is read."""
    if isinstance(value, dict):
        return json.dumps(value)
    return ",".join(value) if isinstance(value, list | tuple) else str(value)


def _absolute_url(url: str) -> str:
    """Return the URL of a catalogue, in which the path of an SQLite file does not depend on the folder."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        return url
    database = os.path.abspath(parsed.database)  # noqa: PTH100
    return parsed.set(database=database).render_as_string(hide_password=False)


def unknown_variables() -> list[str]:
    """Names in the environment that look like settings and are none: a likely slip of the pen."""
    # RECOQUEST_DEBUG is a switch of the command line.
    known = _known_variables() | {PREFIX + "DEBUG"}
    candidates = (name for name in os.environ if name.upper().startswith(PREFIX))
    return sorted(n for n in candidates if n.upper() not in known and not n.startswith(_TEST_PREFIX))


def _known_variables() -> set[str]:
    return {
        ENV_FILE_VARIABLE,
        *(name + _END for name in _secrets()),
        *(PREFIX + name.upper() for name in Settings.model_fields),
    }
