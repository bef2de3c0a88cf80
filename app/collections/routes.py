"""The collections that can be searched, and their names."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from sqlalchemy.orm import Session

from app.audit.requests import Noted, actor_of, note
from app.collections.names import refuse_alias, refuse_gained_roles, remove, rename
from app.collections.schemas import (
    Alias,
    Aliases,
    AliasTarget,
    CollectionOverview,
    Collections,
    CollectionSummary,
    NewCollection,
    NewName,
    Removed,
    RemovedAlias,
    RenamedCollection,
    collection_from,
)
from app.edge.headers import write_condition
from app.edge.operations import operation
from app.edge.problems import problem_responses
from app.idempotency import IdempotentRoute, idempotency_key
from app.permissions import GuardedRoute, InjectedPrincipal, may
from app.services import InjectedServices
from index.audit.event import Detail
from index.generations import names
from index.generations.models import create_collection as create_empty
from index.search.results import CollectionInfo
from index.writes.live import Condition
from training.models.onnx import has_regions

router = APIRouter(prefix="/v1", tags=["collections"], route_class=GuardedRoute)
_PROBLEMS = problem_responses(
    HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.INSUFFICIENT_STORAGE
)
# Problems of everything that changes images or collections.
WRITE_PROBLEMS = _PROBLEMS | problem_responses(HTTPStatus.NOT_FOUND, HTTPStatus.INTERNAL_SERVER_ERROR)
writes = APIRouter(prefix="/v1", tags=["writes"], responses=WRITE_PROBLEMS, route_class=IdempotentRoute)

_ALIAS_PROBLEMS = _PROBLEMS | problem_responses(HTTPStatus.PRECONDITION_FAILED)
_ETAG = {"ETag": {"description": "Of the alias as it is now.", "schema": {"type": "string"}}}


@router.get("/collections", summary="All collections", dependencies=[may("reader", somewhere=True)])
@operation(None, "read")
async def list_collections(services: InjectedServices, principal: InjectedPrincipal) -> Collections:
    """Every collection that the caller may read, with its active generation and the fields to filter by."""
    infos = await services.threads.read(services.engine.collections)
    readable = [info for info in infos if principal.may("reader", info.name)]
    return Collections(collections=[collection_from(info) for info in readable])


@writes.post(
    "/collections",
    summary="Begin a collection",
    status_code=HTTPStatus.CREATED,
    dependencies=[may("admin"), Depends(idempotency_key)],
)
@operation("create", "write")
async def create_collection(
    new: NewCollection, request: Request, services: InjectedServices
) -> CollectionSummary:
    """Begin a collection without images; it can be written to and searched at once."""
    engine = services.engine

    def begin() -> CollectionInfo:
        with engine.home.catalogue.read() as session:
            refuse_gained_roles(services.settings, session, new.name)
        create_empty(engine.home, new.name, model=new.model, same_as=new.same_model_as)
        return engine.collection(new.name)

    begun = await services.threads.write(begin)
    note(request, Noted(collection=new.name, model=begun.digest, generation=begun.generation))
    return collection_from(begun)


@writes.delete(
    "/collections/{collection}",
    summary="Remove a collection",
    dependencies=[may("admin"), Depends(refuse_alias)],
)
@operation("delete", "change")
async def delete_collection(collection: str, services: InjectedServices) -> Removed:
    """Remove a collection with its images, their files, and every generation."""
    await services.threads.write(remove, services.settings, services.engine, collection)
    return Removed(collection=collection)


@router.get("/collections/{collection}", summary="One collection", dependencies=[may("reader")])
@operation("browse", "read")
async def get_collection(collection: str, services: InjectedServices) -> CollectionOverview:
    """A collection with the values of its fields, and a few of its images to begin a search with."""
    engine = services.engine

    def read() -> CollectionOverview:
        info, overview = engine.collection(collection), engine.overview(collection)
        described = dict(collection_from(info)) | {
            "regions": info.digest is not None and has_regions(engine.home.bundles_folder / info.digest),
            "fields": overview.facets,
            "findings": overview.findings,
            "hidden_fields": services.settings.hidden_fields,
            "examples": overview.examples,
        }
        return CollectionOverview.model_validate(described, from_attributes=True)

    return await services.threads.read(read)


@router.patch(
    "/collections/{collection}",
    summary="Rename a collection",
    responses=_PROBLEMS,
    dependencies=[may("admin", everywhere=True), Depends(refuse_alias)],
)
@operation("change", "write")
async def rename_collection(
    collection: str, new_name: NewName, request: Request, services: InjectedServices
) -> RenamedCollection:
    """Give a collection another name, in one step; the roles of API keys in it follow, settings do not.

    It is refused with 409 while a job of it waits or runs, and where keys or groups have roles in the new
    name already.
    The old name is free then: make it an alias for clients that still use it.
    """
    still: list[str] = []
    if new_name.name != collection:
        still = await services.threads.write(
            rename,
            services.settings,
            services.engine.home,
            collection,
            new_name.name,
            actor_of(request),
            operation="rename_collection",
            request=request.state.request_id,
        )
        note(request, Noted(recorded=True))
    info = await services.threads.read(services.engine.collection, new_name.name)
    return RenamedCollection(**dict(collection_from(info)), settings=still)


@router.get("/aliases", summary="All aliases", dependencies=[may("reader", somewhere=True)])
@operation(None, "read")
async def list_aliases(services: InjectedServices, principal: InjectedPrincipal) -> Aliases:
    """Every alias of the collections that the caller may read."""
    aliases = await services.read(names.list_aliases)
    return Aliases(
        aliases=[Alias.from_alias(one) for one in aliases if principal.may("reader", one.collection)]
    )


@router.put(
    "/aliases/{alias}",
    summary="Point an alias at a collection",
    responses={
        **_ALIAS_PROBLEMS,
        200: {"description": "The alias was there.", "headers": _ETAG},
        201: {"model": Alias, "description": "The alias is new.", "headers": _ETAG},
    },
    dependencies=[may("admin")],
)
@operation("change", "write")
async def put_alias(
    alias: str,
    target: AliasTarget,
    request: Request,
    response: Response,
    services: InjectedServices,
    condition: Annotated[Condition, Depends(write_condition)],
) -> Alias:
    """Let a name answer for a collection wherever an address has a collection's name, from one moment on.

    Rights stay those of the collection behind it: who may not read that may not read it by an alias.
    """

    def put(session: Session) -> tuple[names.Alias | None, names.Alias]:
        before = names.put_alias(session, alias, target.collection, condition)
        session.flush()
        after = names.find_alias(session, alias)
        assert after is not None
        return before, after

    before, after = await services.write(put)
    led: dict[str, Detail] = {"alias": alias, "led_to": None if before is None else before.collection}
    note(request, Noted(collection=after.collection, details=led))
    if before is None:
        response.status_code = HTTPStatus.CREATED
    answer = Alias.from_alias(after)
    response.headers["ETag"] = answer.etag
    return answer


@router.delete(
    "/aliases/{alias}", summary="Remove an alias", responses=_ALIAS_PROBLEMS, dependencies=[may("admin")]
)
@operation("delete", "change")
async def delete_alias(
    alias: str,
    request: Request,
    services: InjectedServices,
    condition: Annotated[Condition, Depends(write_condition)],
) -> RemovedAlias:
    """Remove an alias; its collection stays."""
    removed = await services.write(names.remove_alias, alias, condition)
    note(request, Noted(collection=removed.collection, details={"alias": alias}))
    return RemovedAlias(alias=alias, collection=removed.collection)
