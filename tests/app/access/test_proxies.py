"""A proxy on this machine is known by its headers, whichever it is."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from app.application import create_app
from tests.app.api.test_search import problem
from tests.app.conftest import COLLECTION, Indexed

_IMAGES = f"/v1/collections/{COLLECTION}/images"
PROXIED = [
    "Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded", "X-Real-IP", "Client-IP",
    "X-Client-IP", "Proxy-Client-IP", "WL-Proxy-Client-IP", "X-ProxyUser-Ip", "X-Remote-Addr",
    "Remote-User", "X-Original-Forwarded-For", "X-Original-Host", "X-Original-URL", "X-Scheme",
    "X-Auth-Request-User", "X-Cluster-Client-IP", "NS-Client-IP", "X-Citrix-Via", "X-F5-Client",
    "X-Haproxy-Server-State", "X-Envoy-External-Address", "X-Envoy-Expected-Rq-Timeout-Ms",
    "X-Envoy-Attempt-Count", "X-Varnish", "X-ARR-LOG-ID", "X-ARR-SSL", "Disguised-Host",
    "Max-Forwards", "X-Azure-ClientIP", "X-Azure-FDID", "X-Appgw-Trace-Id", "X-FD-HealthProbe",
    "CF-Connecting-IP", "CF-Ray", "CDN-Loop", "True-Client-IP", "Fastly-Client-IP", "Fastly-FF",
    "Akamai-Origin-Hop", "X-Akamai-Edgescape", "CloudFront-Viewer-Country", "X-Amz-Cf-Id",
    "X-Amzn-Trace-Id", "X-Appengine-Country", "X-Appengine-User-Ip", "X-Cloud-Trace-Context",
    "X-Goog-Iap-Jwt-Assertion", "Fly-Client-IP", "DO-Connecting-IP", "X-Sendfile-Type",
    "X-Accel-Mapping", "Tailscale-User-Login", "Incap-Client-IP",
]  # fmt: skip


@pytest.fixture(scope="module")
def local(indexed: Indexed) -> Iterator[TestClient]:
    """Who may write, unless through a proxy."""
    application = create_app(indexed.settings)
    with TestClient(application, "http://127.0.0.1", client=("127.0.0.1", 50_000)) as client:
        yield client


@pytest.mark.parametrize("header", PROXIED)
def test_every_proxy_is_known_by_its_headers(local: TestClient, header: str) -> None:
    answer = local.delete(f"{_IMAGES}/nobody", headers={header: "10.0.0.1"})
    problem(answer, 403, "only-from-this-machine")
    assert "proxy" in answer.json()["detail"]


@pytest.mark.parametrize(
    "header",
    ["User-Agent", "X-Request-ID", "Traceparent", "Cookie", "DNT", "X-B3-TraceId"],
)
def test_headers_of_programs_are_none_of_proxies(local: TestClient, header: str) -> None:
    problem(local.delete(f"{_IMAGES}/nobody", headers={header: "1"}), 404, "unknown-image")
