"""Sessions of the page: a browser signs in by a key or a token, and then sends a cookie."""

from datetime import UTC, datetime
from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from pydantic import Field

from app.access.authentication import authenticator_of
from app.access.permissions import GuardedRoute
from app.access.sessions import Session, remove_cookie, set_cookie
from app.audit.noted import Noted, note
from app.edge.http.problems import problem_responses
from app.edge.operations import operation
from app.edge.principal import Principal
from app.edge.schemas import Answer
from app.services import InjectedServices, Services
from index.keys.api_keys import Role, written_grants

router = APIRouter(prefix="/v1/session", tags=["sessions"], route_class=GuardedRoute)

_PROBLEMS = problem_responses(
    HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE
)


class SessionState(Answer):
    """The caller of a request, and its roles."""

    kind: str = Field(description="How the caller is known: anonymous, key, token or session.")
    name: str | None = Field(description="Name of the caller; null for nobody.")
    roles: dict[str, list[Role]] = Field(
        description="Roles by collection, those that everybody has among them; `*`: in all of them."
    )
    open_reading: bool = Field(description="Whether everybody who reaches the service may read.")
    expires: datetime | None = Field(description="End of the session; null without one.")
    csrf_token: str | None = Field(
        description="With the cookie of the session, requests that are not GET send it as `X-CSRF-Token`; "
        "null without a session."
    )
    provider_sign_in: bool = Field(
        description="Whether GET /v1/session/begin leads to the sign-in of an identity provider."
    )
    provider_sign_out: str | None = Field(
        description="Page of the identity provider that ends its own session, for whoever signed in there; "
        "null without one."
    )


@router.post(
    "",
    summary="Sign in",
    responses={**_PROBLEMS, **problem_responses(HTTPStatus.UNPROCESSABLE_ENTITY)},
)
@operation("sign-in")
async def begin_session(request: Request, response: Response, services: InjectedServices) -> SessionState:
    """Give the sender of a key or a token, `Authorization: Bearer KEY`, the cookie of a session of 12 hours.

    A session ends with its key, and one of a token when that expires. Requests with `Authorization` ignore
    the cookie; others that are not GET send `csrf_token` as `X-CSRF-Token`.
    """
    authenticator = authenticator_of(request)
    principal, session = await authenticator.begin_session(request)
    set_cookie(request, response, authenticator.signer.seal(session), session)
    return await _state(request, services, principal, session)


@router.get("", summary="Who is signed in", responses=_PROBLEMS)
async def get_session(request: Request, services: InjectedServices) -> SessionState:
    """Tell who sends the request, by its session or otherwise, and which roles that gives."""
    principal, session = await authenticator_of(request).recognize(request)
    return await _state(request, services, principal, session)


@router.delete(
    "",
    summary="Sign out",
    status_code=HTTPStatus.NO_CONTENT,
    responses={**_PROBLEMS, **problem_responses(HTTPStatus.FORBIDDEN)},
)
@operation("sign-out", work="change")
async def end_session(request: Request) -> Response:
    """Let the browser forget the cookie of its session; without one, nothing is done."""
    request.state.principal = principal = await authenticator_of(request).identify(request)
    response = Response(status_code=HTTPStatus.NO_CONTENT)
    remove_cookie(request, response)
    if principal.kind != "session":
        # Nobody was signed in.
        note(request, Noted(recorded=True))
    return response


async def _state(
    request: Request, services: Services, principal: Principal, session: Session | None
) -> SessionState:
    """Describe the caller of a request from now on."""
    request.state.principal = principal
    authenticator = authenticator_of(request)
    flow = authenticator.code_flow
    is_person = session is not None and session.kind == "token"
    return SessionState(
        kind=principal.kind,
        name=None if principal.kind == "anonymous" else principal.name,
        roles=written_grants(principal.grants),
        open_reading=services.settings.open_reading,
        expires=None if session is None else datetime.fromtimestamp(session.expires, UTC),
        csrf_token=None if session is None else authenticator.signer.csrf_token(session),
        provider_sign_in=flow is not None,
        provider_sign_out=await flow.sign_out_url() if flow is not None and is_person else None,
    )
