"""Embeddings of the regions of pictures: of files that are sent, and of stored images."""

from pathlib import Path

from app.encoding.pool import LoadedEncoder
from app.operations.renditions import naming_failures
from app.operations.services import Services
from index.errors import StoreError
from index.search.results import ActiveGeneration, StoredImage
from training.errors import NoRegionsError
from training.models.inputs.regions import RegionGrid, grid_of


async def embed_regions(services: Services, loaded: LoadedEncoder, source: bytes | Path) -> RegionGrid:
    """Decode the file of a query, or that of a stored image, and embed its regions.

    Raises:
        NoRegionsError: The encoder has none.
        ImageError: The file cannot be decoded.
        EncodingError: Too many queries wait, it was not done in time, or the service ends.
    """
    if not loaded.encoder.regions:
        raise NoRegionsError
    decoded = await services.images.decode_query(source, loaded.image_config)
    regions = await loaded.queue.encode_regions(decoded.pixels)
    return grid_of(regions, decoded.picture, loaded.image_config.square)


async def stored_regions(
    services: Services, active: ActiveGeneration, image_id: str
) -> tuple[StoredImage, RegionGrid]:
    """Embed the regions of a stored image, by the encoder of a generation.

    Raises:
        UnknownImageError: The collection has no such image.
        StoreError: The file is missing or damaged.
        RequestError: It takes more memory or work than an image may.
        NoRegionsError: The encoder has none.
        EncodingError: Too many queries wait, it was not done in time, or the service ends.
    """
    loaded, lost = await services.encoders.of(active), ""
    while True:
        image = await services.threads.read(services.engine.image, active.collection, image_id)
        try:
            path = await services.threads.read(services.engine.home.store.path, image.sha256)
            with naming_failures(image, "image_id", "The image takes more memory or work than one may."):
                return image, await embed_regions(services, loaded, path)
        except StoreError:
            # The image may have been replaced or removed since.
            if image.sha256 == lost:
                raise
            lost = image.sha256
