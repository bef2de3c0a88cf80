"""Settings, from the environment, an environment file, or arguments."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from app.secret_files import SecretFiles, file_variables
from app.setting_values import (
    absolute_url,
    as_text,
    checked_ancestors,
    checked_hosts,
    checked_origins,
    checked_public_url,
    explain_errors,
    is_safe_url,
)
from app.viewer_settings import ViewerSettings
from app.worker_settings import WorkerSettings
from index.audit.event import QueryForm
from index.catalogue.connections import without_password
from index.keys.api_keys import Role, parse_grants
from training.common.errors import RecoquestError

if TYPE_CHECKING:
    from training.imaging.images import ImageLimits

PREFIX = "RECOQUEST_"
ENV_FILE_VARIABLE = PREFIX + "ENV_FILE"
_TEST_PREFIX = PREFIX + "TEST_"

# Settings that may be in files of their own; see `app.secret_files`.
_SECRETS = "ADMIN_KEY DATABASE_URL AUDIT_KEY BACKUP_PASSPHRASE OIDC_CLIENT_SECRET PACS_PASSWORD PACS_TOKEN"
_IN_FILES = [PREFIX + name for name in _SECRETS.split()]
# Settings of older versions: files that have them are read as before.
GONE = frozenset({PREFIX + "QUEUE_URL"})
_NOT_FIELDS = GONE | frozenset(file_variables(_IN_FILES))

MIB = 2**20
_OF_CALLERS = frozenset(
    {"admin_key", "oidc_issuer", "oidc_audience", "oidc_client_id", "oidc_client_secret", "oidc_groups_claim"}
    | {"oidc_roles", "public_url", "backup_passphrase"}
)


class SettingsError(RecoquestError):
    """A setting is unknown or has a value that cannot be used."""


class Settings(ViewerSettings, WorkerSettings):
    """Every setting of the service; each is read from the variable `RECOQUEST_<NAME>`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    home: Path = Field(
        default=Path("recoquest-data"), description="Folder of the catalogue, images and bundles."
    )
    database_url: str | None = Field(
        default=None, description="SQLAlchemy URL of the catalogue; None: SQLite inside the home folder."
    )
    database_timeout_s: float = Field(
        default=10.0,
        gt=0,
        description="Maximum seconds of a reading statement on a PostgreSQL catalogue.",
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    device: str = Field(
        default="auto",
        description="Device of encoders, training and `gpu` views: auto, cpu, cuda or cuda:N.",
    )
    threads: int | None = Field(
        default=None, ge=1, description="Threads that encode queries on the CPU; None: the number of cores."
    )

    admin_key: SecretStr | None = Field(
        default=None,
        min_length=16,
        description="A key with every right, beside those of `recoquest keys`.",
    )
    open_reading: bool = Field(
        default=False, description="Whether everybody who reaches the service may search, without a key."
    )
    open_network: bool = Field(
        default=False,
        description="Whether that holds for other machines too; False: the service does not start with both "
        "open reading and an address that others reach.",
    )
    oidc_issuer: str | None = Field(
        default=None, description="Address of an OpenID Connect provider whose tokens are taken."
    )
    oidc_audience: str | None = Field(
        default=None,
        description="Audience that tokens of programs must name; None: none of these are taken.",
    )
    oidc_client_id: str | None = Field(
        default=None,
        min_length=1,
        description="Client of the page at the provider; with it, people sign in there.",
    )
    oidc_client_secret: SecretStr | None = Field(
        default=None, min_length=1, description="Secret of that client; None: it is a public one."
    )
    public_url: str | None = Field(
        default=None,
        description="Address of the service in browsers, to which the provider sends them back; with a path, "
        "as in https://example.org/photos, a proxy serves it below the path. None: as the request says.",
    )
    oidc_groups_claim: str = Field(
        default="groups",
        min_length=1,
        description="Claim with a caller's groups; a dot leads into an object, as in realm_access.roles.",
    )
    oidc_roles: Annotated[dict[str, dict[str, frozenset[Role]]], NoDecode] = Field(
        default={},
        description='Roles by group and collection as JSON, such as {"radiology": {"scenes": ["reader"]}}; '
        "*: every collection.",
    )

    traces_url: str | None = Field(
        default=None,
        pattern="^https?://",
        description="Collector that takes traces as OTLP over HTTP; needs the extra `telemetry`.",
    )

    audit: bool = Field(default=True, description="Whether an audit trail is kept.")
    audit_queries: QueryForm = Field(
        default="text", description="Form of queries in the audit trail: text, a keyed hash, or none."
    )
    audit_key: SecretStr | None = Field(
        default=None, min_length=16, description="Key of its hashes; None: one in the home folder."
    )
    backup_passphrase: SecretStr | None = Field(
        default=None,
        min_length=12,
        description="Encrypts the keys of the home folder in backups; None: a backup has none of them.",
    )

    max_connections: int = Field(
        default=1024, ge=8, description="Most open connections; more get status 503."
    )
    max_bodies_bytes: int = Field(
        default=128 * MIB, ge=1024, description="Most bytes of bodies at a time; more get status 429."
    )
    max_body_bytes: int = Field(
        default=24 * MIB, ge=1024, description="Largest body of a form, or of embeddings, with an image."
    )
    max_json_bytes: int = Field(default=MIB, ge=1024, description="Largest body of any other request.")
    max_image_bytes: int = Field(default=20 * MIB, ge=1, description="Largest image file.")
    max_image_pixels: int = Field(
        default=50_000_000,
        ge=1,
        description="Most pixels of an image; a JPEG counts with the size that it is decoded at.",
    )
    accept_truncated_images: bool = Field(
        default=False,
        description="Whether a JPEG whose end is missing is taken as far as it goes; False: it is refused.",
    )
    max_text_length: int = Field(default=10_000, ge=1, description="Most characters of a text query.")
    max_filter_length: int = Field(default=16_384, ge=2, description="Most characters of a filter as JSON.")
    concurrent_decodes: int = Field(
        default=2, ge=1, description="Images decoded at the same time, each in a process of its own."
    )
    decode_memory_bytes: int = Field(
        default=560 * MIB, ge=32 * MIB, description="Memory that decoding one image may take."
    )

    keep_metadata: bool = Field(
        default=False,
        description="Whether image files are stored with position, names, serial numbers and comments; "
        "False: these are taken out.",
    )

    keep_dates: bool = Field(
        default=False, description="Whether dates of DICOM studies are kept; False: shifted by patient."
    )

    encode_batch_size: int = Field(default=16, ge=1, description="Most queries in one forward pass.")
    encode_batch_wait_ms: float = Field(
        default=3.0, ge=0, le=1000, description="Milliseconds that a busy encoder waits for a batch to fill."
    )
    encode_queue_size: int = Field(
        default=64, ge=1, description="Most waiting searches, and most waiting uploads; more get status 429."
    )
    encode_deadline_s: float = Field(
        default=10.0, gt=0, description="Maximum seconds from arrival to answer of a search."
    )
    readiness_timeout_s: float = Field(default=5.0, gt=0, description="Maximum seconds of a readiness pass.")
    readiness_cache_s: float = Field(
        default=1.0, ge=0, description="Seconds that a readiness report is kept."
    )
    refresh_s: float = Field(
        default=1.0, gt=0, description="Seconds between checks for new active generations."
    )

    keep_generations: int = Field(
        default=1, ge=1, description="Number of former active generations kept for a rollback."
    )

    open_feedback: bool = Field(
        default=False,
        description="Whether everybody who may search may judge hits; False: only who has the role judge.",
    )
    max_feedback: int = Field(default=100_000, ge=0, description="Most judgements in a collection.")

    job_lease_s: float = Field(
        default=30.0, ge=1, description="Seconds without a heartbeat after which a worker loses its job."
    )
    job_stop_s: float = Field(
        default=30.0, ge=0, description="Seconds that a job may take to stop before it is killed."
    )
    train_processes: int = Field(
        default=0,
        ge=0,
        description="Processes that share a training job or a retraining; 0: one for each GPU.",
    )
    keep_jobs_days: int = Field(
        default=90,
        ge=0,
        description="Days after which `recoquest tidy` removes the files of ended jobs; 0: never.",
    )
    keep_waiting_reports_days: int = Field(
        default=90,
        ge=0,
        description="Days after which reports whose studies have no image are forgotten; 0: never.",
    )

    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Names under which the service answers beside localhost, separated by commas, such as "
        "images.example.org; .example.org: all below it, *: every name.",
    )
    cors_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Origins of other pages that may call the service, separated by commas."
    )
    frame_ancestors: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Origins that may show the service's page in a frame, separated by commas."
    )
    hidden_fields: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Fields that the page does not show, separated by commas; programs still get them.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level of the log."
    )

    @model_validator(mode="before")
    @classmethod
    def _read_lines(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Leave out lines of a settings file that have no effect any more, or name the file of a secret."""
        return {name: value for name, value in values.items() if name.upper() not in _NOT_FIELDS}

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
        secrets = SecretFiles(settings_cls, _IN_FILES, dotenv_settings.env_vars)
        return init_settings, env_settings, secrets, dotenv_settings

    @field_validator(
        *("allowed_hosts", "cors_origins", "frame_ancestors", "retrain", "hidden_fields", "pacs_write_back"),
        mode="before",
    )
    @classmethod
    def _split_commas(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("allowed_hosts")
    @classmethod
    def _are_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return checked_hosts(value)

    @field_validator("frame_ancestors")
    @classmethod
    def _are_ancestors(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return checked_ancestors(value)

    @field_validator("cors_origins")
    @classmethod
    def _are_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return checked_origins(value)

    @field_validator("oidc_roles", mode="before")
    @classmethod
    def _are_roles(cls, value: object) -> object:
        try:
            groups = json.loads(value) if isinstance(value, str) else value
        except ValueError:
            groups = None
        if not isinstance(groups, dict):
            raise ValueError('give JSON such as {"radiology": {"scenes": ["reader"]}}')
        return {str(group): parse_grants(grants) for group, grants in groups.items()}

    @field_validator("public_url")
    @classmethod
    def _is_public_url(cls, value: str | None) -> str | None:
        return None if value is None else checked_public_url(value)

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
        )

    def environment_of_a_job(self, environment: Mapping[str, str]) -> dict[str, str]:
        """An environment like the one given, in which another process has these settings in any folder.

        What says who may send requests is left out, and the passphrase of backups: a job does neither.
        """
        known = _known_variables()
        kept = {name: value for name, value in environment.items() if name.upper() not in known}
        values = {name: getattr(self, name) for name in self.model_fields_set - _OF_CALLERS}
        for name, value in values.items():
            if isinstance(value, SecretStr):
                values[name] = value.get_secret_value()
        # Neither may depend on the folder that the process works in.
        values["home"] = self.home.absolute()
        if self.pacs_ca is not None:
            values["pacs_ca"] = self.pacs_ca.absolute()
        if self.database_url is not None:
            values["database_url"] = absolute_url(self.database_url)
        given = {PREFIX + n.upper(): as_text(value) for n, value in values.items() if value is not None}
        return {**kept, **given}

    def printable(self) -> dict[str, Any]:
        """Every setting resolved, as JSON values and without a password."""
        values = self.model_dump(mode="json")
        values["database_url"] = without_password(self.catalogue_url)
        return values


def load_settings(env_file: Path | None = None, **values: Any) -> Settings:
    """Read settings: arguments win over the environment, the environment over the file.

    Args:
        env_file: Lines of NAME=value; a name that is not a setting is refused. None: the file that
            RECOQUEST_ENV_FILE names, if it is set.
        values: Settings given by the caller; those that are None are left to the other sources.

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
        raise SettingsError(
            explain_errors(PREFIX, error.errors(include_url=False, include_input=False))
        ) from None


def unknown_variables(environment: Mapping[str, str] | None = None) -> list[str]:
    """Names in the environment that look like settings and are none: a likely slip of the pen."""
    names = os.environ if environment is None else environment
    known = _known_variables()
    candidates = (name for name in names if name.upper().startswith(PREFIX))
    return sorted(n for n in candidates if n.upper() not in known and not n.startswith(_TEST_PREFIX))


def _known_variables() -> set[str]:
    return {
        ENV_FILE_VARIABLE,
        *file_variables(_IN_FILES),
        *(PREFIX + name.upper() for name in Settings.model_fields),
    }
