"""Similarity maps: how well each part of a stored image fits a query, as numbers and as an overlay."""

import io
from typing import Final

import numpy as np
from fastapi import Request
from PIL import Image

from app.concurrency import unless_disconnected
from app.search.audit import note_queries
from app.search.read_search import SentSearch
from app.search.schemas.similarity_map import SimilarityMap
from app.search.search import PartMaker, digests_of, side_by_side, sources_of, stored_regions
from app.services import Services
from index.errors import QueryError
from index.files.renditions import scaled_size

OVERLAY_MEDIA_TYPE: Final = "image/png"
_OVERLAY_SIDE: Final = 512
# Orange, which is told from grey also by those who see no red or no green; the rest is opacity.
_COLOUR: Final = (255, 153, 0)
_MOST_OPAQUE: Final = 190


async def make_map(
    request: Request, services: Services, collection: str, image_id: str, sent: SentSearch
) -> SimilarityMap:
    """Make the query vector of a search, and compare it with the regions of an image.

    Raises:
        QueryError: The search has nothing that an image can be like, or its parts cannot be one query.
        UnknownImageError: The collection has no such image.
        NoRegionsError: The model has no regions.
        RecoquestError: The query or the image cannot be encoded, as in a search.
    """
    query, engine = sent.query, services.engine
    sources = sources_of(sent)
    if not sources.all:
        raise QueryError("There is nothing to compare the image with: give a text, an image or an example.")
    active = await services.threads.read(engine.active, collection)
    maker = PartMaker(services, active)
    image, grid = await unless_disconnected(request, stored_regions(services, active, image_id))
    made = await unless_disconnected(request, side_by_side([maker.make(source) for source in sources.all]))
    entry = await services.threads.read(sources.entry, engine, active, [one.part for one in made])
    digests = await digests_of(services, sent)
    note_queries(request, active, [query], [image.id], digests)
    return SimilarityMap.of(image, active, grid, entry.vector)


def draw_overlay(found: SimilarityMap) -> bytes:
    """Draw a map as a PNG of the shape of its picture, to lay over it: more opaque where more fits."""
    size = scaled_size(found.picture_width, found.picture_height, _OVERLAY_SIDE)
    area = found.area
    values = np.array(found.values, np.float32)
    span = max(float(found.largest - found.smallest), float(np.finfo(np.float32).tiny))
    levels = Image.fromarray(((values - found.smallest) / span).astype(np.float32))
    left, right = max(0.0, area.x), min(1.0, area.x + area.width)
    top, bottom = max(0.0, area.y), min(1.0, area.y + area.height)
    place = [
        round(edge * side) for edge, side in zip((left, top, right, bottom), (*size, *size), strict=True)
    ]
    across, down = found.width / area.width, found.height / area.height
    shown = levels.resize(
        (max(1, place[2] - place[0]), max(1, place[3] - place[1])),
        Image.Resampling.BILINEAR,
        box=(
            max(0.0, (left - area.x) * across),
            max(0.0, (top - area.y) * down),
            min(float(found.width), (right - area.x) * across),
            min(float(found.height), (bottom - area.y) * down),
        ),
    )
    opacity = Image.new("L", size)
    opacity.paste(
        Image.fromarray((np.asarray(shown) * _MOST_OPAQUE).round().astype(np.uint8)), (place[0], place[1])
    )
    overlay = Image.new("RGBA", size, _COLOUR)
    overlay.putalpha(opacity)
    content = io.BytesIO()
    overlay.save(content, "PNG")
    return content.getvalue()
