"""`recoquest search --queries FILE`: a search for each line of a file, many at once."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

import typer

from app.cli.collections.query_parts import with_words
from app.cli.options import indexed, query_device, read_text
from app.search.schemas import SearchResponse, TookMs, Truncation, page_from
from app.search.search import record_searches
from index.search.request import BatchEntry
from index.search.results import SearchPage
from training.common.errors import DataError
from training.common.progress import progress_bar
from training.models.onnx.loading import load_query_encoder

if TYPE_CHECKING:
    from app.search.schemas import SearchQuery
    from app.settings import Settings
    from index.engine import SearchEngine
    from index.search.results import ActiveGeneration
    from training.models.encoder import Encoder
    from training.models.onnx.encoder import OnnxEncoder

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
                found = list(zip(some, _pages(engine, active, encoder, some), strict=True))
                record_searches(settings, engine.home.catalogue, collection, found)
                for query, page in found:
                    line = {"text": query.text, **page.model_dump(mode="json")}
                    typer.echo(json.dumps(line, ensure_ascii=False))
                bar.advance(len(some))


def _pages(
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
