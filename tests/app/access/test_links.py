"""Links to pictures: one picture without a credential, as long as the link holds and its maker may see it."""

import io
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from sqlalchemy import update

from app.access.sessions import LIFETIME_S, SessionSigner, linked_address
from app.application import create_app
from app.edge.principal import Principal
from app.edge.problems import RequestError
from index.catalogue.tables import ApiKeyRow
from index.keys.api_keys import revoke_key
from tests.access import ADMIN_KEY, AS_ADMIN, bearer
from tests.app.audit.test_requests import audited
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.oidc import AUDIENCE, OidcProvider

IMAGES = f"/v1/collections/{COLLECTION}/images"
NOW = 1_000_000.0


@dataclass(frozen=True)
class Service:
    """A service that nobody may read without a key."""

    client: TestClient
    home: Indexed

    def key(self, *, collection: str = COLLECTION) -> str:
        """A key of a reader."""
        return self.home.key("reader", collection, name=f"viewer {time.monotonic()}")

    def link(self, credential: str | None, image: str = "image-3", **wanted: Any) -> Response:
        """Ask for a link."""
        headers = {} if credential is None else bearer(credential)
        answer: Response = self.client.post(f"{IMAGES}/{image}/link", json=wanted, headers=headers)
        return answer

    def url(self, credential: str, image: str = "image-3", **wanted: Any) -> str:
        """The address of a link."""
        answer = self.link(credential, image, **wanted)
        assert answer.status_code == 200, answer.text
        found: str = answer.json()["url"]
        return found


@pytest.fixture
def service(own: Indexed, oidc: OidcProvider) -> Iterator[Service]:
    roles = {"readers": {"*": ["reader"]}}
    provider = {"oidc_issuer": oidc.issuer, "oidc_audience": AUDIENCE, "oidc_roles": roles}
    settings = own.settings.model_validate({**own.settings.model_dump(), "open_reading": False, **provider})
    with TestClient(create_app(settings), "http://localhost") as client:
        yield Service(client, replace(own, settings=settings))


def refused(answer: Response, kind: str) -> None:
    assert (answer.status_code, answer.json()["type"]) == (403, f"urn:recoquest:{kind}"), answer.text


@pytest.mark.parametrize(
    "rendition", ["thumbnail", "content", {}, {"size": 16}, {"size": 16, "window": "100,50"}]
)
def test_a_link_shows_what_its_maker_sees(service: Service, rendition: Any) -> None:
    key = service.key()
    url = service.url(key, rendition=rendition, expires_in=60)
    linked = service.client.get(url)
    assert linked.status_code == 200, linked.text
    bare = url.replace("&link=", "?link=").partition("?link=")[0]
    seen = service.client.get(bare, headers=bearer(key))
    assert linked.content == seen.content
    private, _, rest = linked.headers["cache-control"].partition(", max-age=")
    assert private == "private"
    assert 50 <= int(rest) <= 60
    assert linked.headers["referrer-policy"] == "no-referrer"
    assert linked.headers["cross-origin-resource-policy"] == "cross-origin"
    assert seen.headers["cache-control"] == "private, no-cache"
    again = service.client.get(url, headers={"If-None-Match": linked.headers["etag"]})
    assert again.status_code == 304


def test_a_link_opens_no_other_address(service: Service) -> None:
    url = service.url(service.key(), rendition={"size": 16})
    link = quote(parse_qs(urlsplit(url).query)["link"][0])
    here = f"{IMAGES}/image-3"
    for other in (
        f"{here}/rendition?size=17&window=auto&link={link}",
        f"{here}/rendition?window=auto&link={link}",
        f"{here}/rendition?size=16&link={link}",
        f"{url}&size=16",
        f"{url}&new=1",
        f"{url}&link={link}",
        url.replace("image-3", "image-4"),
        f"{here}/thumbnail?link={link}",
        f"{here}/content?size=16&window=auto&link={link}",
        url.replace("link=", "link=A"),
        f"{url[:-6]}AAAAAA",
        f"{here}/thumbnail?link=",
        f"{here}/thumbnail?link=%00.%ff",
    ):
        refused(service.client.get(other), "wrong-link")
    for other in (here, f"/v1/collections/{COLLECTION}", f"{here}/levels"):
        assert service.client.get(f"{other}?link={link}").status_code == 401
    assert service.client.delete(f"{here}?link={link}").status_code == 401
    # Another order is the same parameters.
    assert service.client.get(f"{here}/rendition?link={link}&window=auto&size=16").status_code == 200


def test_a_link_counts_alone_and_is_no_right_of_whoever_opens_it(service: Service) -> None:
    url = service.url(service.key(), rendition="thumbnail")
    stranger = service.key(collection="elsewhere")
    assert service.client.get(url, headers=bearer(stranger)).status_code == 200
    refused(service.client.get(f"{url[:-6]}AAAAAA", headers=AS_ADMIN), "wrong-link")


@pytest.mark.parametrize("how", ["revoked", "expired", "elsewhere"])
def test_a_link_ends_with_the_right_of_its_maker(service: Service, how: str) -> None:
    key = service.key()
    url = service.url(key, rendition="thumbnail")
    assert service.client.get(url).status_code == 200
    with service.home.write() as session:
        named = update(ApiKeyRow).where(ApiKeyRow.id == key.split("_")[1])
        if how == "revoked":
            revoke_key(session, key.split("_")[1])
        elif how == "expired":
            session.execute(named.values(expires="2001-01-01T00:00:00.000000+00:00"))
        else:
            session.execute(named.values(grants={"elsewhere": ["reader"]}))
    time.sleep(1.1)
    refused(service.client.get(url), "link-ended")


def test_a_link_shows_no_picture_of_another_collection_that_gets_the_name(
    service: Service, own: Indexed
) -> None:
    by_key = service.url(service.key(), rendition="thumbnail")
    by_admin = service.url(ADMIN_KEY, rendition="thumbnail")
    picture = service.client.get(by_key).content
    moved = service.client.patch(f"/v1/collections/{COLLECTION}", json={"name": "moved"}, headers=AS_ADMIN)
    assert moved.status_code == 200, moved.text
    for url in (by_key, by_admin):
        refused(service.client.get(url), "wrong-link")
    # The same ids, so that the path of the link is that of a picture again.
    own.index(COLLECTION, own.bundle)
    for url in (by_key, by_admin):
        refused(service.client.get(url), "wrong-link")
    for url in (by_key, by_admin):
        assert service.client.get(url.replace(f"/{COLLECTION}/", "/moved/")).content == picture
    assert service.client.delete(f"/v1/collections/{COLLECTION}", headers=AS_ADMIN).status_code == 200
    for url in (by_key, by_admin):
        refused(service.client.get(url), "wrong-link")
    alias = service.client.put(f"/v1/aliases/{COLLECTION}", json={"collection": "moved"}, headers=AS_ADMIN)
    assert alias.status_code == 201
    for url in (by_key, by_admin):
        assert service.client.get(url).content == picture


def test_a_link_of_a_token_or_a_session_shows_its_collection(service: Service, oidc: OidcProvider) -> None:
    token = oidc.token("readers")
    assert service.client.get(service.url(token, rendition="thumbnail")).status_code == 200
    begun = service.client.post("/v1/session", headers=bearer(service.key()))
    headers = {"X-CSRF-Token": begun.json()["csrf_token"]}
    made = service.client.post(f"{IMAGES}/image-3/link", json={"rendition": "thumbnail"}, headers=headers)
    assert made.status_code == 200, made.text
    assert service.client.post(f"{IMAGES}/image-3/link", json={}).status_code == 403
    service.client.cookies.clear()
    assert service.client.get(made.json()["url"]).status_code == 200


def test_a_link_keeps_no_role_that_the_settings_gave_to_everybody(
    service: Service, oidc: OidcProvider
) -> None:
    opened = service.home.with_settings(open_reading=True)
    with serve(opened, key=False) as client:
        url = Service(client, opened).url(oidc.token("strangers"), rendition="thumbnail")
        assert client.get(url).status_code == 200
    refused(service.client.get(url), "link-ended")


def test_wrong_requests_for_links(service: Service) -> None:
    key = service.key()
    assert service.link(None).status_code == 401
    assert service.link(service.key(collection="elsewhere")).status_code == 403
    assert service.link(key, "no-such").status_code == 404
    for wanted in (
        {"expires_in": 86_401}, {"expires_in": 0}, {"rendition": "original"}, {"rendition": {"size": 0}},
        {"rendition": {"window": "wide"}}, {"rendition": {"colour": 1}}, {"until": 5},
    ):  # fmt: skip
        assert service.link(key, **wanted).status_code == 422, wanted


def test_the_trail_names_the_maker_and_the_log_no_address(service: Service, json_log: io.StringIO) -> None:
    key = service.key()
    url = service.url(key, rendition="content", expires_in=60)
    assert service.client.get(url).status_code == 200
    made, used = audited(service.client, action="export")
    assert {made["details"]["operation"], used["details"]["operation"]} == {"link_image", "get_content"}
    by = {event["details"]["operation"]: event["actor"] for event in (made, used)}
    assert by["link_image"]["id"] == by["get_content"]["id"] == key.split("_")[1]
    assert (by["link_image"]["kind"], by["get_content"]["kind"]) == ("key", "link")
    assert parse_qs(urlsplit(url).query)["link"][0] not in json_log.getvalue()


def test_pages_of_other_sites_show_a_link_and_nothing_by_a_cookie(service: Service) -> None:
    url = service.url(service.key(), rendition={"size": 16})
    elsewhere = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
    assert service.client.get(url, headers=elsewhere).status_code == 200
    bare = url.partition("?")[0]
    refused(service.client.get(bare, headers={**elsewhere, **AS_ADMIN}), "foreign-page")
    refused(service.client.get(f"{bare}?link=x", headers={**elsewhere, **AS_ADMIN}), "wrong-link")
    refused(service.client.get(f"{IMAGES}/image-3/levels?link=x", headers=elsewhere), "foreign-page")


def test_a_link_holds_until_its_end_and_no_second_longer() -> None:
    sessions, address = SessionSigner(b"s" * 32, lambda: NOW), linked_address(1, "x/y", "content", [])
    maker = sessions.begin(Principal("key", "k", "n", {}), b"digest")
    assert maker.expires == NOW + LIFETIME_S
    sealed = sessions.seal_link(maker, address)
    last = SessionSigner(b"s" * 32, lambda: maker.expires - 1)
    assert last.open_link(sealed, address) == maker
    with pytest.raises(RequestError, match="has ended"):
        SessionSigner(b"s" * 32, lambda: maker.expires).open_link(sealed, address)
    other = SessionSigner(b"t" * 32, lambda: NOW)
    with pytest.raises(RequestError, match="another picture"):
        other.open_link(sealed, address)
    # No cookie of a session is a link, and no link a cookie.
    assert sessions.open(sealed) is None
    with pytest.raises(RequestError, match="another picture"):
        sessions.open_link(sessions.seal(maker), address)


def test_no_two_addresses_are_signed_alike() -> None:
    signed = {
        linked_address(1, "b", "content", []),
        linked_address(1, "b/content", "content", []),
        linked_address(11, "b", "content", []),
        linked_address(1, "b", "content", [("c", "d&e=f")]),
        linked_address(1, "b", "content", [("c", "d"), ("e", "f")]),
    }
    assert len(signed) == 5
