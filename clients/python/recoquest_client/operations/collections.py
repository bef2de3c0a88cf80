"""Calls of collections, their aliases, generations and models."""

from __future__ import annotations

from recoquest_client import answers
from recoquest_client.call import LONG_TIMEOUT, Call, reading
from recoquest_client.operations.requests import COLLECTION, begin, condition, get, given, precondition
from recoquest_client.readers import read_list, read_nothing

_ALIAS = "/v1/aliases/{alias}"


def list_collections() -> Call[tuple[answers.Collection, ...]]:
    """List the collections that the caller may read."""
    read = read_list("collections", answers.Collection)
    return get("list_collections", "/v1/collections", read)


def get_collection(collection: str) -> Call[answers.Collection]:
    """Describe a collection with the values of its fields."""
    return get("get_collection", COLLECTION, reading(answers.Collection), {"collection": collection})


def create_collection(name: str, model: str | None, same_model_as: str | None) -> Call[answers.Collection]:
    """Begin a collection."""
    body = given(name=name, model=model, same_model_as=same_model_as)
    return begin("create_collection", "/v1/collections", reading(answers.Collection), {}, body)


def delete_collection(collection: str) -> Call[None]:
    """Remove a collection."""
    names = {"collection": collection}
    return Call("delete_collection", "DELETE", COLLECTION, read_nothing, names, timeout=LONG_TIMEOUT)


def rename_collection(collection: str, name: str) -> Call[answers.Collection]:
    """Give a collection another name."""
    names, body = {"collection": collection}, {"name": name}
    return Call("rename_collection", "PATCH", COLLECTION, reading(answers.Collection), names, body=body)


def list_aliases() -> Call[tuple[answers.Alias, ...]]:
    """List the aliases of collections that the caller may read."""
    return get("list_aliases", "/v1/aliases", read_list("aliases", answers.Alias))


def put_alias(alias: str, collection: str, etag: str | None, only_new: bool) -> Call[answers.Alias]:
    """Point an alias at a collection."""
    headers = precondition("alias", etag, only_new)
    return Call(
        "put_alias",
        "PUT",
        _ALIAS,
        reading(answers.Alias),
        {"alias": alias},
        body={"collection": collection},
        headers=headers,
        is_repeatable=not headers,
    )


def delete_alias(alias: str, etag: str | None) -> Call[None]:
    """Remove an alias."""
    names = {"alias": alias}
    return Call("delete_alias", "DELETE", _ALIAS, read_nothing, names, headers=condition(etag))


def list_generations(collection: str) -> Call[tuple[answers.Generation, ...]]:
    """List the generations of a collection."""
    read = read_list("generations", answers.Generation)
    return get("list_generations", f"{COLLECTION}/generations", read, {"collection": collection})


def activate_generation(collection: str, number: int) -> Call[answers.Generation]:
    """Search in a generation."""
    path = f"{COLLECTION}/generations/{{number}}/activate"
    names: dict[str, str | int] = {"collection": collection, "number": number}
    return begin("activate_generation", path, reading(answers.Generation), names)


def roll_back_collection(collection: str) -> Call[answers.Generation]:
    """Search in the generation before."""
    path = f"{COLLECTION}/rollback"
    names = {"collection": collection}
    return begin("roll_back_collection", path, reading(answers.Generation), names)


def list_models() -> Call[tuple[answers.Model, ...]]:
    """List registered models."""
    return get("list_models", "/v1/models", read_list("models", answers.Model))


def get_model(digest: str) -> Call[answers.Model]:
    """Describe a model."""
    return get("get_model", "/v1/models/{digest}", reading(answers.Model), {"digest": digest})


def register_model(job: int) -> Call[answers.Model]:
    """Register the model of a job."""
    return begin("register_model", "/v1/models", reading(answers.Model), {}, {"job": job})
