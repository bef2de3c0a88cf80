"""Liveness, readiness and metrics."""

from http import HTTPStatus
from typing import Literal

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from app.edge.operations import operation
from app.edge.problems import NOT_READY, FieldError, RequestError, describe_errors, problem_responses
from app.edge.schemas import Answer
from app.health.readiness import DEGRADED
from app.permissions import GuardedRoute
from app.services import InjectedServices


class Live(Answer):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Ready(Answer):
    """Searches are answered; `degraded`: not those of collections whose encoder cannot be loaded."""

    status: Literal["ready", "degraded"] = "ready"
    checks: dict[str, str]


router = APIRouter(tags=["health"], route_class=GuardedRoute)


@router.get("/livez", summary="Liveness")
@operation(None, "health")
async def get_liveness() -> Live:
    """Whether the process answers; restart it if this doesn't."""
    return Live()


@router.get("/readyz", summary="Readiness", responses=problem_responses(HTTPStatus.SERVICE_UNAVAILABLE))
@operation(None, "health")
async def get_readiness(services: InjectedServices) -> Ready:
    """A real query went through every loaded encoder a moment ago, and views were loaded since the start.

    Send searches only while this is so. While an encoder cannot be loaded and another answers, the status is
    `degraded`, and searches of the collections of the first get 503.
    """
    checks = await services.readiness.report()
    failed = {name: result for name, result in checks.items() if result not in ("ok", DEGRADED)}
    if failed:
        errors = [FieldError(field=name, message=result) for name, result in failed.items()]
        raise RequestError(NOT_READY, describe_errors(errors), errors=errors)
    return Ready(status="degraded" if DEGRADED in checks.values() else "ready", checks=checks)


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    response_class=PlainTextResponse,
    responses={200: {"description": "Prometheus' text format.", "content": {"text/plain": {}}}},
)
@operation(None, "health")
async def get_metrics(services: InjectedServices) -> Response:
    """Requests, batches, queue and search times."""
    return Response(services.metrics.render(), media_type=CONTENT_TYPE_LATEST)
