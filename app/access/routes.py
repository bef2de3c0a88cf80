"""Sessions of the page: a browser signs in by a key or a token, or at the identity provider of the settings.

It then sends a cookie.
"""

from dataclasses import replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Final, Literal

import structlog
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import Field

from app.access.authentication import Authenticator
from app.access.oidc import (
    TEMPORARY,
    CodeFlow,
    CodeRefusedError,
    ProviderError,
    SignInAttempt,
    begin_attempt,
    error_name,
    find_attempt,
    keep_attempt,
)
from app.access.sessions import COOKIE, Session, set_cookie
from app.audit.requests import Noted, note
from app.edge.operations import operation, root_of
from app.edge.principal import Principal
from app.edge.problems import INVALID, Kind, RequestError, problem_responses
from app.edge.schemas import Answer
from app.permissions import GuardedRoute
from app.services import InjectedServices, Services
from index.keys.api_keys import Role, written_grants

router = APIRouter(prefix="/v1/session", tags=["sessions"], route_class=GuardedRoute)

_PROBLEMS = problem_responses(
    HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE
)


class SessionState(Answer):
    """The caller of a request, and its roles."""

    kind: str = Field(description="How the caller is identified: anonymous, key, token or session.")
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
        description="Page of the identity provider that ends its own session, for users who signed in there; "
        "null without one."
    )


@router.post("", summary="Sign in", responses=_PROBLEMS | problem_responses(HTTPStatus.UNPROCESSABLE_ENTITY))
@operation("sign-in", "write")
async def begin_session(request: Request, response: Response, services: InjectedServices) -> SessionState:
    """Give the sender of a key or a token, `Authorization: Bearer KEY`, the cookie of a session of 12 hours.

    A session ends with its key, and one of a token when that expires. Requests with `Authorization` ignore
    the cookie; others that are not GET send `csrf_token` as `X-CSRF-Token`.
    """
    authenticator = services.authenticator
    caller = await authenticator.require_credential(request)
    principal, session = await authenticator.begin_session(caller)
    set_cookie(request, response, COOKIE, authenticator.signer.seal(session), session.lifetime)
    return await _state(request, services, principal, session)


@router.get("", summary="Who is signed in", responses=_PROBLEMS)
@operation(None, "read")
async def get_session(request: Request, services: InjectedServices) -> SessionState:
    """Tell who sends the request, by its session or otherwise, and which roles that gives."""
    principal, session = await services.authenticator.recognize(request)
    return await _state(request, services, principal, session)


@router.delete(
    "",
    summary="Sign out",
    status_code=HTTPStatus.NO_CONTENT,
    responses={**_PROBLEMS, **problem_responses(HTTPStatus.FORBIDDEN)},
)
@operation("sign-out", "change")
async def end_session(request: Request, services: InjectedServices) -> Response:
    """Let the browser forget the cookie of its session; without one, nothing is done."""
    request.state.principal = principal = await services.authenticator.identify(request)
    response = Response(status_code=HTTPStatus.NO_CONTENT)
    set_cookie(request, response, COOKIE, "", 0)
    if principal.kind != "session":
        # Nobody was signed in.
        note(request, Noted(recorded=True))
    return response


async def _state(
    request: Request, services: Services, principal: Principal, session: Session | None
) -> SessionState:
    """Describe the caller of a request from now on."""
    request.state.principal = principal
    authenticator = services.authenticator
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


Reason = Literal["refused", "unavailable", "ended", "unfit", "too-many-roles"]

_NO_CLIENT: Final = Kind("no-sign-in", "Nobody signs in at an identity provider here", HTTPStatus.NOT_FOUND)
_MAX_LENGTH: Final = 4_096

_log = structlog.stdlib.get_logger(__name__)


# Targets of links and redirects, like pages; no program requests them.
@router.get("/begin", include_in_schema=False)
@operation(None, "read")
async def begin_sign_in(
    request: Request,
    services: InjectedServices,
    return_to: Annotated[str, Query(max_length=_MAX_LENGTH)] = "",
) -> RedirectResponse:
    """Lead a browser to the provider's page, from where it comes back with the cookie of a session.

    It comes back to the path `return_to`, with that of the service; by default to the search page. If the
    sign-in fails, the address has a fragment `#sign-in=` with the reason.
    """
    authenticator, flow = _flow_of(services)
    return_to = return_to or f"{root_of(request.scope)}/"
    try:
        attempt = begin_attempt(authenticator.signer, return_to)
    except ValueError as error:
        raise RequestError(INVALID, "return_to must be a path of this service, such as /operate.") from error
    try:
        address = await flow.authorization_url(attempt, flow.redirect_uri(request))
    except ProviderError as error:
        _log.warning("nobody can sign in at the identity provider", reason=str(error))
        return _redirect(f"{return_to}#sign-in=unavailable")
    response = _redirect(address)
    keep_attempt(request, response, authenticator.signer, attempt)
    return response


@router.get("/callback", include_in_schema=False)
@operation("sign-in", "read", page=True)
async def finish_sign_in(
    request: Request,
    services: InjectedServices,
    state: Annotated[str, Query(max_length=_MAX_LENGTH)] = "",
    code: Annotated[str, Query(max_length=_MAX_LENGTH)] = "",
    error: Annotated[str, Query(max_length=_MAX_LENGTH)] = "",
    iss: Annotated[str | None, Query(max_length=_MAX_LENGTH)] = None,
) -> RedirectResponse:
    """Take a browser back that the provider sends, and begin a session.

    The provider gives tokens for `code`, or reports an error; `iss` names it (RFC 9207).
    """
    authenticator, flow = _flow_of(services)
    attempt = find_attempt(request, authenticator.signer, state)
    if attempt is None:
        # The cookie stays: somebody else's answer must not end a sign-in that continues.
        return _failed(request, f"{root_of(request.scope)}/", "ended")
    if iss is not None and iss != flow.issuer:
        _log.warning("a sign-in is answered by another provider")
        response = _failed(request, attempt.return_to, "unfit")
    elif error or not code:
        _log.warning("the identity provider refuses a sign-in", reason=error_name(error))
        # Other errors are of the settings.
        reason: Reason = "unavailable" if error in TEMPORARY else "unfit"
        response = _failed(request, attempt.return_to, "refused" if error == "access_denied" else reason)
    else:
        response = await _begin_session(request, authenticator, flow, attempt, code)
    keep_attempt(request, response, authenticator.signer, None)
    return response


async def _begin_session(
    request: Request, authenticator: Authenticator, flow: CodeFlow, attempt: SignInAttempt, code: str
) -> RedirectResponse:
    try:
        person = await flow.redeem(code, attempt, flow.redirect_uri(request))
    except ProviderError as error:
        _log.warning("nobody can sign in at the identity provider", reason=str(error))
        return _failed(request, attempt.return_to, "unavailable")
    except (CodeRefusedError, RequestError) as error:
        _log.warning("the identity provider's answer to a sign-in does not fit", reason=str(error))
        away = isinstance(error, RequestError) and error.kind.status == HTTPStatus.SERVICE_UNAVAILABLE
        return _failed(request, attempt.return_to, "unavailable" if away else "unfit")
    # Also where no session begins: the provider has named the person.
    request.state.principal = person
    # As long as that of a key: an ID token is for the moment of a sign-in, at some providers a minute.
    principal, session = await authenticator.begin_session(replace(person, expires=None))
    try:
        sealed = authenticator.signer.seal(session)
    except RequestError as error:
        _log.warning("a sign-in gives more roles than a session holds", reason=str(error))
        return _failed(request, attempt.return_to, "too-many-roles")
    request.state.principal = principal
    if not person.grants:
        note(request, Noted(details={"roles": "none"}))
    response = _redirect(attempt.return_to)
    set_cookie(request, response, COOKIE, sealed, session.lifetime)
    return response


def _flow_of(services: Services) -> tuple[Authenticator, CodeFlow]:
    authenticator = services.authenticator
    if authenticator.code_flow is None:
        raise RequestError(
            _NO_CLIENT,
            "The settings name no client at an identity provider (RECOQUEST_OIDC_CLIENT_ID): sign in with a "
            "key.",
        )
    return authenticator, authenticator.code_flow


def _failed(request: Request, return_to: str, reason: Reason) -> RedirectResponse:
    note(request, Noted(outcome="failure", details={"reason": reason}))
    return _redirect(f"{return_to}#sign-in={reason}")


def _redirect(address: str) -> RedirectResponse:
    return RedirectResponse(address, HTTPStatus.SEE_OTHER)
