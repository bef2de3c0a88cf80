"""Each operation of the client is one of the service's, by name, method, path and parameters."""

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

from app.application import create_app
from app.settings import Settings
from recoquest_client import AsyncClient, Client, NewImage, operations
from recoquest_client.call import Call

DIGEST = "0" * 64
NEW = NewImage("a", b"image")
CALLS: list[Call[Any]] = [
    operations.list_collections(),
    operations.get_collection("c"),
    operations.create_collection("c", None, "d"),
    operations.delete_collection("c"),
    operations.rename_collection("c", "d"),
    operations.list_aliases(),
    operations.put_alias("a", "c", '"etag"', False),
    operations.put_alias("a", "c", None, True),
    operations.delete_alias("a", '"etag"'),
    operations.search("c", "text", {}),
    operations.map_similarity("c", "a", "text", {"like": ["b"]}, images=[b"image"]),
    operations.search_batch("c", [{"text": "text"}]),
    operations.find_similar("1.2", "c", None, None, None, False, 5),
    operations.find_similar("1.2", "c", "1.2.3", 1, {"field": "a", "eq": 1}, True, 5),
    operations.find_similar("1.2", None, None, None, None, False, 5),
    operations.find_similar("1.2", None, "1.2.3", None, None, False, 5),
    operations.index_study("c", "1.2", True),
    operations.write_results("c", "1.2", "1.2.3", ["a"], 1, ["capture"]),
    operations.list_images("c", {"filter": {"field": "a", "eq": 1}, "with_": ["texts"]}, 5),
    operations.behind(operations.list_images("c", {}, 5), "cursor"),
    operations.get_image("c", "a"),
    operations.get_content("c", "a"),
    operations.get_thumbnail("c", "a"),
    operations.get_rendition("c", "a", 5, "auto", "image/png"),
    operations.count_images("c", {}),
    operations.count_facets("c", {}, "field", "text", {"keywords": "text", "keywords_state": "absent"}),
    operations.create_embeddings("c", ["text"], [b"image"]),
    operations.link_image("c", "a", "thumbnail", 60),
    operations.upload_images("c", [NEW]),
    operations.put_image("c", NEW, '"etag"', False),
    operations.put_image("c", NEW, None, True),
    operations.update_image("c", "a", '"etag"', {}),
    operations.delete_image("c", "a", '"etag"'),
    operations.delete_matching_images("c", {"field": "a", "eq": 1}, True, 5),
    operations.erase_images("c", ["a"]),
    operations.judge_hit("c", "a", True, "text", (), (), False),
    operations.count_judgements("c"),
    operations.list_case_lists("c"),
    operations.put_case_list("c", "a", "name", '"etag"'),
    operations.delete_case_list("c", "a"),
    operations.behind(operations.get_case_list("c", "a", 5), "5"),
    operations.save_case_image("c", "a", "b", "note", '"etag"'),
    operations.remove_case_image("c", "a", "b"),
    operations.export_case_list("c", "a"),
    operations.list_generations("c"),
    operations.activate_generation("c", 1),
    operations.roll_back_collection("c"),
    operations.list_models(),
    operations.get_model(DIGEST),
    operations.register_model(1),
    operations.create_job("tidy", {}),
    operations.behind(operations.list_jobs("done", "tidy", 5), "5"),
    operations.get_job(1),
    operations.cancel_job(1),
    operations.stream_job_events(1),
    operations.behind(operations.list_audit("2026-01-01", "2026-02-01", "c", "search", 5), "5"),
]
# Not for programs that search: checks of the process, levels of grey as the page asks for them, sessions of
# browsers, and counts with a filter in the address.
LEFT_OUT = {
    "get_liveness", "get_readiness", "get_metrics", "get_levels", "begin_session", "get_session",
    "end_session", "count_values", "store_instances_of_studies", "store_instances_of_study",
}  # fmt: skip


@pytest.fixture(scope="module")
def operations_of_service() -> dict[str, tuple[str, str, dict[str, Any]]]:
    paths = create_app(Settings()).openapi()["paths"]
    return {
        operation["operationId"]: (method.upper(), path, operation)
        for path, methods in paths.items()
        for method, operation in methods.items()
    }


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.operation)
def test_the_operation_is_one_of_the_service(
    call: Call[Any], operations_of_service: dict[str, tuple[str, str, dict[str, Any]]]
) -> None:
    method, path, operation = operations_of_service[call.operation]
    assert (call.method, call.path) == (method, path)
    known = {(where["in"], where["name"]) for where in operation.get("parameters", [])}
    assert {("path", name) for name in call.names} == {one for one in known if one[0] == "path"}
    assert {("query", name) for name, value in call.params.items() if value is not None} <= known
    assert {("header", name) for name in call.headers if name != "Accept"} <= known
    # A key is drawn wherever the service heeds one.
    assert (("header", "Idempotency-Key") in known) == ("Idempotency-Key" in call.headers)
    bodies = operation.get("requestBody", {}).get("content", {})
    if call.form is not None:
        properties = bodies["multipart/form-data"]["schema"]["properties"]
        assert {*call.form, *(name for name, _ in call.files)} <= {*properties}
    else:
        assert (call.body is not None) == ("application/json" in bodies)


def test_every_operation_is_there_or_left_out_by_name(operations_of_service: dict[str, Any]) -> None:
    assert {call.operation for call in CALLS} | LEFT_OUT == {*operations_of_service}


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    def methods(kind: type) -> dict[str, list[str]]:
        return {
            {"aclose": "close"}.get(name, name): [*inspect.signature(method).parameters]
            for topic in kind.__mro__[:-1]
            for name, method in vars(topic).items()
            if not name.startswith("_")
        }

    assert methods(Client) == methods(AsyncClient)


def test_both_clients_do_the_same() -> None:
    def statements(kind: type) -> list[str]:
        """Calls of operations, in order, as both write them."""
        folder = Path(inspect.getfile(kind)).parent
        return [
            ast.unparse(node)
            for path in folder.glob("*.py")
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("operations.")
        ]

    found = statements(Client)
    assert len(found) > 30
    assert sorted(found) == sorted(statements(AsyncClient))
