"""Pages that `recoquest search` prints: queries, their vectors, searches, tables."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import typer
from pydantic import ValidationError

from app.cli.options import Installation, opened, print_table, query_device, read_text
from app.edge.problems import sentence
from app.search.schemas import SearchHit, SearchQuery, SearchResponse, SimilarityMap, TookMs, Truncation
from app.search.search import (
    ImageFile,
    MadePart,
    Search,
    SearchResult,
    Source,
    file_named,
    find_batch,
    given_part,
    region_part,
)
from index.catalogue.images import StoredImage
from index.catalogue.words import MAX_WORDS, parse_words
from index.engine import SearchEngine
from index.errors import QueryError, StoreError
from index.files.renditions import STORED_LIMITS
from index.scoring import MIN_IMAGES, MIN_KINDS
from index.search.request import Part
from index.search.results import ActiveGeneration
from training.common.errors import DataError, ImageError, NoRegionsError
from training.common.progress import console, progress_bar
from training.imaging.images import DecodedImage, ImageLimits, decode_whole, read_file, read_header
from training.models.config import Modality
from training.models.image_input import RegionGrid, grid_of
from training.models.onnx import OnnxEncoder, load_query_encoder

if TYPE_CHECKING:
    # The import of torch takes seconds.
    from training.models.encoder import Encoder

_AT_ONCE: Final = 64

# Image files of the query, and those of negative examples.
Files = tuple[Sequence[Path], Sequence[Path]]


def parse_query(examples: Mapping[str, str], **values: Any) -> SearchQuery:
    """Return the query of these fields, or a usage error that names the option of the wrong one.

    `examples` are the options of examples by their paths in the query, such as `like.0`.
    """
    try:
        return SearchQuery.model_validate(values)
    except ValidationError as error:
        wrong = error.errors()[0]
        option = _option(examples, *map(str, wrong["loc"]))
        raise typer.BadParameter(sentence(wrong), param_hint=option) from None


@contextmanager
def options_named(examples: Mapping[str, str]) -> Iterator[None]:
    """Name the option that is at fault where a field of the query is."""
    try:
        yield
    except QueryError as error:
        if error.field is None:
            raise
        option = _option(examples, *error.field.split("."))
        raise typer.BadParameter(str(error), param_hint=option) from None


def _option(examples: Mapping[str, str], field: str, *location: str) -> str:
    """The option of a path in the query: that of the example there, otherwise that of the field."""
    if field == "text":
        return "TEXT"
    if field == "image_boxes" or "box" in location:
        return "--box"
    return examples.get(".".join((field, *location[:1])), f"--{field.replace('_', '-')}")


def find_page(
    collection: str, query: SearchQuery, files: Files, words: str, **options: Any
) -> SearchResponse:
    """Search, with the words of a text looked up, and note what is shown in the audit trail."""
    with opened(**options) as installation:
        query = _with_words(query, words, installation.engine, collection)
        active = installation.engine.active(collection)
        search = _read_search(query, files, installation)
        (page,) = _Searcher(installation, active, search.sources).pages([search])
    return page


def map_image(
    collection: str, image_id: str, query: SearchQuery, files: Files, **options: Any
) -> SimilarityMap:
    """Show which parts of a stored image match a query; recorded in the audit trail."""
    with opened(**options) as installation:
        search = _read_search(query, files, installation)
        if not search.sources:
            raise typer.BadParameter("give a text, an image or an example with it.", param_hint="--map")
        active = installation.engine.active(collection)
        searcher = _Searcher(installation, active)
        image, grid = searcher.regions_of(image_id)
        (made,) = searcher.make([search])
        entry = search.entry(installation.engine, active, made)
        installation.record(
            "view",
            "search --map",
            collection=collection,
            objects=[image.id],
            query=search.audited(),
            model=active.digest,
            generation=active.generation,
        )
    return SimilarityMap.from_grid(image, active, grid, entry.vector)


def print_pages(
    collection: str, path: Path, values: Mapping[str, Any], *, likeness_alone: bool, **options: Any
) -> None:
    """Print a page for each line of a file that has something in it, as a line of JSON with its text."""
    queries = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            try:
                queries.append(parse_query({}, text=line.strip(), **values))
            except typer.BadParameter as error:
                message = f"line {number}: {error.message}"
                raise typer.BadParameter(message, param_hint="--queries") from None
    if not queries:
        raise DataError(f"{path} has no text in it: write one query a line.")
    with opened(**options) as installation:
        engine = installation.engine
        active = engine.active(collection)
        if not likeness_alone:
            queries = [_with_words(query, query.text or "", engine, collection) for query in queries]
        searches = [Search(query) for query in queries]
        searcher = _Searcher(installation, active, searches[0].sources)
        with progress_bar(f"Searching {collection}", len(searches)) as bar:
            for start in range(0, len(searches), _AT_ONCE):
                some = searches[start : start + _AT_ONCE]
                for search, page in zip(some, searcher.pages(some), strict=True):
                    shown = {"text": search.query.text, **page.model_dump(mode="json")}
                    typer.echo(json.dumps(shown, ensure_ascii=False))
                bar.advance(len(some))


def _with_words(query: SearchQuery, text: str, engine: SearchEngine, collection: str) -> SearchQuery:
    """Return the query with its text's words also looked up, if the collection has texts.

    Explicit keywords stay; a text without a word, or with more than can be looked up, has none.
    """
    words = parse_words(text).size
    if query.keywords is not None or not 0 < words <= MAX_WORDS or not engine.has_texts(collection):
        return query
    return query.model_copy(update={"keywords": text})


def _read_search(query: SearchQuery, files: Files, installation: Installation) -> Search:
    limits = installation.settings.image_limits
    images, unlike_images = ([_read_image(path, limits) for path in kind] for kind in files)
    return Search(query, images, unlike_images)


def _read_image(path: Path, limits: ImageLimits) -> ImageFile:
    """Read an image file, and refuse it before an encoder is loaded, which takes seconds."""
    with file_named(str(path)):
        content, _ = read_file(path, limits)
        # A JPEG may be decoded at any size; only the encoder knows which.
        read_header(content, limits, min_side=1)
    return ImageFile(str(path), content)


class _Searcher:
    """Answers searches by an encoder of its own, of which it loads only the towers that the sources need."""

    def __init__(
        self, installation: Installation, active: ActiveGeneration, sources: Sequence[Source] = ()
    ) -> None:
        texts = any(source.text is not None for source in sources)
        images = any(source.file is not None or source.box is not None for source in sources)
        self._modality: Modality | None = None if texts == images else "text" if texts else "image"
        self._installation = installation
        self._active = active
        self._encode_ms = 0.0

    def pages(self, searches: Sequence[Search]) -> list[SearchResponse]:
        """Search, and write to the audit trail what is shown; each has an equal share of the time of all."""
        self._encode_ms = 0.0
        made = self.make(searches)
        started = perf_counter()
        answers = find_batch(self._installation.engine, self._active, searches, made)
        encode, search = (ms / len(searches) for ms in (self._encode_ms, 1000 * (perf_counter() - started)))
        results = []
        for one in answers:
            if not isinstance(one, SearchResult):
                raise one
            results.append(one)
        self._record(results)
        took = TookMs(encode=encode, search=search, total=encode + search)
        return [one.answer(took) for one in results]

    def _record(self, results: Sequence[SearchResult]) -> None:
        installation, active = self._installation, self._active
        if not installation.settings.audit:
            return
        with installation.catalogue.write() as session:
            for one in results:
                installation.record(
                    "search",
                    "search",
                    session=session,
                    collection=active.collection,
                    objects=dict.fromkeys(hit.id for hit in one.page.hits),
                    query=one.search.audited(),
                    model=active.digest,
                    generation=active.generation,
                    target=one.search.query.target,
                    limit=one.search.query.limit,
                )

    def make(self, searches: Sequence[Search]) -> list[list[MadePart]]:
        """Make the parts of searches, of all texts in one pass through the encoder."""
        made = self._text_parts(
            [source for search in searches for source in search.sources if source.text is not None]
        )
        return [
            [self._image_part(source) if source.text is None else next(made) for source in search.sources]
            for search in searches
        ]

    def _text_parts(self, sources: Sequence[Source]) -> Iterator[MadePart]:
        if not sources:
            return
        encoder, texts = self._encoder, [source.text or "" for source in sources]
        with self._encoding():
            embedded = encoder.embed_texts(texts)
        for source, text, vector, cut in zip(
            sources, texts, embedded.vectors, embedded.truncations, strict=True
        ):
            truncation = None if cut is None else Truncation.from_cut(source.field, cut)
            yield MadePart(Part(vector, "text", text), truncation)

    def _image_part(self, source: Source) -> MadePart:
        if source.file is not None:
            encoder, limits = self._encoder, self._installation.settings.image_limits
            with file_named(source.file.name):
                decoded = decode_whole(source.file.content, limits, encoder.min_image_side)
            if source.box is not None:
                return MadePart(region_part(self._grid(decoded), source.box, source.field))
            with self._encoding():
                vector = encoder.embed_images(encoder.prepare_image(decoded.pixels)[None])[0]
            return MadePart(Part(vector, "image"))
        if source.image_id is None:
            return MadePart(given_part(self._active, source))
        if source.box is not None:
            _, grid = self.regions_of(source.image_id)
            return MadePart(region_part(grid, source.box, source.field))
        return MadePart(Part(self._installation.engine.vector_of(self._active, source.image_id), "image"))

    def regions_of(self, image_id: str) -> tuple[StoredImage, RegionGrid]:
        """Embed the regions of a stored image."""
        engine = self._installation.engine
        image = engine.image(self._active.collection, image_id)
        path = engine.home.store.path(image.sha256)
        try:
            decoded = decode_whole(path, STORED_LIMITS, self._encoder.min_image_side)
        except ImageError as error:
            raise StoreError(f"The stored image {image.sha256} is damaged: {error}") from error
        return image, self._grid(decoded)

    @cached_property
    def _encoder(self) -> "Encoder | OnnxEncoder":
        device = query_device(self._installation.settings)
        return load_query_encoder(self._active.bundle, device, only=self._modality)

    def _grid(self, decoded: DecodedImage) -> RegionGrid:
        encoder = self._encoder
        if not encoder.regions:
            raise NoRegionsError
        with self._encoding():
            regions = encoder.embed_regions(encoder.prepare_image(decoded.pixels)[None])[0]
        return grid_of(regions, (decoded.width, decoded.height), encoder.image_config.square)

    @contextmanager
    def _encoding(self) -> Iterator[None]:
        started = perf_counter()
        yield
        self._encode_ms += 1000 * (perf_counter() - started)


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
            "Probably nothing here matches the query: no test on held-out images shows that hits with such "
            "scores are better than chance.",
            err=True,
        )
    first = page.hits[0]
    columns: dict[str, Callable[[SearchHit], str]] = {
        "Rank": lambda hit: str(hit["rank"]),
        "Id": lambda hit: hit["id"],
    }
    if first["cosine"] is not None:
        kind = str(first["cosine_kind"]).replace("_", " ").capitalize()
        columns[kind] = lambda hit: f"{hit['cosine']:.4f}"
        columns["Z-score"] = lambda hit: "" if hit["z_score"] is None else f"{hit['z_score']:+.1f}"
    if first["score_kind"] == "fused":
        columns["Found by"] = lambda hit: " and ".join(hit["found_by"])
    if first["group_size"] is not None:
        columns["In group"] = lambda hit: str(hit["group_size"])
    columns["Text"] = _text_of
    rows = [tuple(shown(hit) for shown in columns.values()) for hit in page.hits]
    print_table(*columns, rows=rows)
    if page.count is not None:
        last_rank = page.hits[-1]["rank"]
        typer.echo(f"{first['rank']:,} to {last_rank:,} of {page.count:,}", err=True)


def _text_of(hit: SearchHit) -> str:
    text = hit["text"] or hit["matched"]
    return next(iter(hit["texts"]), "") if text is None else text["text"]


def _why_nothing(query: SearchQuery, page: SearchResponse) -> str:
    if query.keywords is not None and page.count is not None:
        return f"No image {'that passes the filter ' if query.filter else ''}has any of the words."
    if query.filter is not None:
        return "Nothing else passes the filter." if query.stored else "Nothing passes the filter."
    return "There are no images other than the excluded ones." if query.stored else "The collection is empty."


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
