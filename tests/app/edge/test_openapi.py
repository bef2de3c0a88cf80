"""The OpenAPI description is true, and its page needs no other server."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from fastapi.testclient import TestClient

OPERATIONS = {
    "erase_images",
    "list_audit",
    "search_images",
    "search_batch",
    "create_embeddings",
    "find_similar_studies",
    "find_studies_like_image",
    "find_similar_anywhere",
    "find_like_image_anywhere",
    "list_images",
    "count_images",
    "count_values",
    "count_facets",
    "get_image",
    "get_thumbnail",
    "get_rendition",
    "get_levels",
    "map_similarity",
    "get_content",
    "link_image",
    "list_collections",
    "get_collection",
    "list_models",
    "get_model",
    "register_model",
    "get_liveness",
    "get_readiness",
    "get_metrics",
    "roll_back_collection",
    "activate_generation",
    "list_generations",
    "delete_collection",
    "rename_collection",
    "list_aliases",
    "put_alias",
    "delete_alias",
    "create_collection",
    "delete_image",
    "delete_matching_images",
    "update_image",
    "put_image",
    "upload_images",
    "store_instances_of_studies",
    "store_instances_of_study",
    "index_study",
    "judge_hit",
    "write_results",
    "count_judgements",
    "list_case_lists",
    "get_case_list",
    "export_case_list",
    "put_case_list",
    "delete_case_list",
    "save_case_image",
    "remove_case_image",
    "create_job",
    "list_jobs",
    "get_job",
    "cancel_job",
    "stream_job_events",
    "begin_session",
    "get_session",
    "end_session",
}


@pytest.fixture(scope="module")
def description(client: TestClient) -> dict[str, Any]:
    described: dict[str, Any] = client.get("/openapi.json").json()
    return described


def operations(description: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for path in description["paths"].values() for operation in path.values()]


def test_operation_ids_are_the_names_that_clients_rely_on(description: dict[str, Any]) -> None:
    names = [operation["operationId"] for operation in operations(description)]
    assert sorted(names) == sorted(OPERATIONS)


def test_every_operation_is_described_and_tagged(description: dict[str, Any]) -> None:
    tags = {tag["name"] for tag in description["tags"]}
    for operation in operations(description):
        assert operation["summary"]
        assert operation["description"]
        assert set(operation["tags"]) <= tags


def test_errors_are_declared_as_problem_documents_only(description: dict[str, Any]) -> None:
    declared = 0
    for operation in operations(description):
        for status, response in operation["responses"].items():
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


def test_json_answers_have_a_schema(description: dict[str, Any]) -> None:
    for operation in operations(description):
        success = min(operation["responses"])
        content = operation["responses"][success].get("content", {})
        if "application/json" in content:
            assert "$ref" in content["application/json"]["schema"], operation["operationId"]


def test_both_forms_of_a_search_are_described(description: dict[str, Any]) -> None:
    search = next(o for o in operations(description) if o["operationId"] == "search_images")
    content = search["requestBody"]["content"]
    query = {"$ref": "#/components/schemas/SearchQuery"}
    assert content["application/json"]["schema"] == query
    form = content["multipart/form-data"]["schema"]["properties"]
    assert set(form) == {"query", "image", "unlike_image"}
    assert form["query"] == query
    schema = description["components"]["schemas"]["SearchQuery"]
    assert set(schema["properties"]) == {
        *(
            "text",
            "like",
            "unlike",
            "image_boxes",
            "unlike_image_boxes",
            "keywords",
            "keywords_state",
            "target",
            "filter",
            "group_by",
        ),
        *("exclude_same_group", "diversity", "min_score", "limit", "cursor", "with"),
    }
    assert all(field.get("description") for field in schema["properties"].values())


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
    # Whatever the scripts try, the browser lets nothing but this server answer.
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    assert "http" not in page.headers["content-security-policy"]
