"""The service below a path of a site, behind a proxy that removes the path."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from tests.app.conftest import COLLECTION, Indexed, serve

HERE = f"/v1/collections/{COLLECTION}"


# The last ones begin as paths of the service do.
@pytest.fixture(params=["/photos", "/search/of/images", "/v1", "/page", "/images"])
def root(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def behind(indexed: Indexed, root: str) -> Iterator[TestClient]:
    """Asks as the proxy does, without the path."""
    with serve(indexed, public_url=f"https://example.org{root}") as client:
        yield client


def test_every_link_of_an_answer_has_the_path(behind: TestClient, root: str) -> None:
    page = behind.post(f"{HERE}/search", json={"text": "two dogs", "limit": 2}).json()
    links = list(page["hits"][0]["links"].values())
    links += behind.get(f"{HERE}/images/image-3").json()["links"].values()
    links.append(behind.get(f"{HERE}/images", params={"limit": 1}).json()["images"][0]["links"]["image"])
    links.append(behind.post(f"{HERE}/images/image-3/link", json={"rendition": "thumbnail"}).json()["url"])
    for link in links:
        assert link.startswith(f"{root}{HERE}/images/")
        assert behind.get(link.removeprefix(root)).status_code == 200, link
    problem = behind.get(f"{HERE}/images/none").json()
    assert problem["help"] == f"{root}/docs/problems#unknown-image"
    assert behind.get("/nothing").json()["help"] == f"{root}/docs/problems#not-found"
    job = behind.post("/v1/jobs", json={"kind": "duplicates", "collection": COLLECTION})
    assert job.headers["location"] == f"{root}/v1/jobs/{job.json()['id']}"


def test_the_cookie_of_a_session_is_for_the_path(behind: TestClient, root: str) -> None:
    assert f"; Path={root}/;" in behind.post("/v1/session").headers["set-cookie"]


def test_pages_files_and_descriptions_are_there(behind: TestClient, root: str) -> None:
    for path in ("/", "/room", "/operate", "/docs", "/docs/problems", "/livez", "/metrics"):
        assert behind.get(path).status_code == 200, path
    script = behind.get("/page/image-search.js")
    assert (script.status_code, script.headers["cache-control"]) == (200, "no-cache")
    assert behind.get("/docs/assets/swagger-ui.css").status_code == 200
    assert "'unsafe-inline'" in behind.get("/docs").headers["content-security-policy"]
    assert "'unsafe-inline'" not in behind.get("/").headers["content-security-policy"]
    assert behind.get("/openapi.json").json()["servers"] == [{"url": root}]
    assert behind.options(f"{HERE}/search").headers["allow"] == "OPTIONS, POST"
    assert behind.head("/page/image-search.js").status_code == 200
    assert behind.post("/page/image-search.js").headers["allow"] == "GET, HEAD, OPTIONS"


def test_links_from_other_sites_lead_to_pages_alone(behind: TestClient) -> None:
    visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert behind.get("/room", headers=visit).status_code == 200
    assert behind.get("/page/image-search.js", headers=visit).status_code == 200
    assert behind.get(f"{HERE}/images", headers=visit).status_code == 403


def test_a_service_at_the_root_of_its_host_has_no_path(indexed: Indexed) -> None:
    with serve(indexed, key=False, public_url="https://example.org") as client:
        page = client.post(f"{HERE}/search", json={"text": "two dogs", "limit": 1}).json()
        assert page["hits"][0]["links"]["image"].startswith(f"{HERE}/images/")
        assert "servers" not in client.get("/openapi.json").json()
