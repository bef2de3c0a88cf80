"""Schemas of liveness and readiness."""

from typing import Literal

from app.edge.schemas import Answer


class Live(Answer):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Ready(Answer):
    """Searches are answered; `degraded`: not those of collections whose encoder cannot be loaded."""

    status: Literal["ready", "degraded"] = "ready"
    checks: dict[str, str]
