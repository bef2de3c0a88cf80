"""Calls about cases that people keep."""

from __future__ import annotations

from recoquest_client import answers
from recoquest_client.call import LONG_TIMEOUT, Call, reading
from recoquest_client.operations.requests import COLLECTION, condition, get, given
from recoquest_client.readers import read_list, read_nothing

_LIST = f"{COLLECTION}/cases/{{case_list}}"
_CASE = f"{_LIST}/images/{{image_id}}"


def list_case_lists(collection: str) -> Call[tuple[answers.CaseList, ...]]:
    """List the case lists of a collection."""
    read = read_list("lists", answers.CaseList)
    return get("list_case_lists", f"{COLLECTION}/cases", read, {"collection": collection})


def put_case_list(collection: str, case_list: str, name: str, etag: str | None) -> Call[answers.CaseList]:
    """Begin or rename a list."""
    return Call(
        "put_case_list",
        "PUT",
        _LIST,
        reading(answers.CaseList),
        _list(collection, case_list),
        body={"name": name},
        headers=condition(etag),
        is_repeatable=etag is None,
    )


def delete_case_list(collection: str, case_list: str) -> Call[None]:
    """Remove a list."""
    return Call("delete_case_list", "DELETE", _LIST, read_nothing, _list(collection, case_list))


def get_case_list(collection: str, case_list: str, limit: int) -> Call[answers.CasePage]:
    """Read a page of a list."""
    read = reading(answers.CasePage)
    return get("get_case_list", _LIST, read, _list(collection, case_list), {"limit": limit})


def save_case_image(
    collection: str, case_list: str, image_id: str, note: str | None, etag: str | None
) -> Call[None]:
    """Put an image into a list."""
    return Call(
        "save_case_image",
        "PUT",
        _CASE,
        read_nothing,
        {**_list(collection, case_list), "image_id": image_id},
        body=given(note=note),
        headers=condition(etag),
        is_repeatable=etag is None,
    )


def remove_case_image(collection: str, case_list: str, image_id: str) -> Call[None]:
    """Take an image out of a list."""
    names = {**_list(collection, case_list), "image_id": image_id}
    return Call("remove_case_image", "DELETE", _CASE, read_nothing, names, is_repeatable=True)


def export_case_list(collection: str, case_list: str) -> Call[bytes]:
    """Read the teaching file of a list."""
    return Call(
        "export_case_list",
        "GET",
        f"{_LIST}/export",
        lambda response: response.content,
        _list(collection, case_list),
        headers={"Accept": "application/zip"},
        is_repeatable=True,
        timeout=LONG_TIMEOUT,
    )


def _list(collection: str, case_list: str) -> dict[str, str]:
    return {"collection": collection, "case_list": case_list}
