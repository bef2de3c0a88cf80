"""Secrets in files whose names are settings: as Docker and Kubernetes give them to containers."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from training.common.errors import RecoquestError

_END: Final = "_FILE"
_MAX_BYTES: Final = 1 << 16


class SecretFileError(RecoquestError):
    """The file of a secret cannot be used."""


class SecretFiles(PydanticBaseSettingsSource):
    """Settings whose files the environment or the settings file names, in variables that end with `_FILE`.

    Args:
        settings: The settings.
        variables: Their variables; with the end `_FILE`, these name the files.
        lines: Variables of the settings file; the environment wins over them.
    """

    def __init__(
        self, settings: type[BaseSettings], variables: Sequence[str], lines: Mapping[str, str | None]
    ) -> None:
        super().__init__(settings)
        self._variables = variables
        self._lines = lines

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002
        """Give no value: all are read together."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Read the files.

        Raises:
            SecretFileError: A file cannot be read or has no secret, or a variable is there as well.
        """
        given: dict[str, str] = {}
        for source in (self._lines, os.environ):
            given |= {name.upper(): value for name, value in source.items() if value}
        prefix = str(self.config.get("env_prefix", ""))
        return {
            name.removeprefix(prefix).lower(): _secret(name, given)
            for name in self._variables
            if name + _END in given
        }


def file_variables(variables: Sequence[str]) -> list[str]:
    """Return the variables that name the files of others."""
    return [name + _END for name in variables]


def _secret(name: str, given: Mapping[str, str]) -> str:
    """Read the file of a secret; the last end of line does not count."""
    variable, path = name + _END, given[name + _END]
    if name in given:
        raise SecretFileError(
            f"Give {name} or {variable}, not both: variables and lines of the settings file."
        )
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        secret = content.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise SecretFileError(f"{variable} names {path}, which cannot be read: {error.strerror}.") from None
    except ValueError:
        raise SecretFileError(f"{variable} names {path}, which holds no secret in UTF-8.") from None
    if len(content) > _MAX_BYTES:
        raise SecretFileError(f"{variable} names {path}, which has more than {_MAX_BYTES:,} bytes.")
    if not secret.strip():
        raise SecretFileError(f"{variable} names {path}, which is empty: write the secret into it.")
    return secret
