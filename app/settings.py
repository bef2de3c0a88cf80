"""Settings, from the environment, an environment file, files of secrets, or arguments."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from sqlalchemy import make_url

from app.radiology.settings import RadiologySettings
from app.setting_values import (
    Ancestors,
    DeviceName,
    Hosts,
    Names,
    Origins,
    PublicUrl,
    RolesOfGroups,
    Times,
    is_safe_url,
)
from index.audit.event import QueryForm
from index.catalogue.connections import without_password
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


class SettingsError(RecoquestError):
    """A setting is unknown, or its value or the file of its secret cannot be used."""


class Settings(RadiologySettings):
    """Every setting of the service; each is read from the variable `RECOQUEST_<NAME>`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    retrain: Names = ()
    """Collections that workers retrain by themselves, separated by commas."""
    retrain_at: Times | None = None
    """Times in UTC: minute, hour, day, month, weekday, such as 0 3 * * 0."""
    retrain_feedback: int | None = Field(default=None, ge=1)
    """New usable judgements of hits that start a retraining."""
    retrain_promote: bool = False
    """Activate a model that passes at once; False: it waits for an operator."""

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
    device: DeviceName = "auto"
    """Device of encoders, training and `gpu` views: auto, cpu, cuda or cuda:N."""
    threads: int | None = Field(default=None, ge=1)
    """Threads that encode queries on the CPU; None: the number of cores."""

    admin_key: SecretStr | None = Field(default=None, min_length=16)
    """A key with all permissions, in addition to those of `recoquest keys`."""
    open_reading: bool = False
    """Whether everybody who reaches the service may search, without a key."""
    open_network: bool = False
    """Whether that also applies to other machines; False: the service does not start with both open reading
    and an address that others reach."""
    oidc_issuer: str | None = None
    """Address of an OpenID Connect provider whose tokens are taken."""
    oidc_audience: str | None = None
    """Audience that tokens of programs must name; None: none of these are taken."""
    oidc_client_id: str | None = Field(default=None, min_length=1)
    """Client of the page at the provider; with it, people sign in there."""
    oidc_client_secret: SecretStr | None = Field(default=None, min_length=1)
    """Secret of that client; None: it is a public one."""
    public_url: PublicUrl | None = None
    """Address of the service in browsers, to which the provider sends them back; with a path, as in
    https://example.org/photos, a proxy serves it below the path. None: as the request says."""
    oidc_groups_claim: str = Field(default="groups", min_length=1)
    """Claim with a caller's groups; a dot leads into an object, as in realm_access.roles."""
    oidc_roles: RolesOfGroups = Field(default={})
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
    allowed_hosts: Hosts = ()
    """Names under which the service answers in addition to localhost, separated by commas, such as
    images.example.org; .example.org: all below it, *: every name."""
    cors_origins: Origins = ()
    """Origins of other pages that may call the service, separated by commas."""
    frame_ancestors: Ancestors = ()
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
    def _is_whole_provider(self) -> Self:
        if self.oidc_issuer is not None:
            if not is_safe_url(self.oidc_issuer):
                raise ValueError("RECOQUEST_OIDC_ISSUER must be an address that begins with https://")
            if not self.oidc_audience and self.oidc_client_id is None:
                raise ValueError(
                    "RECOQUEST_OIDC_ISSUER needs RECOQUEST_OIDC_AUDIENCE, for tokens of programs, or "
                    "RECOQUEST_OIDC_CLIENT_ID, for people at the page"
                )
        elif self.oidc_client_id is not None:
            raise ValueError("RECOQUEST_OIDC_CLIENT_ID needs RECOQUEST_OIDC_ISSUER")
        if self.oidc_client_secret is not None and self.oidc_client_id is None:
            raise ValueError("RECOQUEST_OIDC_CLIENT_SECRET needs RECOQUEST_OIDC_CLIENT_ID")
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
        """A copy of an environment, with which another process has these settings in any folder.

        Access settings and the passphrase of backups are left out, as jobs don't use them.
        """
        variables = _known_variables()
        kept = {name: value for name, value in environment.items() if name.upper() not in variables}
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
        set_values = {PREFIX + n.upper(): as_text(value) for n, value in values.items() if value is not None}
        return {**kept, **set_values}

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
    explicit = {name: value for name, value in values.items() if value is not None}
    try:
        return Settings(_env_file=env_file, **explicit)
    except ValidationError as error:
        raise SettingsError(_explained(error)) from None


def _explained(error: ValidationError) -> str:
    parts = []
    for problem in error.errors(include_url=False, include_input=False):
        name = ".".join(str(part) for part in problem["loc"]).upper().removeprefix(PREFIX)
        if problem["type"] == "extra_forbidden":
            parts.append(f"{PREFIX}{name} is not a setting")
        elif problem["type"] == "too_short":
            parts.append(f"{PREFIX}{name}: at least {problem['ctx']['min_length']} letters are needed")
        else:
            message = problem["msg"].removeprefix("Value error, ")
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
    variables: dict[str, str] = {}
    for source in (lines, os.environ):
        variables |= {name.upper(): value for name, value in source.items() if value}
    return {
        name.removeprefix(PREFIX).lower(): _secret(name, variables)
        for name in _secrets()
        if name + _END in variables
    }


def _secret(name: str, variables: Mapping[str, str]) -> str:
    """Read the file of a secret, without a final newline."""
    variable, path = name + _END, variables[name + _END]
    if name in variables:
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
    """Names in the environment that look like settings but aren't: probably typos."""
    # A switch of the command line, and a variable that workers set for jobs.
    known_names = _known_variables() | {PREFIX + "DEBUG", PREFIX + "PROGRESS"}
    candidates = (name for name in os.environ if name.upper().startswith(PREFIX))
    return sorted(n for n in candidates if n.upper() not in known_names and not n.startswith(_TEST_PREFIX))


def _known_variables() -> set[str]:
    return {
        ENV_FILE_VARIABLE,
        *(name + _END for name in _secrets()),
        *(PREFIX + name.upper() for name in Settings.model_fields),
    }
