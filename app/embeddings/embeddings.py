"""Vectors of texts and images for other programs, by the encoder that a collection is searched with."""

import base64
import binascii
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from fastapi import Request

from app.audit.noted import Noted, note
from app.edge.http.disconnect import unless_disconnected
from app.edge.http.field_errors import FieldError
from app.edge.http.problem_kinds import KINDS, TOO_LARGE, UNSUPPORTED
from app.edge.http.problems import RequestError
from app.edge.principal import Principal
from app.embeddings.schemas import EmbeddingInput, Embeddings, EmbeddingsQuery
from app.search.query_sources import ImageFile, Source, TextSource
from app.search.read_search import check_length, invalid, parsed
from app.search.search import PartMaker, side_by_side
from app.services import Services
from app.settings import Settings
from index.engine import SearchEngine
from index.errors import UnknownCollectionError, UnregisteredModelError, listed, shortened
from index.search.request import unit_query
from index.search.results import ActiveGeneration

_JSON: Final = "application/json"
# Strings of JSON that are files in base64; some programs write a slash behind a backslash.
_FILES: Final = re.compile(rb'"(?:data:[^",]{0,200},)?[A-Za-z0-9+/=\\]{1024,}"')
_DATA_URL: Final = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_ADDRESS: Final = ("http://", "https://")
_PLACE: Final = "input.{}"


@dataclass(frozen=True, slots=True)
class SentInputs:
    """Texts and images as they were sent, the images not yet looked at."""

    query: EmbeddingsQuery
    sources: Sequence[Source]


async def read_embeddings(request: Request, services: Services) -> SentInputs:
    """Read what is to be embedded.

    Raises:
        RequestError: The body is no JSON, is too long, or has an image that is not in base64.
        RequestValidationError: A field is unknown or not valid.
    """
    if request.headers.get("content-type", "").lower().split(";")[0].strip() != _JSON:
        raise RequestError(UNSUPPORTED, f"Send texts and images as {_JSON}.")
    content = await request.body()
    # Megabytes of base64 would keep other requests waiting.
    return await services.threads.read(_parsed, content, services.settings)


async def answer_embeddings(
    request: Request, services: Services, principal: Principal, sent: SentInputs
) -> Embeddings:
    """Embed texts and images.

    Raises:
        RequestError: The caller may use no such model, or it has other dimensions.
        RecoquestError: The collection cannot be searched yet, or an input cannot be encoded.
    """
    query = sent.query
    # An alias is never the name of a collection, but may be that of a model.
    collection = await request.app.state.collection_behind(query.model) or query.model
    active = await services.threads.read(find_space, services.engine, query.model, collection, principal)
    if query.dimensions not in (None, active.dim):
        raise invalid(
            "dimensions", f"The vectors have {active.dim} numbers and cannot be shortened: leave it out."
        )
    make = PartMaker(services, active).in_turn()
    made = await unless_disconnected(request, side_by_side([make(source) for source in sent.sources]))
    if collection != query.model:
        request.state.alias = query.model
    note(request, _noted(active, query))
    return Embeddings.of(
        query,
        active.digest,
        [unit_query(one.part.vector, active.dim) for one in made],
        [one.truncation for one in made if one.truncation is not None],
        sum(one.tokens for one in made),
    )


def find_space(engine: SearchEngine, model: str, collection: str, principal: Principal) -> ActiveGeneration:
    """Return the active generation whose encoder a name means, among the collections of a reader.

    Args:
        engine: The engine.
        model: Digest of a model, or name of a model, where there is no such collection.
        collection: Name of a collection.
        principal: The caller.

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
    found = [one for one in usable if one[0].digest == model] or [
        one for one in usable if one[0].name == model
    ]
    if len(found) > 1:
        digests = ", ".join(info.digest for info, _ in found)
        raise invalid(
            "model", f"Several models have the name {shortened(model)!r}: give a digest, {digests}."
        )
    for info, names in found:
        for name in names:
            active = engine.active(name)
            # Another one may have been activated meanwhile.
            if active.digest == info.digest:
                return active
    collections = sorted(name for _, names in usable for name in names)
    models = dict.fromkeys(info.name for info, _ in usable)
    known = (
        f"Collections: {listed(collections)}. Models: {listed(models)}."
        if usable
        else "No collection that you may read can be searched yet."
    )
    message = f"There is no collection or model {shortened(model)!r} to embed with. {known}"
    raise RequestError(
        KINDS[UnregisteredModelError], message, errors=[FieldError(field="model", message=message)]
    )


def _parsed(content: bytes, settings: Settings) -> SentInputs:
    """Read a request, of which all but its files is as short as other requests."""
    if len(content) > settings.max_json_bytes:
        rest = len(content) - sum(len(found[0]) for found in _FILES.finditer(content))
        if rest > settings.max_json_bytes:
            raise RequestError(
                TOO_LARGE,
                f"Without images the body is larger than {settings.max_json_bytes:,} bytes; send fewer or "
                "shorter texts.",
            )
    query = parsed(EmbeddingsQuery.model_validate_json, content, "body")
    return SentInputs(query, [_source(place, one, settings) for place, one in enumerate(query.input)])


def _source(place: int, sent: EmbeddingInput, settings: Settings) -> Source:
    field = _PLACE.format(place)
    if sent.image is not None:
        return ImageFile(field, _file(f"{field}.image", sent.image))
    text = sent.text or ""
    check_length(field, text, settings.max_text_length)
    return TextSource(field, text)


def _file(field: str, text: str) -> bytes:
    if text.lower().startswith(_ADDRESS):
        raise invalid(field, "No address is fetched: send the image file itself, in base64.")
    head = _DATA_URL.match(text)
    try:
        return base64.b64decode(text if head is None else text[head.end() :], validate=True)
    except (binascii.Error, ValueError):
        raise invalid(field, "It is not in base64: send the image file so, or as a data URL.") from None


def _noted(active: ActiveGeneration, query: EmbeddingsQuery) -> Noted:
    images = sum(one.image is not None for one in query.input)
    texts = [one.text for one in query.input if one.text is not None]
    return Noted(
        collection=active.collection,
        query={"text": texts} if texts else None,
        model=active.digest,
        generation=active.generation,
        details={"texts": len(texts), "images": images},
    )
