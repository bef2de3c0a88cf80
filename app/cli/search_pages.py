"""Pages that `recoquest search` prints: queries, their vectors, searches, tables."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import typer
from pydantic import ValidationError

from app.cli.options import Installation, opened, print_table, query_device, read_text
from app.edge.console import console
from app.edge.problems import sentence
from app.search.schemas import SearchQuery, SearchResponse, SimilarityMap, TookMs, Truncation, page_from
from app.search.search import (
    ImageFile,
    QuerySources,
    Source,
    TextSource,
    query_parts,
    record_searches,
    region_part,
    stored_part,
)
from index.catalogue.images import StoredImage
from index.catalogue.words import MAX_WORDS, parse_words
from index.engine import SearchEngine
from index.errors import QueryError, StoreError
from index.files.renditions import STORED_LIMITS
from index.scoring import MIN_IMAGES, MIN_KINDS
from index.search.request import BatchEntry, Part
from index.search.results import ActiveGeneration, SearchPage
from training.common.errors import DataError, ImageError, NoRegionsError
from training.common.progress import progress_bar
from training.imaging.images import DecodedImage, ImageLimits, decode_whole, read_content, read_header
from training.models.config import Modality
from training.models.inputs.regions import RegionGrid, grid_of
from training.models.onnx.encoder import OnnxEncoder
from training.models.onnx.loading import load_query_encoder

if TYPE_CHECKING:
    # The import of torch takes seconds.
    from training.models.encoder import Encoder

_AT_ONCE: Final = 64

# Image files that are asked for, and those of examples of what is not wanted.
Files = tuple[Sequence[Path], Sequence[Path]]


def parse_query(options: Mapping[str, str], **values: Any) -> SearchQuery:
    """Return the query of these fields, or a usage error that names the option of the wrong one."""
    try:
        return SearchQuery.model_validate(values)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise typer.BadParameter(sentence(wrong), param_hint=_option(options, *wrong["loc"])) from None


@contextmanager
def options_named(options: Mapping[str, str]) -> Iterator[None]:
    """Name the option that is at fault where a field of the query is."""
    try:
        yield
    except QueryError as error:
        option = _option(options, *(error.field or "").split("."))
        if option is None:
            raise
        raise typer.BadParameter(str(error), param_hint=option) from None


def _option(options: Mapping[str, str], *location: str | int) -> str | None:
    """The option of a place in the query: that of the example there, or else that of the field."""
    if "box" in location:
        return options.get("image_boxes")
    example = ".".join(str(part) for part in location[:2])
    return options.get(example) or options.get(str(location[0]))


def find_page(
    collection: str, query: SearchQuery, files: Files, words: str, **options: Any
) -> SearchResponse:
    """Search, with the words of a text looked up, and note what is shown in the audit trail."""
    with opened(**options) as installation:
        engine = installation.engine
        query, active = _with_words(query, words, engine, collection), engine.active(collection)
        sources = _sources(query, files, installation)
        maker = _PartMaker(installation, active, sources.modality)
        found = sources.find(engine, active, [maker.make(source) for source in sources.all])
        took = _took(maker.encode_ms, found.search_ms)
        page = page_from(found, active, query, took_ms=took, truncations=maker.truncations)
        record_searches(installation.settings, installation.catalogue, collection, [(query, page)])
    return page


def map_image(
    collection: str, image_id: str, query: SearchQuery, files: Files, **options: Any
) -> SimilarityMap:
    """Tell which parts of a stored image fit a query, and note it in the audit trail."""
    with opened(**options) as installation:
        sources = _sources(query, files, installation)
        if not sources.all:
            raise typer.BadParameter("give a text, an image or an example with it.", param_hint="--map")
        active = installation.engine.active(collection)
        maker = _PartMaker(installation, active)
        image, grid = maker.regions_of(image_id)
        parts = [maker.make(source) for source in sources.all]
        entry = sources.entry(installation.engine, active, parts)
        installation.record(
            "view",
            "search --map",
            collection=collection,
            objects=[image.id],
            query=query_parts(query),
            model=active.digest,
            generation=active.generation,
        )
    return SimilarityMap.of(image, active, grid, entry.vector)


def print_pages(
    collection: str,
    path: Path,
    fields: Mapping[str, str],
    values: Mapping[str, Any],
    *,
    likeness_alone: bool,
    **options: Any,
) -> None:
    """Print a page for each line of a file that has something in it, as a line of JSON with its text.

    Raises:
        DataError: The file cannot be read, or has no such line.
    """
    queries = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            try:
                queries.append(parse_query(fields, text=line.strip(), **values))
            except typer.BadParameter as error:
                message = f"line {number}: {error.message}"
                raise typer.BadParameter(message, param_hint="--queries") from None
    if not queries:
        raise DataError(f"{path} has no text in it: write one query a line.")
    with opened(**options) as installation:
        settings, engine = installation.settings, installation.engine
        active = engine.active(collection)
        if not likeness_alone:
            queries = [_with_words(query, query.text or "", engine, collection) for query in queries]
        encoder = load_query_encoder(active.bundle, query_device(settings), only="text")
        with progress_bar(f"Searching {collection}", len(queries)) as bar:
            for start in range(0, len(queries), _AT_ONCE):
                some = queries[start : start + _AT_ONCE]
                found = list(zip(some, _batch_pages(engine, active, encoder, some), strict=True))
                record_searches(settings, installation.catalogue, collection, found)
                for query, page in found:
                    shown = {"text": query.text, **page.model_dump(mode="json")}
                    typer.echo(json.dumps(shown, ensure_ascii=False))
                bar.advance(len(some))


def _batch_pages(
    engine: SearchEngine,
    active: ActiveGeneration,
    encoder: "Encoder | OnnxEncoder",
    queries: Sequence[SearchQuery],
) -> Iterator[SearchResponse]:
    started = perf_counter()
    texts = [query.text or "" for query in queries]
    embedded = encoder.embed_texts(texts)
    encode_ms, started = _ms_since(started), perf_counter()
    requests = (replace(query.request(), kind="text") for query in queries)
    pages = engine.search_batch(active, list(map(BatchEntry, embedded.vectors, requests, texts)))
    # Every query gets an equal share of the batch's time.
    took = _took(encode_ms / len(queries), _ms_since(started) / len(queries))
    for query, page, cut in zip(queries, pages, embedded.truncations, strict=True):
        if not isinstance(page, SearchPage):
            raise page
        truncations = [] if cut is None else [Truncation.of("text", cut)]
        yield page_from(page, active, query, took_ms=took, truncations=truncations)


def _with_words(query: SearchQuery, text: str, engine: SearchEngine, collection: str) -> SearchQuery:
    """Return the query with its text's words also looked up, if the collection has texts.

    Words that were given stay; a text without a word, or with more than can be looked up, has none.
    """
    words = parse_words(text).size
    if query.keywords is not None or not 0 < words <= MAX_WORDS or not engine.has_texts(collection):
        return query
    return query.model_copy(update={"keywords": text})


def _sources(query: SearchQuery, files: Files, installation: Installation) -> QuerySources:
    limits = installation.settings.image_limits
    images, unlike_images = ([_read_image(path, limits) for path in kind] for kind in files)
    return QuerySources.of(query, images, unlike_images)


def _read_image(path: Path, limits: ImageLimits) -> ImageFile:
    """Read an image file, and refuse it before an encoder is loaded, which takes seconds."""
    with _file_named(str(path)):
        content = read_content(path, limits)
        # A JPEG may be decoded at any size; only the encoder knows which.
        read_header(content, limits, min_side=1)
    return ImageFile(str(path), content)


@contextmanager
def _file_named(name: str) -> Iterator[None]:
    try:
        yield
    except ImageError as error:
        raise ImageError(f"{name}: {error}") from None


@dataclass
class _PartMaker:
    """Makes the vectors of a query's parts; only towers that they need are loaded."""

    installation: Installation
    active: ActiveGeneration
    modality: Modality | None = None
    encode_ms: float = 0.0
    truncations: list[Truncation] = field(default_factory=list)

    def make(self, source: Source) -> Part:
        """Encode a text or an image file, or look up the vector of an example."""
        if isinstance(source, TextSource):
            return self._of_text(source.text, source.field)
        if isinstance(source, ImageFile):
            return self._of_image(source)
        if source.box is not None and source.example.id is not None:
            _, grid = self.regions_of(source.example.id)
            return region_part(grid, source.box, f"{source.field}.box")
        return stored_part(self.installation.engine, self.active, source)

    def regions_of(self, image_id: str) -> tuple[StoredImage, RegionGrid]:
        """Embed the regions of a stored image."""
        engine = self.installation.engine
        image = engine.image(self.active.collection, image_id)
        path = engine.home.store.path(image.sha256)
        try:
            decoded = decode_whole(path, STORED_LIMITS, self._encoder.min_image_side)
        except ImageError as error:
            raise StoreError(f"The stored image {image.sha256} is damaged: {error}") from error
        return image, self._grid(decoded)

    @cached_property
    def _encoder(self) -> "Encoder | OnnxEncoder":
        device = query_device(self.installation.settings)
        return load_query_encoder(self.active.bundle, device, only=self.modality)

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
        encoder, limits = self._encoder, self.installation.settings.image_limits
        with _file_named(file.name):
            decoded = decode_whole(file.content, limits, encoder.min_image_side)
        if file.box is not None:
            return region_part(self._grid(decoded), file.box, file.field)
        image = decoded.pixels
        started = perf_counter()
        vector = encoder.embed_images(encoder.prepare_image(image)[None])[0]
        self.encode_ms += _ms_since(started)
        return Part(vector, "image")

    def _grid(self, decoded: DecodedImage) -> RegionGrid:
        encoder = self._encoder
        if not encoder.regions:
            raise NoRegionsError
        started = perf_counter()
        regions = encoder.embed_regions(encoder.prepare_image(decoded.pixels)[None])[0]
        self.encode_ms += _ms_since(started)
        return grid_of(regions, (decoded.width, decoded.height), encoder.image_config.square)


def _ms_since(started: float) -> float:
    return 1000 * (perf_counter() - started)


def _took(encode_ms: float, search_ms: float) -> TookMs:
    return TookMs(
        encode=round(encode_ms, 3), search=round(search_ms, 3), total=round(encode_ms + search_ms, 3)
    )


def print_page(page: SearchResponse, query: SearchQuery) -> None:
    """Print the hits of a page as a table, or one sentence about why there is none."""
    for cut in page.query.truncations:
        typer.echo(f"The text was cut to {cut.kept} of {cut.tokens} tokens: {cut.searched_text!r}", err=True)
    if page.unknown_keywords:
        *others, last = map(repr, page.unknown_keywords)
        listed = f"the words {', '.join(others)} and {last}" if others else f"the word {last}"
        typer.echo(f"No text has {listed}.", err=True)
    if not page.hits:
        console().print(_why_nothing(query, page))
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
    rows = []
    for hit in page.hits:
        text, deviations = hit["text"] or hit["matched"], hit["z_score"]
        z_score = "" if deviations is None else f"{deviations:+.1f}"
        rows.append(
            (
                str(hit["rank"]),
                hit["id"],
                *([] if hit["cosine"] is None else [f"{hit['cosine']:.4f}", z_score]),
                *([" and ".join(hit["found_by"])] if fused else []),
                *([str(hit["group_size"])] if grouped else []),
                next(iter(hit["texts"]), "") if text is None else text["text"],
            )
        )
    extra = [*kinds, *(["Found by"] if fused else []), *(["In group"] if grouped else [])]
    print_table("Rank", "Id", *extra, "Text", rows=rows)
    if page.count is not None:
        last_rank = page.hits[-1]["rank"]
        typer.echo(f"{first['rank']:,} to {last_rank:,} of {page.count:,}", err=True)


def _why_nothing(query: SearchQuery, page: SearchResponse) -> str:
    if query.keywords is not None and page.count is not None:
        return f"No image {'that passes the filter ' if query.filter else ''}has any of the words."
    if query.filter is not None:
        return "Nothing else passes the filter." if query.stored else "Nothing passes the filter."
    return "Nothing is left beside what was left out." if query.stored else "The collection is empty."


def print_confidence(collection: str, **options: Any) -> None:
    """Say from which score on a text query is confident, and how often that is right."""
    with opened(**options) as installation:
        engine = installation.engine
        measured = engine.confidence(engine.active(collection))
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
