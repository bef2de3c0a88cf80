"""Vectors of texts and images for other programs: OpenAI's interface, with images as Jina's has them."""

import base64
import binascii
import re
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from fastapi import APIRouter, Request
from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from app.audit.requests import Noted, note
from app.concurrency import unless_disconnected
from app.edge.admission import count_as
from app.edge.operations import operation
from app.edge.principal import Principal
from app.edge.problems import KINDS, TOO_LARGE, UNSUPPORTED, RequestError, invalid, problem_responses
from app.edge.schemas import Answer, Text
from app.edge.schemas import Request as Body
from app.permissions import GuardedRoute, InjectedPrincipal, may
from app.search.read_search import check_length, parsed
from app.search.schemas import MAX_SEARCHES, Truncation
from app.search.search import ImageFile, Source, make_parts
from app.services import InjectedServices
from app.settings import Settings
from index.engine import SearchEngine
from index.errors import UnknownCollectionError, UnregisteredModelError, listed, shortened
from index.search.request import unit_query
from index.search.results import ActiveGeneration
from index.vectors.protocol import Vectors

PATH: Final = "/v1/embeddings"
router = APIRouter(tags=["models"], route_class=GuardedRoute)

_JSON: Final = "application/json"
# Strings of JSON that are files in base64; some programs write a slash behind a backslash.
_FILES: Final = re.compile(rb'"(?:data:[^",]{0,200},)?[A-Za-z0-9+/=\\]{1024,}"')
_DATA_URL: Final = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_ADDRESS: Final = ("http://", "https://")
# As many as searches of a batch, which are encoded in the same way.
MAX_INPUTS: Final = MAX_SEARCHES
_MAX_NAME_LENGTH: Final = 200
_TOKEN_IDS: Final = (
    "Token ids are of the tokenizer of another model: send texts. "
    "LangChain does so with check_embedding_ctx_length=False."
)


class EmbeddingInput(Body):
    """Something to embed: exactly one of a text and an image."""

    text: Text | None = Field(default=None, description="A text.", examples=["a dog in the snow"])
    image: str | None = Field(
        default=None,
        min_length=1,
        description="An image file in base64, or as a data URL; no address, since none is fetched.",
        examples=[None],
    )

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.text is None) == (self.image is None):
            raise ValueError("Give exactly one of text and image.")
        return self


def _as_objects(value: Any) -> Any:
    """Write a text as an object with a text, and one input as a list of one."""
    inputs = value if isinstance(value, list) else [value]
    if any(isinstance(one, int | list) for one in inputs[: MAX_INPUTS + 1]):
        raise ValueError(_TOKEN_IDS)
    return [{"text": one} if isinstance(one, str) else one for one in inputs]


class EmbeddingsQuery(Body):
    """Texts and images to embed."""

    model: Annotated[str, Field(min_length=1, max_length=_MAX_NAME_LENGTH)] = Field(
        description="Name or alias of a collection, whose encoder is meant as it is now; or digest or name "
        "of a model that a collection is searched with.",
        examples=["scenes"],
    )
    input: Annotated[
        list[EmbeddingInput],
        Field(fail_fast=True, min_length=1, max_length=MAX_INPUTS),
        BeforeValidator(
            _as_objects,
            json_schema_input_type=str
            | EmbeddingInput
            | Annotated[list[str | EmbeddingInput], Field(min_length=1, max_length=MAX_INPUTS)],
        ),
    ] = Field(description="A text, an image, or a list of them.", examples=[["a dog in the snow"]])
    encoding_format: Literal["float", "base64"] = Field(
        default="float", description="base64: float32 numbers, the lowest byte first."
    )
    dimensions: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Length of the vectors; only that of the model, which cannot shorten them."
    )
    user: Annotated[str, Field(max_length=_MAX_NAME_LENGTH)] | None = Field(
        default=None, description="Taken for the sake of other services' clients, and not looked at."
    )


class Embedding(Answer):
    """The vector of one input, at length one."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    object: Literal["embedding"] = "embedding"
    index: int = Field(description="Position of the input, from 0.")
    embedding: list[float] | str = Field(description="Numbers, or their base64.")


class EmbeddingsUsage(Answer):
    """Tokens of the texts that were embedded; images have none."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(Answer):
    """Vectors in the order of the inputs."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str = Field(description="As requested.")
    digest: str = Field(description="Digest of the encoder: vectors of one digest can be compared.")
    truncations: list[Truncation] = Field(description="The texts that were too long for the encoder.")
    usage: EmbeddingsUsage


@router.post(
    PATH,
    summary="Embed",
    responses=problem_responses(
        HTTPStatus.NOT_FOUND,
        HTTPStatus.CONFLICT,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.GATEWAY_TIMEOUT,
    ),
    dependencies=[may("reader", somewhere=True)],
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {_JSON: {"schema": {"$ref": f"#/components/schemas/{EmbeddingsQuery.__name__}"}}},
        }
    },
)
@operation("search", "search", files_in_json=True)
async def create_embeddings(
    request: Request, services: InjectedServices, principal: InjectedPrincipal
) -> Embeddings:
    """Vectors of texts and images, as the packages of OpenAI ask for them.

    They are of the space in which the collection is searched, and go into a search as `like` with a `vector`.
    The caller is a reader of the collection, or of one that is searched with the model.
    """
    if request.headers.get("content-type", "").lower().split(";")[0].strip() != _JSON:
        raise RequestError(UNSUPPORTED, f"Send texts and images as {_JSON}.")
    # Megabytes of base64 would keep other requests waiting.
    query, sources = await services.threads.read(_parsed, await request.body(), services.settings)
    count_as(request.scope, len(sources))
    # An alias is never the name of a collection, but may be that of a model.
    collection = await services.threads.read(services.names.behind, query.model)
    active = await services.threads.read(_find_space, services.engine, query.model, collection, principal)
    if query.dimensions not in (None, active.dim):
        raise invalid(
            "dimensions", f"The vectors have {active.dim} numbers and cannot be shortened: leave it out."
        )
    made = await unless_disconnected(request, make_parts(services, active, sources))
    if collection != query.model:
        request.state.alias = query.model
    texts = [one.text for one in query.input if one.text is not None]
    note(
        request,
        Noted(
            collection=active.collection,
            query={"text": texts} if texts else None,
            model=active.digest,
            generation=active.generation,
            details={"texts": len(texts), "images": len(query.input) - len(texts)},
        ),
    )
    tokens = sum(one.tokens for one in made)
    return Embeddings.model_construct(
        data=[
            Embedding.model_construct(
                index=index,
                embedding=_written(unit_query(one.part.vector, active.dim), query.encoding_format),
            )
            for index, one in enumerate(made)
        ],
        model=query.model,
        digest=active.digest,
        truncations=[one.truncation for one in made if one.truncation is not None],
        usage=EmbeddingsUsage(prompt_tokens=tokens, total_tokens=tokens),
    )


def _written(vector: Vectors, encoding_format: Literal["float", "base64"]) -> list[float] | str:
    """Write a vector (D,) in the requested encoding."""
    if encoding_format == "float":
        numbers: list[float] = vector.tolist()
        return numbers
    return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode("ascii")


def _parsed(content: bytes, settings: Settings) -> tuple[EmbeddingsQuery, list[Source]]:
    """Read a request, of which all but its files is as short as other requests."""
    if len(content) > settings.max_json_bytes:
        rest = len(content) - sum(len(match[0]) for match in _FILES.finditer(content))
        if rest > settings.max_json_bytes:
            raise RequestError(
                TOO_LARGE,
                f"Without images the body is larger than {settings.max_json_bytes:,} bytes; send fewer or "
                "shorter texts.",
            )
    query = parsed(EmbeddingsQuery.model_validate_json, content, "body")
    sources: list[Source] = []
    for index, sent in enumerate(query.input):
        field = f"input.{index}"
        if sent.image is not None:
            file = ImageFile(field, _file(f"{field}.image", sent.image))
            sources.append(Source(field, file=file))
        else:
            text = sent.text or ""
            check_length(field, text, settings.max_text_length)
            sources.append(Source(field, text=text))
    return query, sources


def _file(field: str, text: str) -> bytes:
    if text.lower().startswith(_ADDRESS):
        raise invalid(field, "No address is fetched: send the image file itself, in base64.")
    head = _DATA_URL.match(text)
    try:
        return base64.b64decode(text if head is None else text[head.end() :], validate=True)
    except (binascii.Error, ValueError):
        raise invalid(field, "It is not in base64: send the image file so, or as a data URL.") from None


def _find_space(engine: SearchEngine, model: str, collection: str, principal: Principal) -> ActiveGeneration:
    """Return the active generation whose encoder a name means, among the collections of a reader.

    Raises:
        RequestError: The caller may use nothing of this name (404), or several models have it (422).
        NoActiveGenerationError: The collection has no active generation yet.
    """
    if principal.may("reader", collection):
        with suppress(UnknownCollectionError):
            return engine.active(collection)
    usable = [
        (info, names)
        for info in engine.models()
        if (names := [name for name in info.collections if principal.may("reader", name)])
    ]
    matches = [one for one in usable if one[0].digest == model] or [
        one for one in usable if one[0].name == model
    ]
    if len(matches) > 1:
        digests = ", ".join(info.digest for info, _ in matches)
        raise invalid(
            "model", f"Several models have the name {shortened(model)!r}: give a digest, {digests}."
        )
    for active in (engine.active(name) for _, names in matches for name in names):
        # Another one may have been activated meanwhile.
        if active.digest == matches[0][0].digest:
            return active
    collections = sorted(name for _, names in usable for name in names)
    models = dict.fromkeys(info.name for info, _ in usable)
    available = (
        f"Collections: {listed(collections)}. Models: {listed(models)}."
        if usable
        else "No collection that you may read can be searched yet."
    )
    message = f"There is no collection or model {shortened(model)!r} to embed with. {available}"
    raise invalid("model", message, KINDS[UnregisteredModelError])
