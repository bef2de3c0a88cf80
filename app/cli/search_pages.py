"""Pages that `recoquest search` prints: vectors of queries, searches, tables."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

import typer

from app.cli.options import indexed, query_device, read_text
from app.edge.observability.console import console
from app.search.audit import record_searches
from app.search.query_sources import ImageFile, Source, TextSource, region_part, stored_part
from app.search.schemas.page import SearchResponse, TookMs, Truncation, page_from
from app.search.schemas.query import SearchQuery
from app.settings import Settings
from index.catalogue.full_text import MAX_WORDS, parse_words
from index.engine import SearchEngine
from index.errors import StoreError
from index.files.renditions import STORED_LIMITS
from index.scoring.confidence import MIN_IMAGES, MIN_KINDS, Confidence
from index.search.query_vector import Part
from index.search.request import BatchEntry
from index.search.results import ActiveGeneration, SearchPage, StoredImage
from training.common.errors import DataError, ImageError, NoRegionsError
from training.common.progress import progress_bar
from training.imaging.content import read_content
from training.imaging.images import DecodedImage, ImageLimits, decode_whole, read_header
from training.models.config import Modality
from training.models.inputs.regions import RegionGrid, grid_of
from training.models.onnx.encoder import OnnxEncoder
from training.models.onnx.loading import load_query_encoder

if TYPE_CHECKING:
    # The import of torch takes seconds.
    from collections.abc import Sequence

    from app.search.schemas.page import SearchResponse
    from app.search.schemas.query import SearchQuery
    from app.settings import Settings
    from index.engine import SearchEngine
    from index.search.results import ActiveGeneration
    from training.models.encoder import Encoder
    from training.models.onnx.encoder import OnnxEncoder


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


_AT_ONCE: Final = 64


def read_texts(path: Path) -> list[tuple[int, str]]:
    """Return the lines of a file in UTF-8 that have something in them, with their numbers from 1.

    Raises:
        DataError: The file cannot be read, or has no such line.
    """
    lines = enumerate(read_text(path).split("\n"), 1)
    texts = [(number, line.strip()) for number, line in lines if line.strip()]
    if not texts:
        raise DataError(f"{path} has no text in it: write one query a line.")
    return texts


def print_pages(
    collection: str, queries: "Sequence[SearchQuery]", settings: "Settings", *, likeness_alone: bool
) -> None:
    """Print the page of each query, as a line of JSON with its text; queries differ in their texts alone."""
    with indexed(settings) as engine:
        active = engine.active(collection)
        if not likeness_alone:
            queries = [with_words(query, query.text or "", engine, collection) for query in queries]
        encoder = load_query_encoder(active.bundle, query_device(settings), only="text")
        with progress_bar(f"Searching {collection}", len(queries)) as bar:
            for start in range(0, len(queries), _AT_ONCE):
                some = queries[start : start + _AT_ONCE]
                found = list(zip(some, _batch_pages(engine, active, encoder, some), strict=True))
                record_searches(settings, engine.home.catalogue, collection, found)
                for query, page in found:
                    line = {"text": query.text, **page.model_dump(mode="json")}
                    typer.echo(json.dumps(line, ensure_ascii=False))
                bar.advance(len(some))


def _batch_pages(
    engine: "SearchEngine",
    active: "ActiveGeneration",
    encoder: "Encoder | OnnxEncoder",
    queries: "Sequence[SearchQuery]",
) -> Iterator[SearchResponse]:
    started = perf_counter()
    texts = [query.text or "" for query in queries]
    embedded = encoder.embed_texts(texts)
    encoded = perf_counter()
    requests = (replace(query.request(), kind="text") for query in queries)
    pages = engine.search_batch(active, list(map(BatchEntry, embedded.vectors, requests, texts)))
    # Every query gets an equal share of the batch's time.
    encode, search = (
        1000 * seconds / len(queries) for seconds in (encoded - started, perf_counter() - encoded)
    )
    took = TookMs(encode=round(encode, 3), search=round(search, 3), total=round(encode + search, 3))
    for query, page, cut in zip(queries, pages, embedded.truncations, strict=True):
        if not isinstance(page, SearchPage):
            raise page
        truncations = [] if cut is None else [Truncation.of("text", cut)]
        yield page_from(page, active, query, took_ms=took, truncations=truncations)


def print_table(page: "SearchResponse", query: "SearchQuery") -> None:
    """Print the hits of a page, or one sentence about why there is none."""
    from rich.table import Table

    screen = console()
    for cut in page.query.truncations:
        typer.echo(f"The text was cut to {cut.kept} of {cut.tokens} tokens: {cut.searched_text!r}", err=True)
    if page.unknown_keywords:
        typer.echo(f"No text has {_listed(page.unknown_keywords)}.", err=True)
    if not page.hits:
        screen.print(_why_nothing(query, page))
        return
    if page.confident is False:
        typer.echo(
            "Likely nothing here is what was asked for: no test on held-out images shows that hits with such "
            "scores are better than chance.",
            err=True,
        )
    first = page.hits[0]
    ranked, fused = first["cosine"] is not None, first["score_kind"] == "fused"
    grouped = first["group_size"] is not None
    kinds = [str(first["cosine_kind"]).replace("_", " ").capitalize(), "Z-score"] if ranked else []
    extra = [*kinds, *(["Found by"] if fused else []), *(["In group"] if grouped else [])]
    table = Table("Rank", "Id", *extra, "Text")
    for hit in page.hits:
        text = hit["text"] or hit["matched"]
        table.add_row(
            str(hit["rank"]),
            hit["id"],
            *([] if hit["cosine"] is None else [f"{hit['cosine']:.4f}", _z_score(hit["z_score"])]),
            *([" and ".join(hit["found_by"])] if fused else []),
            *([str(hit["group_size"])] if grouped else []),
            next(iter(hit["texts"]), "") if text is None else text["text"],
        )
    screen.print(table)
    if page.count is not None:
        last = page.hits[-1]["rank"]
        typer.echo(f"{first['rank']:,} to {last:,} of {page.count:,}", err=True)


def print_confidence(measured: "Confidence | None") -> None:
    """Say from which score on a text query is confident, and how often that is right."""
    if measured is None:
        typer.echo("confident: not measured yet; `recoquest index` and the service measure it.")
        return
    pairs = f"{measured.held_out:,} held-out images with texts, of {measured.kinds:,} kinds"
    counts = measured.counts
    if counts is None:
        typer.echo(f"confident: unknown from {pairs}; it takes {MIN_IMAGES} images of {MIN_KINDS} kinds.")
        return
    known, unknown = (
        "never" if one is None else f"from {one:.3f}" for one in (measured.known, measured.unknown)
    )
    typer.echo(
        f"confident, by the best score: {known}; {unknown} with words that the collection lacks. Measured on "
        f"{pairs}.\n"
        f"Held-out queries, by the thresholds of others: true for {counts.true:,}, of which "
        f"{counts.true_right:,} had more right hits among 10 than chance; false for {counts.false:,}, of "
        f"which {counts.false_right:,} had no more. Phrases that nothing answers: false for "
        f"{counts.unanswerable_right:,} of {counts.unanswerable:,}."
    )


def _listed(words: "Sequence[str]") -> str:
    """Return "the word 'a'", or "the words 'a', 'b' and 'c'"."""
    *others, last = map(repr, words)
    return f"the words {', '.join(others)} and {last}" if others else f"the word {last}"


def _z_score(deviations: float | None) -> str:
    return "" if deviations is None else f"{deviations:+.1f}"


def _why_nothing(query: "SearchQuery", page: "SearchResponse") -> str:
    if query.keywords is not None and page.count is not None:
        return f"No image {'that passes the filter ' if query.filter else ''}has any of the words."
    if query.filter is not None:
        return "Nothing else passes the filter." if query.stored else "Nothing passes the filter."
    return "Nothing is left beside what was left out." if query.stored else "The collection is empty."
