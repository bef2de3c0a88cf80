"""`recoquest search`: search a collection by text, by an image file, or by a stored image."""

import json
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.options import Device, Home, indexed
from app.cli.output import console

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

    from app.schemas import SearchResponse, Truncation
    from app.settings import Settings
    from index.engine import SearchEngine
    from index.results import ActiveGeneration


@dataclass(frozen=True)
class _Query:
    """What is searched for: exactly one is set."""

    text: str | None
    image: Path | None
    like: str | None


@dataclass(frozen=True)
class _Vector:
    values: "NDArray[np.float32]"
    encode_ms: float
    truncation: "Truncation | None" = None
    exclude: tuple[str, ...] = ()


def search(
    collection: Annotated[str, typer.Argument(help="What to search; see `recoquest collections`.")],
    text: Annotated[str | None, typer.Argument(help="What the images should show.")] = None,
    image: Annotated[Path | None, typer.Option("--image", help="Find images like this file.")] = None,
    like: Annotated[
        str | None, typer.Option("--like", help="Find images like the stored one of this id.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, max=1000, help="How many hits.")] = 10,
    condition: Annotated[
        str | None, typer.Option("--filter", help='JSON, such as \'{"field": "view", "eq": "PA"}\'.')
    ] = None,
    cursor: Annotated[str | None, typer.Option("--cursor", help="next_cursor of the page before.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the page that the service would answer.")
    ] = False,
    home: Home = None,
    device: Device = None,
) -> None:
    """Search a collection by text, by an image file or by a stored image."""
    from app.settings import load_settings

    query = _one_query(text, image, like)
    parsed = _parse_json(condition)
    settings = load_settings(home=home, device=device)
    with indexed(settings) as engine:
        page = _answer(engine, settings, engine.active(collection), query, k, parsed, cursor)
    if as_json:
        typer.echo(page.model_dump_json(indent=2))
    else:
        _print_table(page)


def _one_query(text: str | None, image: Path | None, like: str | None) -> _Query:
    if text is not None and not text.strip():
        raise typer.BadParameter("the text is empty.", param_hint="TEXT")
    if sum(given is not None for given in (text, image, like)) != 1:
        raise typer.BadParameter("give exactly one of a text, --image FILE and --like ID.")
    return _Query(text.strip() if text else None, image, like)


def _parse_json(condition: str | None) -> dict[str, Any] | None:
    if condition is None:
        return None
    try:
        parsed = json.loads(condition)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"this is not JSON: {error}.", param_hint="--filter") from None
    if not isinstance(parsed, dict):
        raise typer.BadParameter("a filter is a JSON object.", param_hint="--filter")
    return parsed


def _answer(
    engine: "SearchEngine",
    settings: "Settings",
    active: "ActiveGeneration",
    query: _Query,
    k: int,
    condition: dict[str, Any] | None,
    cursor: str | None,
) -> "SearchResponse":
    from app.schemas import TookMs, page_from
    from index.filters import parse_filter
    from index.request import SearchRequest

    parsed = None if condition is None else parse_filter(condition)
    vector = _vector(engine, settings, active, query)
    request = SearchRequest(k=k, filter=parsed, cursor=cursor, exclude=vector.exclude)
    page = engine.search(active, vector.values, request)
    took = TookMs(
        encode=round(vector.encode_ms, 3),
        search=round(page.search_ms, 3),
        total=round(vector.encode_ms + page.search_ms, 3),
    )
    return page_from(page, active, k=k, filter=condition, took_ms=took, truncation=vector.truncation)


def _vector(
    engine: "SearchEngine", settings: "Settings", active: "ActiveGeneration", query: _Query
) -> _Vector:
    if query.like is not None:
        return _Vector(engine.vector_of(active, query.like), 0.0, exclude=(query.like,))
    from training.models.encoder import load_encoder

    encoder = load_encoder(active.bundle, settings.device)
    started = perf_counter()
    if query.image is not None:
        prepared = encoder.prepare_image(_read_image(query.image))
        return _Vector(encoder.embed_images(prepared[None])[0], _ms_since(started))
    embedded = encoder.embed_texts([query.text or ""])
    return _Vector(embedded.vectors[0], _ms_since(started), _truncation(embedded.truncations[0]))


def _read_image(path: Path) -> "Image.Image":
    from training.data.images import decode_image
    from training.errors import ImageError

    try:
        return decode_image(path)
    except ImageError as error:
        raise ImageError(f"{path}: {error}") from None


def _truncation(cut: Any) -> "Truncation | None":
    from app.schemas import Truncation

    if cut is None:
        return None
    return Truncation(tokens=cut.tokens, kept=cut.kept, searched_text=cut.searched_text)


def _ms_since(started: float) -> float:
    return 1000 * (perf_counter() - started)


def _print_table(page: "SearchResponse") -> None:
    from rich.table import Table

    screen = console()
    if page.query.truncation is not None:
        cut = page.query.truncation
        typer.echo(f"The text was cut to {cut.kept} of {cut.tokens} tokens: {cut.searched_text!r}", err=True)
    if not page.hits:
        screen.print("Nothing passes the filter." if page.query.filter else "The collection is empty.")
        return
    table = Table("Rank", "Id", "Cosine", "Text")
    for hit in page.hits:
        table.add_row(str(hit.rank), hit.id, f"{hit.score:.4f}", hit.texts[0] if hit.texts else "")
    screen.print(table)
