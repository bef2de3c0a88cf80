"""Vectors of the parts of a query on the command line, by an encoder of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from app.cli.options import query_device
from app.search.query_sources import ImageFile, Source, TextSource, region_part, stored_part
from app.search.schemas.page import Truncation
from app.search.schemas.query import SearchQuery
from app.settings import Settings
from index.catalogue.words import MAX_WORDS, parse_words
from index.engine import SearchEngine
from index.errors import StoreError
from index.files.renditions import STORED_LIMITS
from index.search.request import Part
from index.search.results import ActiveGeneration, StoredImage
from training.common.errors import ImageError, NoRegionsError
from training.imaging.content import read_content
from training.imaging.images import DecodedImage, ImageLimits, decode_whole, read_header
from training.models.config import Modality
from training.models.inputs.regions import RegionGrid, grid_of
from training.models.onnx.encoder import OnnxEncoder
from training.models.onnx.loading import load_query_encoder

if TYPE_CHECKING:
    # The import of torch takes seconds.
    from training.models.encoder import Encoder


class PartMaker:
    """Makes the vectors of a query's parts; only towers that they need are loaded."""

    def __init__(
        self,
        engine: SearchEngine,
        settings: Settings,
        active: ActiveGeneration,
        modality: Modality | None,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._active = active
        self._modality = modality
        self.encode_ms = 0.0
        self.truncations: list[Truncation] = []

    def make(self, source: Source) -> Part:
        """Encode a text or an image file, or look up the vector of an example."""
        if isinstance(source, TextSource):
            return self._of_text(source.text, source.field)
        if isinstance(source, ImageFile):
            return self._of_image(source)
        if source.box is not None and source.example.id is not None:
            _, grid = self.regions_of(source.example.id)
            return region_part(grid, source.box, f"{source.field}.box")
        return stored_part(self._engine, self._active, source)

    @cached_property
    def _encoder(self) -> "Encoder | OnnxEncoder":
        return load_query_encoder(self._active.bundle, query_device(self._settings), only=self._modality)

    def _of_text(self, text: str, field: str) -> Part:
        encoder = self._encoder
        started = perf_counter()
        embedded = encoder.embed_texts([text])
        self.encode_ms += _ms_since(started)
        cut = embedded.truncations[0]
        if cut is not None:
            self.truncations.append(Truncation.of(field, cut))
        return Part(embedded.vectors[0], "text", text)

    def _of_image(self, file: ImageFile) -> Part:
        encoder = self._encoder
        with _file_named(file.name):
            decoded = decode_whole(file.content, self._settings.image_limits, encoder.min_image_side)
        if file.box is not None:
            return region_part(self._grid(decoded), file.box, file.field)
        image = decoded.pixels
        started = perf_counter()
        vector = encoder.embed_images(encoder.prepare_image(image)[None])[0]
        self.encode_ms += _ms_since(started)
        return Part(vector, "image")

    def regions_of(self, image_id: str) -> tuple[StoredImage, RegionGrid]:
        """Embed the regions of a stored image.

        Raises:
            UnknownImageError: The collection has no such image.
            StoreError: The file is missing or damaged.
            NoRegionsError: The encoder has none.
        """
        image = self._engine.image(self._active.collection, image_id)
        path = self._engine.home.store.path(image.sha256)
        try:
            decoded = decode_whole(path, STORED_LIMITS, self._encoder.min_image_side)
        except ImageError as error:
            raise StoreError(f"The stored image {image.sha256} is damaged: {error}") from error
        return image, self._grid(decoded)

    def _grid(self, decoded: DecodedImage) -> RegionGrid:
        encoder = self._encoder
        if not encoder.regions:
            raise NoRegionsError
        started = perf_counter()
        regions = encoder.embed_regions(encoder.prepare_image(decoded.pixels)[None])[0]
        self.encode_ms += _ms_since(started)
        return grid_of(regions, (decoded.width, decoded.height), encoder.image_config.square)


def with_words(query: SearchQuery, text: str, engine: SearchEngine, collection: str) -> SearchQuery:
    """Return the query with its text's words also looked up, if the collection has texts.

    Words that were given stay; a text without a word, or with more than can be looked up, has none.
    """
    words = parse_words(text).size
    if query.keywords is not None or not 0 < words <= MAX_WORDS or not engine.has_texts(collection):
        return query
    return query.model_copy(update={"keywords": text})


def read_image(path: Path, limits: ImageLimits) -> ImageFile:
    """Read an image file, and refuse it before an encoder is loaded, which takes seconds."""
    with _file_named(str(path)):
        content = read_content(path, limits.max_bytes, limits.max_dicom_bytes)
        # A JPEG may be decoded at any size; only the encoder knows which.
        read_header(content, limits, min_side=1)
    return ImageFile(str(path), content)


@contextmanager
def _file_named(name: str) -> Iterator[None]:
    try:
        yield
    except ImageError as error:
        raise ImageError(f"{name}: {error}") from None


def _ms_since(started: float) -> float:
    return 1000 * (perf_counter() - started)
