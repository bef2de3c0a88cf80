"""Write to collections: images in, changed and out, and whole collections; not by anybody."""

from collections import Counter
from functools import partial
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from app.access.permissions import may
from app.audit.noted import Noted, actor_of, note
from app.collections.names import refuse_alias, refuse_gained_roles, remove
from app.collections.schemas import CollectionSummary, collection_from
from app.edge.http.conditions import write_condition
from app.edge.http.disconnect import unless_disconnected
from app.edge.http.etags import etag_of
from app.edge.http.problems import problem_responses
from app.edge.operations import operation
from app.idempotency import IdempotentRoute, idempotency_key, ids_left_out
from app.images.delete_matching import delete_by_filter
from app.images.erase import erase
from app.images.read_uploads import SentImage, read_upload, read_uploads
from app.images.schemas.deletion import (
    DeletedImages,
    ErasedImages,
    HoldingBackup,
    ImagesToDelete,
    ImagesToErase,
)
from app.images.schemas.writes import (
    UPLOAD_BODY,
    UPLOADS_BODY,
    ImageChanges,
    NewCollection,
    Removed,
    WriteAnswer,
    WritesAnswer,
    count_written,
    written_by,
)
from app.images.write_images import WrittenImages, change_one, write_one, write_sent
from app.services import InjectedServices, Services
from index.audit.event import Detail
from index.errors import UnknownImageError
from index.generations.models import create_collection as create_empty
from index.search.results import CollectionInfo
from index.writes.live import Condition, remove_image

router = APIRouter(
    prefix="/v1/collections",
    tags=["writes"],
    route_class=IdempotentRoute,
)

_PROBLEMS = (
    HTTPStatus.NOT_FOUND,
    HTTPStatus.CONFLICT,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.INSUFFICIENT_STORAGE,
)
_ENCODING_PROBLEMS = problem_responses(
    *_PROBLEMS,
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
_CONDITION_PROBLEMS = problem_responses(HTTPStatus.PRECONDITION_FAILED)
_ETAG = {"ETag": {"description": "Of the image as it is now.", "schema": {"type": "string"}}}

IfCondition = Annotated[Condition, Depends(write_condition)]


async def sent_images(request: Request, services: InjectedServices) -> list[SentImage]:
    """Read the form within the service's limits."""
    return await read_uploads(request, services.settings)


async def sent_image(image_id: str, request: Request, services: InjectedServices) -> SentImage:
    """Read the form within the service's limits."""
    return await read_upload(request, image_id, services.settings)


@router.post(
    "",
    summary="Begin a collection",
    status_code=HTTPStatus.CREATED,
    responses=problem_responses(*_PROBLEMS),
    dependencies=[may("admin"), Depends(idempotency_key)],
)
@operation("create")
async def create_collection(
    new: NewCollection, request: Request, services: InjectedServices
) -> CollectionSummary:
    """Begin a collection without images; it can be written to and searched at once."""
    begun = await services.threads.write(_begin, services, new)
    note(request, Noted(collection=new.name, model=begun.digest, generation=begun.generation))
    return collection_from(begun)


@router.delete(
    "/{collection}",
    summary="Remove a collection",
    responses=problem_responses(*_PROBLEMS),
    dependencies=[may("admin"), Depends(refuse_alias)],
)
@operation("delete", work="change")
async def delete_collection(collection: str, services: InjectedServices) -> Removed:
    """Remove a collection with its images, their files, and every generation."""
    await services.threads.write(remove, services.settings, services.engine, collection)
    return Removed(collection=collection)


@router.post(
    "/{collection}/images",
    summary="Put images in",
    responses={
        **_ENCODING_PROBLEMS,
        200: {"description": "All images are there."},
        207: {"model": WritesAnswer, "description": "Some were refused; the others are there."},
    },
    openapi_extra=UPLOADS_BODY,
    dependencies=[may("curator"), Depends(idempotency_key)],
)
@operation("create")
async def upload_images(
    collection: str,
    sent: Annotated[list[SentImage], Depends(sent_images)],
    request: Request,
    response: Response,
    services: InjectedServices,
) -> WritesAnswer:
    """Put in one or many images, replacing those of the same id; the answer has a status for each.

    An image that cannot be used is refused and the others are written, all in one step: the answer is 207
    then. When the answer comes, they are on the disk and the next search finds them. Sent again, they are
    unchanged.
    """
    written = await unless_disconnected(request, write_sent(services, collection, sent))
    _note(request, written)
    counts = count_written(written.images)
    if counts.refused:
        response.status_code = HTTPStatus.MULTI_STATUS
    return WritesAnswer(
        written=counts.received - counts.refused,
        refused=counts.refused,
        results=written.images,
        counts=counts,
        written_to=written_by(written.active),
    )


@router.put(
    "/{collection}/images/{image_id}",
    summary="Put an image in",
    responses={
        **_ENCODING_PROBLEMS,
        **_CONDITION_PROBLEMS,
        200: {"description": "The image was there.", "headers": _ETAG},
        201: {"model": WriteAnswer, "description": "The image is new.", "headers": _ETAG},
    },
    openapi_extra=UPLOAD_BODY,
    dependencies=[may("curator")],
)
@operation("create")
async def put_image(
    collection: str,
    sent: Annotated[SentImage, Depends(sent_image)],
    request: Request,
    response: Response,
    services: InjectedServices,
    condition: IfCondition,
) -> WriteAnswer:
    """Put in an image under this id, or replace the one there with all that is said of it.

    `If-None-Match: *` puts in a new image only, and `If-Match` replaces only the one that the caller knows.
    """
    written = await unless_disconnected(request, write_one(services, collection, sent, condition))
    _note(request, written)
    answer = _single(written)
    response.headers["ETag"] = answer.etag
    if answer.status == "created":
        response.status_code = HTTPStatus.CREATED
    return answer


@router.patch(
    "/{collection}/images/{image_id}",
    summary="Change what is said",
    responses={**_ENCODING_PROBLEMS, **_CONDITION_PROBLEMS, 200: {"headers": _ETAG}},
    dependencies=[may("curator")],
)
async def update_image(
    collection: str,
    image_id: str,
    changes: ImageChanges,
    request: Request,
    response: Response,
    services: InjectedServices,
    condition: IfCondition,
) -> WriteAnswer:
    """Change texts, report, labels, metadata, group or split of an image; what is left out stays.

    With `If-Match`, only what the caller knows is changed, so that nobody undoes the change of another.
    """
    changing = change_one(services, collection, image_id, changes, condition)
    active, changed, truncated = await unless_disconnected(request, changing)
    details: dict[str, Detail] = {"outcome": changed.outcome}
    note(request, Noted(model=active.digest, generation=active.generation, details=details))
    etag = etag_of(changed.revision)
    response.headers["ETag"] = etag
    return WriteAnswer(
        id=image_id,
        status=changed.outcome,
        etag=etag,
        truncated_texts=truncated,
        written_to=written_by(active),
    )


@router.delete(
    "/{collection}/images/{image_id}",
    summary="Remove an image",
    responses=problem_responses(*_PROBLEMS) | _CONDITION_PROBLEMS,
    dependencies=[may("curator")],
)
@operation("delete")
async def delete_image(
    collection: str, image_id: str, services: InjectedServices, condition: IfCondition
) -> Removed:
    """Remove an image with all that is said of it, and its file if no other image has the same."""
    await services.threads.write(remove_image, services.engine.home, collection, image_id, condition)
    return Removed(collection=collection, id=image_id)


@router.post(
    "/{collection}/images/delete",
    summary="Remove images by filter",
    responses={
        **problem_responses(*_PROBLEMS),
        200: {"description": "All images that passed the filter are gone, or were counted."},
        207: {"model": DeletedImages, "description": "Some are gone; others still pass the filter."},
    },
    dependencies=[may("curator"), Depends(idempotency_key)],
)
@operation("delete")
async def delete_matching_images(
    collection: str,
    wanted: ImagesToDelete,
    request: Request,
    response: Response,
    services: InjectedServices,
) -> DeletedImages:
    """Remove the images that pass a filter, up to 10,000 with a request, with all that is said of them.

    They go in batches, each whole: searches and other writers go on in between, and what was removed before a
    stop stays removed. Images that are changed meanwhile stay. While `remaining` is not 0, send it again with
    a new `Idempotency-Key`.
    """
    answer, noted = await delete_by_filter(
        services, collection, wanted, actor_of(request), request.state.request_id
    )
    note(request, noted)
    if (answer.remaining or answer.problem) and not wanted.dry_run:
        response.status_code = HTTPStatus.MULTI_STATUS
    return answer


def _note(request: Request, written: WrittenImages) -> None:
    """Note the images that were taken, and how many of each outcome there were."""
    taken = [image.id for image in written.images if image.status != "refused"]
    counts: dict[str, Detail] = {**Counter(image.status for image in written.images)}
    active = written.active
    note(
        request,
        Noted(objects=taken, model=active.digest, generation=active.generation, details=counts),
    )


@router.post(
    "/{collection}/erase",
    summary="Erase images",
    responses=problem_responses(*_PROBLEMS),
    dependencies=[may("admin"), Depends(idempotency_key), Depends(ids_left_out)],
)
@operation("erase")
async def erase_images(
    collection: str, wanted: ImagesToErase, request: Request, services: InjectedServices
) -> ErasedImages:
    """Remove images so that no byte of them is left on the disk, and say which backups still hold them.

    A patient or a study names all its images, and its reports, also those that came before images.

    Beside what a removal takes, the results and files of jobs, snapshots of vectors, judgements that name
    them as examples, and free pages of the database go. The audit trail keeps keyed hashes of their ids. It
    takes as long as rewriting the database and the collection's snapshots.
    """
    actor = actor_of(request)
    found = await services.threads.background(
        partial(
            erase,
            services.settings,
            services.engine.home,
            collection,
            wanted.ids,
            actor,
            patient=wanted.patient,
            study=wanted.study,
            operation="erase_images",
            request=request.state.request_id,
        )
    )
    note(request, Noted(recorded=True))
    if wanted.ids and not found.ids and not found.erased.backups and set(found.unknown) == set(wanted.ids):
        raise UnknownImageError(collection, wanted.ids[0])
    return ErasedImages(
        collection=collection,
        erased=list(found.ids),
        unknown=list(found.unknown),
        shared_files=list(found.erased.shared),
        reports=found.erased.reports,
        judgements=found.erased.judgements,
        jobs=found.jobs.jobs,
        retrainings=found.jobs.retrainings,
        left_files=[str(path) for path in (*found.jobs.left, *found.unfinished)],
        backups=[
            HoldingBackup(
                path=backup.path, created=backup.created, digest=backup.digest, is_there=backup.is_there
            )
            for backup in found.erased.backups
        ],
        log_is_empty=found.log_is_empty,
    )


def _begin(services: Services, new: NewCollection) -> CollectionInfo:
    with services.engine.home.catalogue.read() as session:
        refuse_gained_roles(services.settings, session, new.name)
    create_empty(services.engine.home, new.name, model=new.model, same_as=new.same_model_as)
    return services.engine.collection(new.name)


def _single(written: WrittenImages) -> WriteAnswer:
    (image,) = written.images
    assert image.status != "refused"
    assert image.etag is not None
    return WriteAnswer(
        id=image.id,
        status=image.status,
        etag=image.etag,
        truncated_texts=image.truncated_texts,
        written_to=written_by(written.active),
    )
