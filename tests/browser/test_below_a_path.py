"""The page below a path of a site, behind nginx and Caddy."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import pytest
from pydantic import SecretStr

from app.application import create_app
from tests.browser.conftest import OpenSearch, Watch, step
from tests.browser.room import film_id, index_room
from tests.browser.search_page import expect
from tests.browser.service import index_shapes, running
from tests.needed import needed

pytestmark = [pytest.mark.browser, pytest.mark.slow]

_LOCATIONS: Final = {
    "nginx": """
location = /photos { return 301 /photos/; }
location /photos/ { proxy_pass http://recoquest/; }
location /photos/v1/jobs { proxy_pass http://recoquest/v1/jobs; proxy_buffering off; proxy_read_timeout 1h; }
location = /photos/metrics { deny all; }
""",
    "caddy": """
redir /photos /photos/
handle_path /photos/* {
	respond /metrics 404
	reverse_proxy 127.0.0.1:8000
}
""",
}
_KEY: Final = "a key of sixteen letters or more"
_PATIENCE_S: Final = 30
_NGINX: Final = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream recoquest {{ server {service}; }}
    server {{
        listen 127.0.0.1:{port};
        proxy_set_header Host $http_host;
        {locations}
    }}
}}
"""
_CADDY: Final = """
{{
	admin off
	auto_https off
}}
http://127.0.0.1:{port} {{
	{locations}
}}
"""


@dataclass(frozen=True)
class Site:
    """The address of the service below its path, and that of its host."""

    address: str
    host: str


def _command(kind: str, folder: Path, port: int, service: str) -> list[str]:
    """Write the configuration of a proxy; return the command that starts it."""
    if kind == "nginx":
        program = needed(
            shutil.which("nginx") or shutil.which("/usr/sbin/nginx"), "nginx", "apt-get install nginx"
        )
        config = _NGINX.format(folder=folder, port=port, service=service, locations=_LOCATIONS["nginx"])
        (folder / "nginx.conf").write_text(config)
        return [program, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]
    program = needed(shutil.which("caddy"), "Caddy", "apt-get install caddy")
    config = _CADDY.format(port=port, locations=_LOCATIONS["caddy"].replace("127.0.0.1:8000", service))
    (folder / "Caddyfile").write_text(config)
    return [program, "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


@contextmanager
def _proxied(kind: str, folder: Path, port: int, service: str) -> Iterator[None]:
    with (folder / "log").open("wb") as log:
        proxy = subprocess.Popen(_command(kind, folder, port, service), stdout=log, stderr=log)
    try:
        until = time.monotonic() + _PATIENCE_S
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert proxy.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        yield
    finally:
        proxy.terminate()
        proxy.wait(timeout=_PATIENCE_S)


@pytest.fixture(scope="module", params=["nginx", "caddy"])
def below(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The service below /photos, with shapes and films."""
    folder = tmp_path_factory.mktemp("below")
    settings = index_shapes(folder / "home", folder / "data")
    (folder / "films").mkdir()
    index_room(folder / "films", settings)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    site = Site(f"http://127.0.0.1:{port}/photos", f"http://127.0.0.1:{port}")
    served = settings.model_copy(update={"public_url": site.address, "admin_key": SecretStr(_KEY)})
    (folder / "proxy").mkdir()
    with (
        running(create_app(served)) as service,
        _proxied(str(request.param), folder / "proxy", port, service.removeprefix("http://")),
    ):
        yield site


def test_every_page_stays_below_the_path(below: Site, open_search: OpenSearch, watch: Watch) -> None:
    # The test fails where a page asks for anything outside of the path; nobody has signed in to operate.
    watch.allowed[:] = ["willReadFrequently", "401"]
    step("the page searches and shows its pictures")
    search = open_search("#collection=shapes&q=circle", site=below.address)
    page = search.page
    assert page.url.startswith(f"{below.address}/")
    search.settle()
    for number in range(3):
        expect(page.locator(".hit img").nth(number)).not_to_have_js_property("naturalWidth", 0)
    search.more.click()
    expect(search.tiles).to_have_count(48)
    search.tiles.first.locator(".hit-open").click()
    expect(search.dialog.locator(".viewer-picture")).to_have_js_property("naturalWidth", 96)
    step("the reading room shows films, and leads back")
    page.goto(f"{below.address}/room#film=films%2F{film_id(2)}")
    film = page.locator(".viewport:visible").first
    expect(film).to_have_attribute("data-film", film_id(2))
    expect(film).to_have_attribute("data-state", "ready")
    page.get_by_role("link", name="recoquest").click()
    page.wait_for_url(f"{below.address}/")
    step("the operator's page and the description load whole")
    page.goto(f"{below.address}/operate")
    expect(page.get_by_text("shapes").first).to_be_visible()
    page.goto(f"{below.address}/docs")
    operations = sum(
        len(path) for path in page.request.get(f"{below.address}/openapi.json").json()["paths"].values()
    )
    expect(page.locator(".opblock")).to_have_count(operations, timeout=20_000)
    one = page.locator("#operations-search-search_images")
    one.click()
    expect(one).to_contain_text("application/problem+json")
    expect(page.locator(".servers option")).to_have_text("/photos")


def test_programs_follow_the_links_of_answers(below: Site) -> None:
    with httpx.Client(base_url=below.host, headers={"Authorization": f"Bearer {_KEY}"}, timeout=30) as client:
        assert client.get("/photos").headers["location"].endswith("/photos/")
        assert client.get("/photos/v1/jobs").status_code == 200
        odd = {"field": "id", "eq": "shape #4?"}
        page = client.post("/photos/v1/collections/shapes/search", json={"filter": odd}).json()
        for link in page["hits"][0]["links"].values():
            assert client.get(link).status_code == 200
        expected = {"rendition": "thumbnail", "expires_in": 60}
        made = client.post(f"{page['hits'][0]['links']['image']}/link", json=expected)
        assert httpx.get(below.host + made.json()["url"]).headers["content-type"] == "image/webp"
        begun = client.post("/photos/v1/session")
        assert "; Path=/photos/;" in begun.headers["set-cookie"]
        problem = client.get("/photos/v1/collections/none").json()
        assert client.get(problem["help"].partition("#")[0]).status_code == 200
        assert client.get("/photos/metrics").status_code in (403, 404)
        with client.stream("GET", "/photos/v1/jobs/1/events") as events:
            assert events.status_code == 404
