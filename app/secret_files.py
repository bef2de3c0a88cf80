"""Secrets in files whose names are settings: as Docker and Kubernetes give them to containers."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from training.errors import RecoquestError

_END: Final = "_FILE"
_MAX_BYTES: Final = 1 << 16


class SecretFileError(RecoquestError):
    """The file of a secret cannot be used."""


class SecretFiles(PydanticBaseSettingsSource):
    """Settings whose files the environment names, in variables that end with `_FILE`.

    Args:
        settings: The settings.
        variables: Their variables; with the end `_FILE`, these name the files.
    """

    def __init__(self, settings: type[BaseSettings], variables: Sequence[str]) -> None:
        super().__init__(settings)
        self._variables = variables

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002
        """Give no value: all are read together."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Read the files.

        Raises:
            SecretFileError: A file cannot be read, or a variable is there as well.
        """
        environment = {name.upper(): value for name, value in os.environ.items() if value}
        for name in self._variables:
            if name in environment and name + _END in environment:
                raise SecretFileError(f"Give {name} or {name}{_END}, not both.")
        prefix = str(self.config.get("env_prefix", ""))
        found = read_secrets(environment, self._variables)
        return {name.removeprefix(prefix).lower(): value for name, value in found.items()}


def file_variables(variables: Sequence[str]) -> list[str]:
    """Return the variables that name the files of others."""
    return [name + _END for name in variables]


def read_secrets(given: Mapping[str, str], variables: Sequence[str]) -> dict[str, str]:
    """Read the files that are named for some of the variables; the last end of line does not count.

    Raises:
        SecretFileError: A file cannot be read.
    """
    found = {}
    for name in variables:
        path = given.get(name + _END)
        if not path:
            continue
        try:
            content = Path(path).read_bytes()
            if len(content) > _MAX_BYTES:
                raise ValueError
            found[name] = content.decode().removesuffix("\n").removesuffix("\r")
        except OSError as error:
            raise SecretFileError(
                f"{name}{_END} names {path}, which cannot be read: {error.strerror}."
            ) from None
        except ValueError:
            raise SecretFileError(f"{name}{_END} names {path}, which holds no secret in UTF-8.") from None
    return found
