"""Aliases and renaming over HTTP: what answers under which name, to whom, and what settings name."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from sqlalchemy import select
from structlog.testing import capture_logs

from app.collections.names import refuse_gained_roles, rename
from app.edge.problems import RequestError
from app.engine import open_engine
from app.health.doctor import examine_roles
from app.health.doctor import renamed as renamed_names
from index.audit.event import Actor, id_digest
from index.catalogue.collections import names_of
from index.catalogue.jobs import add_job, cancel_job, get_job
from index.catalogue.tables import AuditNameRow
from index.generations import names
from index.keys.api_keys import Role, find_key
from tests.access import AS_ADMIN
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.app.images.test_uploads import problem
from tests.index.killing import kill_after


@pytest.fixture(scope="module")
def home(on_either: Indexed) -> Indexed:
    on_either.index("other", on_either.bundle)
    # Without open reading, so that rights can be told apart.
    settings = on_either.settings.model_copy(update={"open_reading": False, "open_feedback": False})
    return Indexed(settings, on_either.manifest, on_either.bundle)


@pytest.fixture(scope="module")
def running(home: Indexed) -> Iterator[TestClient]:
    with serve(home, key=False) as client:
        yield client


@pytest.fixture
def service(running: TestClient) -> Iterator[TestClient]:
    """The service of all tests, which has no alias before and after each of them."""
    yield running
    for alias in ask(running, "GET", "/v1/aliases").json()["aliases"]:
        assert ask(running, "DELETE", f"/v1/aliases/{alias['alias']}").status_code == 200


def ask(service: TestClient, method: str, path: str, body: Any = None, **headers: str) -> Response:
    sent = {"Authorization": headers.pop("key", AS_ADMIN["Authorization"]), **headers}
    answer: Response = service.request(method, path, headers=sent, **({} if body is None else {"json": body}))
    return answer


def point(service: TestClient, alias: str, collection: str, **headers: str) -> Response:
    return ask(service, "PUT", f"/v1/aliases/{alias}", {"collection": collection}, **headers)


def key(home: Indexed, name: str, role: Role, *collections: str) -> str:
    return f"Bearer {home.key(role, *collections, name=name)}"


def test_an_alias_answers_wherever_a_name_does(service: TestClient) -> None:
    made = point(service, "current", COLLECTION)
    assert made.status_code == 201, made.text
    assert made.json() == {"alias": "current", "collection": COLLECTION, "etag": made.headers["ETag"]}
    for path in ("", "/images", "/facets", "/generations", "/images/image-3", "/images/image-3/content"):
        by_alias = ask(service, "GET", f"/v1/collections/current{path}")
        assert by_alias.status_code == 200, by_alias.text
        assert by_alias.content == ask(service, "GET", f"/v1/collections/{COLLECTION}{path}").content
    body = ask(service, "POST", "/v1/collections/current/search", {"text": "a boat", "limit": 3}).json()
    assert body["served_by"]["collection"] == COLLECTION
    changed = ask(service, "PATCH", "/v1/collections/current/images/image-3", {"labels": ["By alias"]})
    assert changed.status_code == 200
    image = ask(service, "GET", f"/v1/collections/{COLLECTION}/images/image-3").json()
    assert image["labels"] == ["By alias"]
    assert ask(service, "GET", "/v1/aliases").json()["aliases"] == [made.json()]


def test_a_swap_is_seen_by_the_next_request_and_by_another_process(
    service: TestClient, home: Indexed
) -> None:
    point(service, "current", COLLECTION)
    with serve(home, key=False) as second:
        for target in ("other", COLLECTION, "other"):
            assert point(service, "current", target).status_code == 200
            for client in (service, second):
                named = ask(client, "GET", "/v1/collections/current").json()["name"]
                assert named == target
    assert ask(service, "DELETE", "/v1/aliases/current").json()["collection"] == "other"
    problem(ask(service, "GET", "/v1/collections/current"), 404, "unknown-collection")
    problem(ask(service, "DELETE", "/v1/aliases/current"), 404, "unknown-alias")


def test_a_swap_with_an_etag_is_done_by_one_of_two(service: TestClient) -> None:
    etag = point(service, "current", COLLECTION, **{"If-None-Match": "*"}).headers["ETag"]
    problem(point(service, "current", "other", **{"If-None-Match": "*"}), 412, "precondition-failed")
    assert point(service, "current", "other", **{"If-Match": etag}).status_code == 200
    late = point(service, "current", COLLECTION, **{"If-Match": etag})
    problem(late, 412, "precondition-failed")
    assert "'other'" in late.json()["detail"]
    problem(ask(service, "DELETE", "/v1/aliases/current", **{"If-Match": etag}), 412, "precondition-failed")
    now = late.headers["ETag"]
    assert ask(service, "DELETE", "/v1/aliases/current", **{"If-Match": now}).status_code == 200
    problem(point(service, "current", "other", **{"If-Match": "*"}), 412, "precondition-failed")


def test_names_of_collections_and_aliases_are_never_the_same(service: TestClient) -> None:
    point(service, "current", COLLECTION)
    taken = point(service, "other", COLLECTION)
    problem(taken, 409, "collection-exists")
    detail = "'other' is the name of a collection, which no alias can have: choose another alias."
    assert taken.json()["errors"] == [{"field": "alias", "message": detail}]
    assert taken.json()["detail"] == detail
    begin = {"name": "current", "same_model_as": COLLECTION}
    problem(ask(service, "POST", "/v1/collections", begin), 409, "collection-exists")
    problem(ask(service, "PATCH", "/v1/collections/other", {"name": "current"}), 409, "collection-exists")
    problem(point(service, "next", "current"), 404, "unknown-collection")
    problem(point(service, "next", "nowhere"), 404, "unknown-collection")
    invalid = point(service, "~1", COLLECTION)
    problem(invalid, 422, "invalid-name")
    assert invalid.json()["errors"][0]["field"] == "alias"
    assert "cannot name an alias" in invalid.json()["detail"]


def test_a_collection_is_neither_removed_nor_renamed_by_an_alias(service: TestClient) -> None:
    point(service, "current", COLLECTION)
    problem(ask(service, "DELETE", "/v1/collections/current"), 409, "alias-named")
    problem(ask(service, "PATCH", "/v1/collections/current", {"name": "new"}), 409, "alias-named")
    assert ask(service, "GET", f"/v1/collections/{COLLECTION}").json()["count"] == 24


def test_aliases_go_with_their_collection(service: TestClient) -> None:
    ask(service, "POST", "/v1/collections", {"name": "short", "same_model_as": COLLECTION})
    point(service, "current", "short")
    assert ask(service, "DELETE", "/v1/collections/short").status_code == 200
    assert ask(service, "GET", "/v1/aliases").json() == {"aliases": []}
    assert point(service, "short", COLLECTION).status_code == 201


def test_there_are_so_many_aliases_at_most(service: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_MAX_ALIASES", 1)
    point(service, "current", COLLECTION)
    problem(point(service, "second", COLLECTION), 409, "too-many-aliases")
    assert point(service, "current", "other").status_code == 200


def test_rights_are_those_of_the_collection_behind(service: TestClient, home: Indexed) -> None:
    """Roles are looked up by the collection's own name, never by the alias that a request uses."""
    of_photos = key(home, "photos reader", "reader", COLLECTION)
    of_alias = key(home, "alias reader", "admin", "current")
    path = "/v1/collections/current"
    # Nothing is there under this name yet: the key may ask, and finds nothing.
    assert ask(service, "GET", path, key=of_alias).status_code == 404
    point(service, "current", COLLECTION)
    assert ask(service, "GET", path, key=of_photos).status_code == 200
    refused = ask(service, "GET", path, key=of_alias)
    problem(refused, 403, "role-needed")
    assert COLLECTION not in refused.text
    point(service, "current", "other")
    gone = ask(service, "GET", path, key=of_photos)
    problem(gone, 403, "role-needed")
    # No more is learned than of a name that is not there.
    nowhere = ask(service, "GET", "/v1/collections/nowhere", key=of_photos)
    assert gone.json()["detail"].replace("current", "nowhere") == nowhere.json()["detail"]
    assert ask(service, "GET", path, key=of_alias).status_code == 403
    assert ask(service, "DELETE", path, key=of_alias).status_code == 403
    assert ask(service, "GET", "/v1/aliases", key=of_photos).json() == {"aliases": []}
    point(service, "current", COLLECTION)
    listed = ask(service, "GET", "/v1/aliases", key=of_photos).json()["aliases"]
    assert [one["alias"] for one in listed] == ["current"]


def test_who_may_do_all_in_one_collection_gives_no_names(service: TestClient, home: Indexed) -> None:
    admin = key(home, "photos admin", "admin", COLLECTION, "current")
    problem(point(service, "current", COLLECTION, key=admin), 403, "role-needed")
    renaming = ask(service, "PATCH", f"/v1/collections/{COLLECTION}", {"name": "new"}, key=admin)
    problem(renaming, 403, "role-needed")


def test_events_have_the_name_of_the_collection_and_the_alias(service: TestClient) -> None:
    point(service, "current", "other")
    point(service, "current", COLLECTION)
    path = "/v1/collections/current/images/image-4"
    assert ask(service, "PATCH", path, {"labels": ["Named"]}).status_code == 200
    body = ask(service, "GET", f"/v1/audit?action=change&collection={COLLECTION}").json()["events"]
    swap, change = body[-2:]
    assert swap["details"]["operation"] == "put_alias"
    assert (swap["details"]["alias"], swap["details"]["led_to"]) == ("current", "other")
    assert (change["ids"], change["details"]["alias"]) == (["image-4"], "current")


def test_a_renamed_collection_has_all_that_it_had(service: TestClient, home: Indexed) -> None:
    home.index("ward", home.bundle)
    of_ward = key(home, "ward reader", "reader", "ward")
    key_id = of_ward.split("_")[1]
    point(service, "alias-of-ward", "ward")
    query = {"text": "a boat", "limit": 24}
    before = ask(service, "POST", "/v1/collections/ward/search", query).json()
    judged = {"query": {"text": "a boat"}, "hit": "image-1", "relevant": True}
    assert ask(service, "POST", "/v1/collections/ward/feedback", judged).status_code == 200
    images = ask(service, "GET", "/v1/collections/ward/images?limit=24").json()
    with home.engine() as engine:
        with engine.home.catalogue.write() as session:
            ended = add_job(session, "duplicates", ["ward"]).id
            cancel_job(session, ended)
            waiting = add_job(session, "reindex", ["ward", "--generation", "1"]).id
        problem(ask(service, "PATCH", "/v1/collections/ward", {"name": "clinic"}), 409, "collection-in-use")
        with engine.home.catalogue.write() as session:
            cancel_job(session, waiting)
            add_job(session, "import", ["other", "--data", "ward"])

        renamed = ask(service, "PATCH", "/v1/collections/ward", {"name": "clinic"})

        assert renamed.status_code == 200, renamed.text
        assert (renamed.json()["name"], renamed.json()["count"]) == ("clinic", 24)
        with engine.home.catalogue.read() as session:
            assert get_job(session, ended).arguments == ["clinic"]
            assert get_job(session, waiting).arguments == ["clinic", "--generation", "1"]
            kept = find_key(session, key_id)
            assert kept is not None
            assert dict(kept.grants) == {"clinic": frozenset({"reader"})}
            assert names_of(session, "clinic") == ["clinic", "ward"]
    problem(ask(service, "GET", "/v1/collections/ward"), 404, "unknown-collection")
    after = ask(service, "POST", "/v1/collections/clinic/search", query).json()
    assert [(hit["id"], hit["score"]) for hit in after["hits"]] == [
        (hit["id"], hit["score"]) for hit in before["hits"]
    ]
    assert after["served_by"]["generation"] == before["served_by"]["generation"]
    listed = ask(service, "GET", "/v1/collections/clinic/images?limit=24").json()
    assert [image["id"] for image in listed["images"]] == [image["id"] for image in images["images"]]
    assert ask(service, "GET", "/v1/collections/clinic/feedback").json()["relevant"] == 1
    assert ask(service, "GET", "/v1/collections/alias-of-ward").json()["name"] == "clinic"
    # The old name is free: as an alias it serves clients that still use it, with the rights of the key.
    assert point(service, "ward", "clinic").status_code == 201
    old, new = (ask(service, "GET", f"/v1/audit?collection={name}").json()["events"] for name in
                ("ward", "clinic"))  # fmt: skip
    assert [e["details"]["renamed_to"] for e in old if "renamed_to" in e["details"]] == ["clinic"]
    assert [e["details"]["renamed_from"] for e in new if "renamed_from" in e["details"]] == ["ward"]


def test_keys_follow_a_renamed_collection_within_a_second(service: TestClient, home: Indexed) -> None:
    home.index("early", home.bundle)
    reader = key(home, "early reader", "reader", "early")
    assert ask(service, "PATCH", "/v1/collections/early", {"name": "late"}).status_code == 200
    assert ask(service, "GET", "/v1/collections/late", key=reader).status_code == 200
    assert ask(service, "GET", "/v1/collections/early", key=reader).status_code == 403


def test_no_key_gains_rights_by_a_rename(service: TestClient, home: Indexed) -> None:
    home.index("secret", home.bundle)
    key(home, "holder", "reader", "public")
    refused = ask(service, "PATCH", "/v1/collections/secret", {"name": "public"})
    problem(refused, 409, "keys-of-name")
    assert "'holder'" in refused.json()["detail"]
    for wrong, status in (("other", 409), ("~1", 422), ("", 422)):
        assert ask(service, "PATCH", "/v1/collections/secret", {"name": wrong}).status_code == status
    assert ask(service, "GET", "/v1/collections/secret").json()["count"] == 24
    same = ask(service, "PATCH", "/v1/collections/secret", {"name": "secret"})
    assert (same.status_code, same.json()["name"]) == (200, "secret")


def test_a_collection_that_takes_a_name_is_not_read_by_keys_of_the_last(
    service: TestClient, home: Indexed
) -> None:
    for name in ("taken", "radiographs"):
        home.index(name, home.bundle)
    reader = key(home, "taken reader", "reader", "taken")
    with serve(home, key=False) as second:
        for client in (service, second):
            assert ask(client, "GET", "/v1/collections/taken", key=reader).status_code == 200
        assert ask(service, "PATCH", "/v1/collections/taken", {"name": "left"}).status_code == 200
        assert ask(service, "PATCH", "/v1/collections/radiographs", {"name": "taken"}).status_code == 200
        for client in (service, second):
            assert ask(client, "GET", "/v1/collections/taken", key=reader).status_code == 403
            assert ask(client, "GET", "/v1/collections/left", key=reader).status_code == 200


def test_no_group_gains_rights_by_a_rename(home: Indexed) -> None:
    roles: dict[str, dict[str, frozenset[Role]]] = {"radiology": {"wards": frozenset({"reader"})}}
    with home.engine() as engine, pytest.raises(RequestError, match="radiology"):
        rename(
            home.settings.model_copy(update={"oidc_roles": roles}),
            engine.home,
            COLLECTION,
            "wards",
            Actor("key", "k", "k"),
            operation="rename_collection",
            request=None,
        )


def test_an_erasure_reaches_the_events_under_former_names(service: TestClient, home: Indexed) -> None:
    home.index("first-name", home.bundle)
    assert ask(service, "DELETE", "/v1/collections/first-name/images/image-1").status_code == 200
    for old, new in (("first-name", "second-name"), ("second-name", "third-name")):
        assert ask(service, "PATCH", f"/v1/collections/{old}", {"name": new}).status_code == 200

    def cached_ids() -> list[str | None]:
        query = select(AuditNameRow.name).where(AuditNameRow.collection == "first-name")
        with home.read() as session:
            return list(session.execute(query).scalars())

    assert cached_ids() == ["image-1"]
    erased = ask(service, "POST", "/v1/collections/third-name/erase", {"ids": ["image-1", "image-2"]})
    assert erased.status_code == 200, erased.text
    assert set(cached_ids()) == {None}
    assert id_digest(b"k", "first-name", "image-1") != id_digest(b"k", "third-name", "image-1")


_PROGRAM = """
import sys
from pathlib import Path
from app.engine import open_engine
from app.settings import Settings
from index.generations.names import rename_collection

engine = open_engine(Settings(home=Path(sys.argv[1])))
with engine.home.catalogue.write() as session:
    rename_collection(session, "photos", "pictures")
    session.flush()
    print("batch", flush=True)
    sys.stdin.readline()
    {before}
{after}
"""


@pytest.mark.slow
@pytest.mark.usefixtures("service")
@pytest.mark.parametrize("committed", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_killed_rename_is_whole_or_was_none(own: Indexed, committed: bool) -> None:
    reader = key(own, "photos reader", "reader", COLLECTION).split("_")[1]
    wait = "print('batch', flush=True); sys.stdin.readline()"
    program = _PROGRAM.format(before="pass" if committed else "import time; time.sleep(60)",
                              after=wait if committed else "")  # fmt: skip
    kill_after(2 if committed else 1, program, Path(own.settings.home))
    name = "pictures" if committed else COLLECTION
    with own.engine() as engine:
        assert engine.names() == [name]
        with engine.home.catalogue.read() as session:
            result = find_key(session, reader)
            assert result is not None
            assert list(result.grants) == [name]
    with serve(own) as running:
        hits = running.post(f"/v1/collections/{name}/search", json={"text": "a boat"})
        assert len(hits.json()["hits"]) == 10


def test_settings_that_name_a_renamed_collection_are_told_and_give_nothing(own: Indexed) -> None:
    own.index("ward", own.bundle)
    reader: frozenset[Role] = frozenset({"reader"})
    roles = {"radiology": {"ward": reader, "current": reader, "later": reader}, "it": {"*": reader}}
    settings = own.settings.model_copy(update={"oidc_roles": roles, "retrain": ("ward",)})
    with serve(own, oidc_roles=roles, retrain=("ward",)) as running, capture_logs() as lines:
        point(running, "current", COLLECTION)
        renamed = ask(running, "PATCH", "/v1/collections/ward", {"name": "ward-7"})
        assert renamed.status_code == 200, renamed.text
        assert renamed.json()["settings"] == ["RECOQUEST_OIDC_ROLES", "RECOQUEST_RETRAIN"]
        (warning,) = [line for line in lines if "called before" in line["event"]]
        assert (warning["before"], warning["now"]) == ("ward", "ward-7")
        # A new collection of the old name would be read by those who had a role in the renamed one.
        begin = {"name": "ward", "same_model_as": COLLECTION}
        refused = ask(running, "POST", "/v1/collections", begin)
        problem(refused, 409, "groups-of-name")
        assert "'ward-7'" in refused.json()["detail"]
        assert ask(running, "POST", "/v1/collections", begin | {"name": "later"}).status_code == 201
        other = ask(running, "PATCH", f"/v1/collections/{COLLECTION}", {"name": "pictures"})
        assert other.json()["settings"] == []
    with closing(open_engine(settings)) as engine, engine.home.catalogue.read() as session:
        (finding,) = examine_roles(settings, session, engine.names())
        assert finding.state == "doubtful"
        assert "'ward', which is called 'ward-7' now" in finding.found
        assert "'current', which is an alias of 'pictures'" in finding.found
        assert "'later'" not in finding.found
        assert renamed_names(settings, session) == {"ward": "ward-7"}
        good = settings.model_copy(update={"oidc_roles": {"radiology": {"ward-7": reader}}})
        assert [one.state for one in examine_roles(good, session, engine.names())] == ["ok"]
        assert list(examine_roles(own.settings, session, engine.names())) == []
        refuse_gained_roles(good, session, "ward")
        with pytest.raises(RequestError, match="radiology"):
            refuse_gained_roles(settings, session, "ward")


def test_indexing_makes_no_collection_in_which_groups_would_gain_roles(
    own: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(own) as running:
        assert ask(running, "PATCH", f"/v1/collections/{COLLECTION}", {"name": "pictures"}).status_code == 200
    arguments = ["--bundle", own.bundle, "--data", own.manifest.folder, "--device", "cpu"]
    monkeypatch.setenv("RECOQUEST_OIDC_ROLES", f'{{"radiology": {{"{COLLECTION}": ["reader"]}}}}')
    with pytest.raises(RequestError, match="radiology"):
        own.run("index", COLLECTION, *arguments)
    own.run("index", "pictures", *arguments)
    with own.engine() as engine:
        assert engine.names() == ["pictures"]
