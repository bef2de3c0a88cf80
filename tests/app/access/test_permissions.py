"""A route that needs several roles, which is checked once before its body is read."""

from typing import Any

import pytest
from fastapi import APIRouter
from fastapi.testclient import TestClient

from app.application import create_app
from app.permissions import GuardedRoute, may
from index.keys.api_keys import Role, create_key
from tests.app.conftest import Indexed

router = APIRouter(route_class=GuardedRoute)


@router.post("/v1/both", dependencies=[may("reader"), may("auditor")])
async def take_both(body: dict[str, Any]) -> int:
    return len(body)


@pytest.mark.parametrize(
    ("roles", "status"), [({"reader"}, 403), ({"auditor"}, 403), ({"reader", "auditor"}, 200)]
)
def test_each_of_several_roles_is_needed(own: Indexed, roles: set[Role], status: int) -> None:
    with own.write() as session:
        key = create_key(session, "client", {"*": frozenset(roles)}, days=None).text
    application = create_app(own.settings.model_copy(update={"open_reading": False}))
    application.include_router(router)
    with TestClient(application, "http://localhost", headers={"Authorization": f"Bearer {key}"}) as client:
        assert client.post("/v1/both", json={}).status_code == status
        del client.headers["Authorization"]
        # Before the body, which is no JSON.
        assert client.post("/v1/both", content=b"{").status_code == 401
