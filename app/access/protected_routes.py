"""Routes that ask who may send before they read anything."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from app.access.security import require_admin, require_feedback

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

_CHECKS = (require_admin, require_feedback)
_BEARER = HTTPBearer(auto_error=False)


class GuardedRoute(APIRoute):
    """A route that runs its check of who may send first: the framework reads a JSON body before it."""

    def get_route_handler(self) -> Handler:
        """The handler, after the check that is among the route's dependencies."""
        handle = self.answering(super().get_route_handler())
        wanted = {dependency.call for dependency in self.dependant.dependencies}
        checks = [check for check in _CHECKS if check in wanted]

        async def checked(request: Request) -> Response:
            for check in checks:
                await check(request, await _BEARER(request))
            return await handle(request)

        return checked if checks else handle

    def answering(self, handle: Handler) -> Handler:
        """Return what answers a request that has passed the check; other routes may do more before."""
        return handle
