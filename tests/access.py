"""The key that tests give to services, and requests that bring it."""

from typing import Any, Final

from pydantic import SecretStr

ADMIN_KEY: Final = "a key of the tests, with every right"
AS_ADMIN: Final = {"Authorization": f"Bearer {ADMIN_KEY}"}
# Settings of a service that anybody may search, and that takes changes with the key.
OPEN: Final[dict[str, Any]] = {"open_reading": True, "admin_key": SecretStr(ADMIN_KEY)}
# The same for a process of its own.
OPEN_ENVIRONMENT: Final = {"RECOQUEST_OPEN_READING": "true", "RECOQUEST_ADMIN_KEY": ADMIN_KEY}
