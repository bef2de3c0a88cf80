"""Sessions of the page: a browser signs in by a key or a token, and then sends a cookie."""

from http import HTTPStatus

from fastapi import APIRouter, Request, Response

from app.access.authentication import Authenticator
from app.access.permissions import GuardedRoute
from app.access.principal import Principal
from app.access.sessions import Session, remove_cookie, set_cookie
from app.audit.noted import Noted, note
from app.http.problems import problem_responses
from app.operations.services import InjectedServices, Services
from app.schemas.sessions import SessionState

router = APIRouter(prefix="/v1/session", tags=["sessions"], route_class=GuardedRoute)

_PROBLEMS = problem_responses(
    HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE
)


@router.post(
    "",
    summary="Sign in",
    responses={**_PROBLEMS, **problem_responses(HTTPStatus.UNPROCESSABLE_ENTITY)},
)
async def begin_session(request: Request, response: Response, services: InjectedServices) -> SessionState:
    """Give the sender of a key or a token, `Authorization: Bearer KEY`, the cookie of a session of 12 hours.

    A session ends with its key, and one of a token when that expires. Requests with `Authorization` ignore
    the cookie; others that are not GET send `csrf_token` as `X-CSRF-Token`.
    """
    authenticator = _authenticator(request)
    principal, session = await authenticator.begin_session(request)
    request.state.principal = principal
    set_cookie(request, response, authenticator.signer.seal(session), session)
    return await _state(authenticator, services, principal, session)


@router.get("", summary="Who is signed in", responses=_PROBLEMS)
async def get_session(request: Request, services: InjectedServices) -> SessionState:
    """Tell who sends the request, by its session or otherwise, and which roles that gives."""
    authenticator = _authenticator(request)
    principal, session = await authenticator.recognize(request)
    request.state.principal = principal
    return await _state(authenticator, services, principal, session)


@router.delete(
    "",
    summary="Sign out",
    status_code=HTTPStatus.NO_CONTENT,
    responses={**_PROBLEMS, **problem_responses(HTTPStatus.FORBIDDEN)},
)
async def end_session(request: Request) -> Response:
    """Let the browser forget the cookie of its session; without one, nothing is done."""
    request.state.principal = principal = await _authenticator(request).identify(request)
    response = Response(status_code=HTTPStatus.NO_CONTENT)
    remove_cookie(request, response)
    if principal.kind != "session":
        # Nobody was signed in.
        note(request, Noted(recorded=True))
    return response


async def _state(
    authenticator: Authenticator, services: Services, principal: Principal, session: Session | None
) -> SessionState:
    flow = authenticator.code_flow
    is_person = session is not None and session.kind == "token"
    return SessionState.of(
        principal.kind,
        principal.name,
        principal.grants,
        open_reading=services.settings.open_reading,
        ends=None if session is None else session.expires,
        csrf=None if session is None else authenticator.signer.csrf_token(session),
        provider_sign_in=flow is not None,
        provider_sign_out=await flow.sign_out_url() if flow is not None and is_person else None,
    )


def _authenticator(request: Request) -> Authenticator:
    found = request.app.state.authenticator
    assert isinstance(found, Authenticator)
    return found
