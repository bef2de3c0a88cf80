"""Sign-in of people at the identity provider of the settings; the browser goes there, and comes back."""

from http import HTTPStatus
from typing import Annotated, Final, Literal

import structlog
from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse

from app.access.authentication import Authenticator, authenticator_of
from app.access.permissions import GuardedRoute
from app.access.provider import ProviderError
from app.access.sessions import set_cookie
from app.access.sign_in import (
    TEMPORARY,
    CodeFlow,
    CodeRefusedError,
    SignInAttempt,
    SignInAttempts,
    error_name,
)
from app.audit.noted import Noted, note
from app.edge.http.addresses import root_of
from app.edge.http.problem_kinds import INVALID, Kind
from app.edge.http.problems import RequestError
from app.edge.operations import operation

# Addresses of links and redirections, as those of pages are; no program asks for them.
router = APIRouter(prefix="/v1/session", route_class=GuardedRoute, include_in_schema=False)

Reason = Literal["refused", "unavailable", "ended", "unfit", "too-many-roles"]

_NO_CLIENT: Final = Kind("no-sign-in", "Nobody signs in at an identity provider here", HTTPStatus.NOT_FOUND)
_MAX_LENGTH: Final = 4_096

_log = structlog.stdlib.get_logger(__name__)


@router.get("/begin")
async def begin_sign_in(
    request: Request, return_to: Annotated[str, Query(max_length=_MAX_LENGTH)] = ""
) -> RedirectResponse:
    """Lead a browser to the provider's page, from where it comes back with the cookie of a session.

    Args:
        request: The request.
        return_to: Path to come back to, with that of the service; empty: the search page. If the sign-in
            fails, the address has a fragment `#sign-in=` with the reason.
    """
    authenticator, flow = _flow_of(request)
    attempts = SignInAttempts(authenticator.signer)
    return_to = return_to or f"{root_of(request.scope)}/"
    try:
        attempt = attempts.begin(return_to)
    except ValueError as error:
        raise RequestError(INVALID, "return_to must be a path of this service, such as /operate.") from error
    try:
        address = await flow.authorization_url(attempt, flow.redirect_uri(request))
    except ProviderError as error:
        _log.warning("nobody can sign in at the identity provider", reason=str(error))
        return _back(return_to, "unavailable")
    response = _redirect(address)
    attempts.give_cookie(request, response, attempt)
    return response


@router.get("/callback")
@operation("sign-in")
async def finish_sign_in(
    request: Request,
    state: Annotated[str, Query(max_length=_MAX_LENGTH)] = "",
    code: Annotated[str, Query(max_length=_MAX_LENGTH)] = "",
    error: Annotated[str, Query(max_length=_MAX_LENGTH)] = "",
    iss: Annotated[str | None, Query(max_length=_MAX_LENGTH)] = None,
) -> RedirectResponse:
    """Take a browser back that the provider sends, and begin a session.

    Args:
        request: The request.
        state: State of the sign-in that this answers.
        code: Code that the provider gives tokens for.
        error: What was wrong instead.
        iss: The provider (RFC 9207).
    """
    authenticator, flow = _flow_of(request)
    attempts = SignInAttempts(authenticator.signer)
    attempt = attempts.find(request, state)
    if attempt is None:
        # The cookie stays: somebody else's answer must not end a sign-in that goes on.
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
    attempts.take_cookie(request, response)
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
    principal, session = authenticator.begin_person_session(person)
    try:
        sealed = authenticator.signer.seal(session)
    except RequestError as error:
        _log.warning("a sign-in gives more roles than a session holds", reason=str(error))
        return _failed(request, attempt.return_to, "too-many-roles")
    request.state.principal = principal
    if not person.grants:
        note(request, Noted(details={"roles": "none"}))
    response = _redirect(attempt.return_to)
    set_cookie(request, response, sealed, session)
    return response


def _flow_of(request: Request) -> tuple[Authenticator, CodeFlow]:
    authenticator = authenticator_of(request)
    if authenticator.code_flow is None:
        raise RequestError(
            _NO_CLIENT,
            "The settings name no client at an identity provider (RECOQUEST_OIDC_CLIENT_ID): sign in with a "
            "key.",
        )
    return authenticator, authenticator.code_flow


def _failed(request: Request, return_to: str, reason: Reason) -> RedirectResponse:
    note(request, Noted(outcome="failure", details={"reason": reason}))
    return _back(return_to, reason)


def _back(return_to: str, reason: Reason) -> RedirectResponse:
    return _redirect(f"{return_to}#sign-in={reason}")


def _redirect(address: str) -> RedirectResponse:
    return RedirectResponse(address, HTTPStatus.SEE_OTHER)
