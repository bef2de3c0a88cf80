"""The role that each operation needs, checked before anything of a request's body is read."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from http import HTTPStatus
from operator import attrgetter
from typing import Annotated, Any, Final

from fastapi import Depends, Request, Response, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from app.access.authentication import KEY_NEEDED
from app.access.sessions import keep_as_long
from app.edge.principal import Principal, Role, principal_of
from app.edge.problems import Kind, RequestError
from app.services import services_of
from index.errors import shortened

_BEARER = HTTPBearer(
    auto_error=False,
    scheme_name="bearer",
    description="A key of `recoquest keys`, the value of RECOQUEST_ADMIN_KEY, or a token of the OpenID "
    "Connect provider in the settings.",
)
_COLLECTION: Final = "collection"

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


@dataclass(frozen=True, slots=True)
class Permission:
    """A dependency that lets those pass who have a role in the collection of the path.

    Attributes:
        role: Role that is needed; in all collections where the path has none.
        somewhere: Whether the role in any collection is enough, because the answer is limited to those.
        everywhere: Whether the role in all collections is needed, even if the path has one.
        of_job: Whether a role in one collection may be enough, by the job of the path.
    """

    role: Role
    somewhere: bool = False
    everywhere: bool = False
    of_job: bool = False

    async def __call__(
        self, request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)]
    ) -> None:
        """Check a request, unless its route did before it read the body; see `check`."""
        if getattr(request.state, "checked", None) is not self:
            await self.check(request)

    async def check(self, request: Request) -> Principal:
        """Find out who sends a request, and whether it may; return the caller.

        Raises:
            RequestError: The caller is unknown (401), has sent too many wrong keys (429), has not the role or
                not its session's CSRF token (403), or cannot be checked now (503).
        """
        state, services = request.scope["state"], services_of(request)
        principal: Principal | None = state.get("principal")
        if principal is None:
            principal = state["principal"] = await services.authenticator.identify(request)
        collection = named = request.path_params.get(_COLLECTION)
        somewhere = principal.may_somewhere(self.role)
        # A caller without the role in any collection is refused without reading the catalogue.
        if named is not None and somewhere:
            collection = services.names.cached(named)
            if collection is None:
                collection = await services.threads.read(services.names.behind, named)
            if collection != named:
                # Permissions and work use the collection's own name.
                state["alias"] = named
                request.scope["path_params"] = {**request.path_params, _COLLECTION: collection}
        may = principal.may(self.role, None if self.everywhere else collection)
        if not (may or (self.somewhere and somewhere) or await self._may_by_job(principal, request)):
            raise self._refusal(principal, None if self.everywhere else named)
        state["checked"] = self
        return principal

    async def recheck(self, request: Request) -> RequestError | None:
        """Check the caller of a long answer again; return why the answer must end, None if it may continue.

        A caller that cannot be checked now is as it was.
        """
        try:
            principal, _ = await services_of(request).authenticator.recognize(request)
        except RequestError as error:
            return error if error.kind.status == HTTPStatus.UNAUTHORIZED else None
        named = request.path_params.get(_COLLECTION)
        may = principal.may(self.role, None if self.everywhere else named)
        return None if may or await self._may_by_job(principal, request) else self._refusal(principal, named)

    async def _may_by_job(self, principal: Principal, request: Request) -> bool:
        """Return whether a caller has the role that is enough for the job."""
        # This role is part of all roles that may be enough for a job.
        if not self.of_job or not principal.may_somewhere("curator"):
            return False
        enough = await services_of(request).role_of_job(request.path_params["job"])
        return enough is not None and principal.may(*enough)

    def _refusal(self, principal: Principal, collection: str | None) -> RequestError:
        """The same for a collection that exists and one that does not."""
        if collection is not None:
            scope = f"in the collection {shortened(collection)!r}"
        else:
            scope = "in some collection" if self.somewhere else "in all collections (*)"
        needed = f"This needs the role {self.role} {scope}"
        if principal.kind == "anonymous":
            detail = (
                f"{needed}: send a key as `Authorization: Bearer KEY`; `recoquest keys create` makes one on "
                "the service's machine."
            )
            return RequestError(KEY_NEEDED, detail)
        kind = Kind(
            "role-needed",
            "The caller lacks the role",
            HTTPStatus.FORBIDDEN,
            authenticate=f'Bearer error="insufficient_scope", scope="{self.role}"',
        )
        return RequestError(
            kind,
            f"{needed}, which {shortened(principal.name)!r} does not have: ask the service's "
            "administrator for it.",
        )


def may(role: Role, *, somewhere: bool = False, everywhere: bool = False, of_job: bool = False) -> Any:
    """The dependency of a route that needs a role, which the OpenAPI description names; see `Permission`."""
    return Security(Permission(role, somewhere, everywhere, of_job), scopes=[role])


class GuardedRoute(APIRoute):
    """A route that checks its caller first: the framework reads a JSON body before all dependencies."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        """Make a route that the OpenAPI description calls by its function's name."""
        options["generate_unique_id_function"] = attrgetter("name")
        super().__init__(path, endpoint, **options)

    @property
    def permission(self) -> Permission | None:
        """The permission among the route's dependencies."""
        for dependency in self.dependant.dependencies:
            if isinstance(dependency.call, Permission):
                return dependency.call
        return None

    def get_route_handler(self) -> Handler:
        """The handler, after the check."""
        handle, permission = self.answering(super().get_route_handler()), self.permission
        if permission is None:
            return handle

        async def checked(request: Request) -> Response:
            caller = await permission.check(request)
            response = await handle(request)
            if caller.kind == "link":
                keep_as_long(response, caller)
            return response

        return checked

    def answering(self, handle: Handler) -> Handler:
        """Return the handler of a request that has passed the check; other routes may do more before."""
        return handle


async def _principal(request: Request) -> Principal:
    return principal_of(request)


InjectedPrincipal = Annotated[Principal, Depends(_principal)]
