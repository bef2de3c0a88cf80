"""The OpenAPI description is true and valid, and each operation's example is answered as it says."""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from app.jobs.folder import JobFolder
from app.jobs.kinds import bundle_of
from app.openapi import EXAMPLES
from index.catalogue.jobs import add_job, claim_job, end_job
from tests.app.conftest import Indexed, serve
from tests.app.generations.test_routes import trained_further
from tests.app.images.test_uploads import picture
from tests.dicom_films import encoded, make_film
from tests.needed import needed_module
from training.common.manifest import read_manifest, write_manifest
from training.models.bundle import read_bundle


@pytest.fixture(scope="module")
def description(client: TestClient) -> dict[str, Any]:
    described: dict[str, Any] = client.get("/openapi.json").json()
    return described


def operations(description: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for path in description["paths"].values() for operation in path.values()]


def test_every_operation_is_described_and_its_answers_are(description: dict[str, Any]) -> None:
    tags, declared = {tag["name"] for tag in description["tags"]}, 0
    for operation in operations(description):
        assert operation["summary"]
        assert operation["description"]
        assert set(operation["tags"]) <= tags
        responses = operation["responses"]
        content = responses[min(responses)].get("content", {})
        if "application/json" in content:
            assert "$ref" in content["application/json"]["schema"], operation["operationId"]
        for status, response in responses.items():
            if int(status) >= 400:
                declared += 1
                assert list(response["content"]) == ["application/problem+json"]
    assert declared > 20
    assert "HTTPValidationError" not in description["components"]["schemas"]


def test_every_reference_leads_somewhere(description: dict[str, Any]) -> None:
    schemas = description["components"]["schemas"]
    references = set(re.findall(r"'\$ref': '#/components/schemas/(\w+)'", str(description)))
    assert references
    assert references <= set(schemas)


def test_both_forms_of_a_search_are_described_and_its_fields_explained(description: dict[str, Any]) -> None:
    search = next(o for o in operations(description) if o["operationId"] == "search_images")
    content = search["requestBody"]["content"]
    query = {"$ref": "#/components/schemas/SearchQuery"}
    assert content["application/json"]["schema"] == query
    form = content["multipart/form-data"]["schema"]["properties"]
    assert set(form) == {"query", "image", "unlike_image"}
    assert form["query"] == query
    schema = description["components"]["schemas"]["SearchQuery"]
    for name, field in schema["properties"].items():
        assert field.get("description"), name


class Addresses(HTMLParser):
    """Collects what a page loads and whether it holds scripts itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inline_scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.found += [value for name in ("src", "href") if (value := values.get(name))]
        if tag == "script" and "src" not in values:
            self.inline_scripts += 1


def test_the_page_of_the_description_loads_from_this_server_only(client: TestClient) -> None:
    page = client.get("/docs")
    addresses = Addresses()
    addresses.feed(page.text)
    assert addresses.inline_scripts == 0
    loaded = [address for address in addresses.found if not address.startswith("data:")]
    assert len(loaded) == 3
    for address in loaded:
        assert not re.match(r"[a-z]+:|//", address)
        assert client.get(f"/{address}").status_code == 200, address
    # The browser lets only this server answer, whatever scripts try.
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    assert "http" not in page.headers["content-security-policy"]


_INSTALL = "`pip install jsonschema openapi-spec-validator`"
jsonschema = needed_module("jsonschema", _INSTALL)
openapi_spec_validator = needed_module("openapi_spec_validator", _INSTALL)

_STUDY = "1.2.826.0.1.3680043.8.498.3"
_OTHER_STUDY = "1.2.826.0.1.3680043.8.498.7"


@dataclass(frozen=True)
class Service:
    """A service whose home is as the examples have it, and its description."""

    client: TestClient
    description: dict[str, Any]
    digest: str

    def operation(self, name: str) -> tuple[str, str, dict[str, Any]]:
        """Return method, path and description of an operation."""
        for path, operations in self.description["paths"].items():
            for method, operation in operations.items():
                if operation["operationId"] == name:
                    return method, path, operation
        raise AssertionError(name)

    def send(self, name: str) -> Response:
        """Send the example of an operation, as the description has it."""
        method, path, operation = self.operation(name)
        query: dict[str, Any] = {}
        headers: dict[str, str] = {}
        for parameter in operation.get("parameters", []):
            value = parameter.get("example")
            if parameter["name"] == "digest":
                # That of a registered model, which no description knows.
                value = self.digest
            if parameter["in"] == "path":
                assert value is not None, parameter["name"]
                path = path.replace(f"{{{parameter['name']}}}", str(value))
            elif value is not None:
                (query if parameter["in"] == "query" else headers)[parameter["name"]] = value
        body = operation.get("requestBody", {}).get("content", {})
        sent: dict[str, Any] = {}
        if "example" in body.get("application/json", {}):
            sent["json"] = body["application/json"]["example"]
        elif "multipart/form-data" in body:
            sent["data"] = body["multipart/form-data"]["example"]
            sent["files"] = {"image": ("x.png", io.BytesIO(picture(90)), "image/png")}
        elif "multipart/related" in body:
            kind = 'multipart/related; type="application/dicom"; boundary=frontier'
            headers["Content-Type"] = kind
            head = b"--frontier\r\nContent-Type: application/dicom\r\n\r\n"
            sent["content"] = head + encoded(make_film(1, StudyInstanceUID=_STUDY)) + b"\r\n--frontier--"
        else:
            assert not body
        return self.client.request(method, path, params=query, headers=headers, **sent)

    def check(self, name: str, answer: Response) -> None:
        """Compare status, media type and shape of an answer with the description."""
        responses = self.operation(name)[2]["responses"]
        assert str(answer.status_code) in {status for status in responses if status < "300"}, answer.text
        described = responses[str(answer.status_code)].get("content", {})
        if answer.status_code == 204:
            assert not described
            assert not answer.content
            return
        kind = answer.headers["content-type"].split(";")[0]
        fitting = [name for name in described if re.fullmatch(re.escape(name).replace(r"\*", ".*"), kind)]
        assert fitting, f"{kind} is not among {list(described)}"
        if kind == "application/json":
            schema = {**described[kind]["schema"], "components": self.description["components"]}
            jsonschema.Draft202012Validator(schema).validate(answer.json())


@pytest.fixture(scope="module")
def service(make_indexed: Any) -> Iterator[Service]:
    home: Indexed = make_indexed()
    named = [
        replace(record, id=f"scene{position:05}") for position, record in enumerate(home.manifest.records)
    ]
    # The study of the examples, and another one.
    for position, study in ((0, _STUDY), (12, _OTHER_STUDY)):
        uids = {"study": study, "series": f"{study}.1", "sop": f"{study}.1.9"}
        named[position] = replace(named[position], metadata={**named[position].metadata, **uids})
    write_manifest(home.manifest.folder, named)
    home = replace(home, manifest=read_manifest(home.manifest.folder))
    archive = {
        "pacs_url": "http://archive.invalid/dicom-web",
        "pacs_sync": "scenes",
        "pacs_write_back": ("selection",),
    }
    home = home.with_settings(refresh_s=0.01, **archive)
    home.index("scenes", home.bundle)
    # Job 1 has made a model, and the collection is searched with it after another.
    with home.write() as session:
        number = add_job(session, "retrain", []).id
        claim_job(session, number, "w")
        end_job(session, number, "w", "done", result={})
    assert number == 1
    bundle = bundle_of("retrain", JobFolder.for_job(home.settings, number).path)
    assert bundle is not None
    further = home.bundle.with_name("further")
    for folder in (bundle, further):
        trained_further(folder, read_bundle(home.bundle).digest)
    home.index("scenes", further)
    with serve(home) as client:
        yield Service(client, client.get("/openapi.json").json(), read_bundle(further).digest)


def test_the_description_is_valid_and_has_an_example_of_every_operation_with_parameters(
    service: Service,
) -> None:
    openapi_spec_validator.validate(service.description)
    every = {operation["operationId"]: operation for operation in operations(service.description)}
    needed = {name for name, each in every.items() if each.keys() & {"parameters", "requestBody"}}
    assert needed <= EXAMPLES.keys() <= every.keys()


def test_examples_of_bodies_fit_their_schemas(service: Service) -> None:
    checked = 0
    for name in EXAMPLES:
        for content in service.operation(name)[2].get("requestBody", {}).get("content", {}).values():
            if "example" in content and "$ref" in content["schema"]:
                schema = {**content["schema"], "components": service.description["components"]}
                jsonschema.Draft202012Validator(schema).validate(content["example"])
                checked += 1
    assert checked > 5


def test_every_example_is_answered_as_it_is_described(service: Service) -> None:
    """In the order of the examples, as later ones need what earlier ones have made."""
    every = [operation["operationId"] for operation in operations(service.description)]
    for name in (*EXAMPLES, *(name for name in every if name not in EXAMPLES)):
        service.check(name, service.send(name))
