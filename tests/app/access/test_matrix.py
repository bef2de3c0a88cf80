"""Every operation with every caller: who may, who may not, and that nobody learns more from a refusal."""

import base64
import hmac
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
from fastapi import APIRouter
from fastapi.testclient import TestClient
from httpx2 import Response
from joserfc import jwt
from joserfc.jwk import RSAKey
from sqlalchemy import update

from app.application import create_app
from app.edge.principal import EVERY_COLLECTION, ROLES, Role
from app.permissions import GuardedRoute, may
from index.catalogue.tables import ApiKeyRow
from index.keys.api_keys import create_key, revoke_key
from tests.access import ADMIN_KEY, bearer, routes_of
from tests.app.access.conftest import with_checked_settings
from tests.app.conftest import COLLECTION, Indexed
from tests.oidc import AUDIENCE, OidcProvider

# Open, and about the caller itself: an invalid credential is reported.
OWN: Final = {"begin_session", "get_session", "end_session"}
_ROLES: Final[dict[Role, str]] = {
    "reader": """
        search_images search_batch create_embeddings find_similar_studies find_studies_like_image
        find_similar_anywhere find_like_image_anywhere count_images list_images count_values
        count_facets get_image get_thumbnail get_rendition get_content link_image get_levels
        map_similarity get_collection list_collections list_generations list_models get_model
        list_case_lists get_case_list export_case_list list_aliases
    """,
    "judge": "judge_hit put_case_list delete_case_list save_case_image remove_case_image write_results",
    "curator": """
        count_judgements upload_images store_instances_of_studies store_instances_of_study index_study
        put_image update_image delete_image delete_matching_images
    """,
    "admin": """
        erase_images create_collection delete_collection rename_collection put_alias delete_alias
        activate_generation roll_back_collection register_model create_job list_jobs get_job cancel_job
        stream_job_events
    """,
    "auditor": "list_audit",
}
# Role of each operation; None: open to everybody.
OPERATIONS: Final[dict[str, Role | None]] = {
    **{name: role for role, names in _ROLES.items() for name in names.split()},
    **dict.fromkeys((*OWN, "get_liveness", "get_readiness", "get_metrics")),
}
# Outside of collections; all others of a role are about the collection of their path.
OUTSIDE: Final = {
    "list_models", "get_model", "create_collection", "register_model",
    "create_job", "list_jobs", "get_job", "cancel_job", "stream_job_events", "list_audit",
    "rename_collection", "put_alias", "delete_alias",
}  # fmt: skip
# The role in any collection is enough, and the answer is about those alone.
ANYWHERE: Final = {
    "list_collections", "list_aliases", "create_embeddings", "find_similar_anywhere",
    "find_like_image_anywhere",
}  # fmt: skip
IMPLIED: Final[dict[Role, set[Role]]] = {
    "reader": {"reader"},
    "judge": {"judge", "reader"},
    "curator": {"curator", "reader"},
    "admin": {"admin", "reader", "judge", "curator", "auditor"},
    "auditor": {"auditor"},
}
GROUPS: Final[dict[Role, str]] = {role: f"{role}s" for role in ROLES}
# No collection: what is allowed finds nothing and changes nothing.
ASKED: Final = "asked"
FILLED: Final = {
    "collection": ASKED, "image_id": "nobody", "number": "999", "digest": "0" * 64, "job": "999",
    "alias": "other", "case_list": "none", "study": "1.2.3", "sop": "1.2.3.4",
}  # fmt: skip
DAY_S: Final = 86_400


@dataclass(frozen=True)
class Operation:
    """An operation of the description."""

    name: str
    method: str
    path: str
    roles: list[str]


@dataclass(frozen=True)
class Matrix:
    """A service, and its operations."""

    client: TestClient
    home: Indexed
    operations: list[Operation]

    def ask(self, operation: Operation, credential: str | None, client: TestClient | None = None) -> Response:
        """Send an operation about things that are not there."""
        headers = {} if credential is None else bearer(credential)
        path = operation.path.format(**FILLED)
        body: dict[str, Any] = {} if operation.method == "get" else {"json": {}}
        answer: Response = (client or self.client).request(operation.method, path, headers=headers, **body)
        return answer

    def key(self, name: str, role: Role, *collections: str) -> str:
        """A key with a role in some collections."""
        return self.home.key(role, *collections, name=name)

    def end(self, key: str, how: str) -> str:
        """Let a key be revoked or expired; gives it back."""
        with self.home.write() as session:
            if how == "revoked":
                revoke_key(session, key.split("_")[1])
            else:
                past = "2001-01-01T00:00:00.000000+00:00"
                named = update(ApiKeyRow).where(ApiKeyRow.id == key.split("_")[1])
                session.execute(named.values(expires=past))
        return key


@pytest.fixture(scope="module")
def matrix(on_either: Indexed, oidc: OidcProvider) -> Iterator[Matrix]:
    roles: dict[str, dict[str, list[Role]]] = {group: {ASKED: [role]} for role, group in GROUPS.items()}
    roles["all readers"] = {EVERY_COLLECTION: ["reader"]}
    provider = {"oidc_issuer": oidc.issuer, "oidc_audience": AUDIENCE, "oidc_roles": roles}
    application = create_app(with_checked_settings(on_either, open_reading=False, **provider).settings)
    with TestClient(application, "http://localhost", raise_server_exceptions=False) as client:
        operations = [
            Operation(described["operationId"], method, path, _roles_of(described))
            for path, methods in application.openapi()["paths"].items()
            for method, described in methods.items()
        ]
        unknown = {one.name for one in operations} - OPERATIONS.keys()
        assert not unknown, f"add {sorted(unknown)} to OPERATIONS, each with the role that it needs"
        yield Matrix(client, on_either, operations)


def _roles_of(described: dict[str, Any]) -> list[str]:
    return [role for needed in described.get("security", []) for role in needed["bearer"]]


def _refused(answer: Response, status: int) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.headers["content-type"] == "application/problem+json"


def test_every_route_has_a_role_and_the_description_names_it(matrix: Matrix) -> None:
    assert {one.name: one.roles for one in matrix.operations} == {
        name: [] if role is None else [role] for name, role in OPERATIONS.items()
    }
    application: Any = matrix.client.app
    routes = routes_of(application)
    checked = [route for route in routes if route.include_in_schema]
    assert len(checked) == len(OPERATIONS)
    for route in checked:
        guarded = isinstance(route, GuardedRoute) and route.permission is not None
        assert guarded is (OPERATIONS[route.name] is not None), route.path


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("scope", [ASKED, EVERY_COLLECTION])
def test_a_key_may_what_its_role_may(matrix: Matrix, role: Role, scope: str) -> None:
    _walk(
        matrix,
        matrix.key(f"{role} {scope}", role, scope),
        role,
        everywhere=scope == EVERY_COLLECTION,
    )


@pytest.mark.parametrize("role", ROLES)
def test_a_token_may_what_its_groups_may(matrix: Matrix, oidc: OidcProvider, role: Role) -> None:
    _walk(matrix, oidc.token(GROUPS[role]), role, everywhere=False)


def _walk(matrix: Matrix, bearer: str, role: Role, *, everywhere: bool) -> None:
    for operation in matrix.operations:
        answer, needed = matrix.ask(operation, bearer), OPERATIONS[operation.name]
        reaches = everywhere or operation.name not in OUTSIDE
        if needed is None or (needed in IMPLIED[role] and reaches):
            assert answer.status_code not in (401, 403), (operation.name, answer.text)
            broken = answer.status_code >= 500 and operation.name != "get_readiness"
            assert not broken, (operation.name, answer.text)
        else:
            _refused(answer, 403)
            assert f"the role {needed} " in answer.json()["detail"]
            assert f'scope="{needed}"' in answer.headers["www-authenticate"]


@pytest.mark.parametrize("role", ROLES)
def test_a_key_of_another_collection_may_nothing_there(matrix: Matrix, role: Role) -> None:
    bearer = matrix.key(f"{role} elsewhere", role, COLLECTION)
    for operation in matrix.operations:
        if OPERATIONS[operation.name] is not None and operation.name not in ANYWHERE:
            _refused(matrix.ask(operation, bearer), 403)


@pytest.mark.parametrize("caller", ["nobody", "wrong", "wrong secret", "expired", "revoked", "no key"])
def test_callers_without_a_key_that_holds_are_refused(matrix: Matrix, caller: str) -> None:
    bearer = None if caller == "nobody" else _useless(matrix, caller)
    for index, operation in enumerate(matrix.operations):
        # Each from another machine, so that no wrong key makes the next one wait.
        client = TestClient(matrix.client.app, "http://localhost", client=(f"10.0.0.{index}", index))
        answer = matrix.ask(operation, bearer, client)
        needs_one = operation.name == "begin_session" or (bearer is not None and operation.name in OWN)
        if OPERATIONS[operation.name] is None and not needs_one:
            assert answer.status_code not in (401, 403)
        else:
            _refused(answer, 401)


def _useless(matrix: Matrix, caller: str) -> str:
    key = matrix.key(caller, "admin", EVERY_COLLECTION)
    match caller:
        case "wrong":
            return f"rq_{'0' * 12}_{'A' * 43}"
        case "wrong secret":
            return key[:-43] + "A" * 43
        case "no key":
            return "not a key at all"
        case _:
            return matrix.end(key, caller)


def _claims(oidc: OidcProvider, **changed: Any) -> dict[str, Any]:
    now = int(time.time())
    claims = {
        "iss": oidc.issuer, "aud": AUDIENCE, "sub": "somebody", "iat": now, "exp": now + DAY_S,
        "groups": ["admins"], **changed,
    }  # fmt: skip
    return {name: value for name, value in claims.items() if value is not None}


def _none(oidc: OidcProvider) -> str:
    parts = ({"alg": "none", "kid": "first", "typ": "JWT"}, _claims(oidc))
    return ".".join(_base64(json.dumps(part).encode()) for part in parts) + "."


def _keyed_by(public: bytes, oidc: OidcProvider) -> str:
    """A token with a digest by what everybody knows."""
    parts = ({"alg": "HS256", "kid": "first", "typ": "JWT"}, _claims(oidc))
    signed = ".".join(_base64(json.dumps(part).encode()) for part in parts)
    return f"{signed}.{_base64(hmac.digest(public, signed.encode(), 'sha256'))}"


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _signed(oidc: OidcProvider, key: RSAKey, alg: str = "RS256", typ: str = "JWT", **changed: Any) -> str:
    header = {"alg": alg, "kid": "first", "typ": typ}
    return jwt.encode(header, _claims(oidc, **changed), key, algorithms=[alg])


def _forged(oidc: OidcProvider) -> dict[str, str]:
    """Tokens that a service must not take, by name; all but the first ones have the provider's signature."""
    now, own = int(time.time()), oidc.key
    good = _signed(oidc, own, groups=["readers"])
    head, _, tail = good.split(".")
    return {
        "another key": _signed(oidc, RSAKey.generate_key(2048)),
        "none": _none(oidc),
        "HS256 with the public key": _keyed_by(own.as_pem(private=False), oidc),
        "no signature": good[: good.rindex(".") + 1],
        "changed": ".".join((head, _base64(json.dumps(_claims(oidc)).encode()), tail)),
        "expired": _signed(oidc, own, iat=now - DAY_S, exp=now - 61),
        "not yet": _signed(oidc, own, nbf=now + 120),
        "from the future": _signed(oidc, own, iat=now + 120),
        "without an end": _signed(oidc, own, exp=None),
        "an end in words": _signed(oidc, own, exp="tomorrow"),
        "another audience": _signed(oidc, own, aud="urn:other"),
        "many audiences, not this": _signed(oidc, own, aud=["urn:other", AUDIENCE.upper()]),
        "without an audience": _signed(oidc, own, aud=None),
        "another issuer": _signed(oidc, own, iss=f"{oidc.issuer}/"),
        "without an issuer": _signed(oidc, own, iss=None),
        "without a subject": _signed(oidc, own, sub=None),
        "an empty subject": _signed(oidc, own, sub=""),
        "another type": _signed(oidc, own, typ="logout+jwt"),
    }


def test_tokens_that_are_not_valid_are_refused(matrix: Matrix, oidc: OidcProvider) -> None:
    # Nothing but what is wrong with them keeps these out.
    good = bearer(_signed(oidc, oidc.key))
    assert matrix.client.get(f"/v1/collections/{ASKED}/generations", headers=good).status_code == 404
    for name, token in _forged(oidc).items():
        for operation in matrix.operations:
            if OPERATIONS[operation.name] is not None:
                answer = matrix.ask(operation, token)
                _refused(answer, 401)
                assert token not in answer.text, name


def test_a_token_for_another_audience_of_the_provider_is_refused(matrix: Matrix, oidc: OidcProvider) -> None:
    answer = matrix.client.get(f"/v1/collections/{ASKED}", headers=bearer(oidc.token("admins", "urn:other")))
    _refused(answer, 401)
    assert "aud" in answer.json()["detail"]


def test_a_caller_of_the_provider_without_a_group_of_ours_has_no_role(
    matrix: Matrix, oidc: OidcProvider
) -> None:
    for operation in matrix.operations:
        if OPERATIONS[operation.name] is not None:
            _refused(matrix.ask(operation, oidc.token("strangers")), 403)


def test_a_caller_sees_its_collections_and_learns_of_no_other(matrix: Matrix) -> None:
    own, strange = matrix.key("own", "reader", COLLECTION), matrix.key("strange", "reader", ASKED)
    listed = {}
    for name, key in (("own", own), ("strange", strange), ("admin", ADMIN_KEY)):
        body = matrix.client.get("/v1/collections", headers=bearer(key)).json()["collections"]
        listed[name] = [one["name"] for one in body]
    assert listed == {"own": [COLLECTION], "strange": [], "admin": [COLLECTION]}
    assert matrix.client.get(f"/v1/collections/{COLLECTION}", headers=bearer(own)).status_code == 200
    there = matrix.client.get(f"/v1/collections/{COLLECTION}", headers=bearer(strange))
    nowhere = matrix.client.get("/v1/collections/no-such", headers=bearer(strange))
    _refused(there, 403)
    _refused(nowhere, 403)
    assert there.json()["type"] == nowhere.json()["type"]
    assert there.json()["detail"].replace(COLLECTION, "no-such") == nowhere.json()["detail"]
    missing = matrix.client.get(f"/v1/collections/{ASKED}", headers=bearer(strange))
    assert missing.status_code == 404
    assert COLLECTION not in missing.text


def test_a_revoked_key_is_refused_within_two_seconds(matrix: Matrix) -> None:
    key = matrix.key("short", "reader", COLLECTION)
    path = f"/v1/collections/{COLLECTION}"
    assert matrix.client.get(path, headers=bearer(key)).status_code == 200
    matrix.end(key, "revoked")
    time.sleep(1.1)
    answer = matrix.client.get(path, headers=bearer(key))
    _refused(answer, 401)
    assert "revoked" in answer.json()["detail"]


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
    application.router.routes += router.routes
    with TestClient(application, "http://localhost", headers=bearer(key)) as client:
        assert client.post("/v1/both", json={}).status_code == status
        del client.headers["Authorization"]
        # Before the body, which is no JSON.
        assert client.post("/v1/both", content=b"{").status_code == 401
