"""`recoquest search`: search a collection by texts, by image files and by stored images."""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.options import Device, Home, indexed, parse_filter_option, query_device

if TYPE_CHECKING:
    from app.cli.collections.examples import Given
    from app.operations.query_sources import ImageFile, Source
    from app.schemas.search.page import SearchResponse, Truncation
    from app.schemas.search.query import SearchQuery
    from app.settings import Settings
    from index.engine import SearchEngine
    from index.search.query_vector import Part
    from index.search.results import ActiveGeneration
    from training.models.config import Modality
    from training.models.encoder import Encoder
    from training.models.onnx.encoder import OnnxEncoder


_GARBAGE_THRESHOLD = 100_000
# The options that fields of a query come from.
_OPTIONS = {
    "text": "TEXT",
    "like": "--like",
    "unlike": "--unlike",
    "keywords": "--keywords",
    "keywords_state": "--keywords-state",
    "target": "--target",
    "group_by": "--group-by",
    "exclude_same_group": "--exclude-same-group",
    "min_score": "--min-score",
    "diversity": "--diversity",
    "filter": "--filter",
    "limit": "--limit",
    "cursor": "--cursor",
}


@dataclass(frozen=True)
class _Files:
    """Image files: what is asked for, and examples of what is not wanted."""

    asked: Sequence[Path]
    disliked: Sequence[Path]


def search(
    collection: Annotated[str, typer.Argument(help="Collection to search; see `recoquest collections`.")],
    text: Annotated[str | None, typer.Argument(help="Query text.")] = None,
    queries: Annotated[
        Path | None,
        typer.Option(help="Search for each line of this file, and print a page of JSON for each."),
    ] = None,
    texts: Annotated[list[str] | None, typer.Option("--text", help="Another query text; repeatable.")] = None,
    images: Annotated[
        list[Path] | None, typer.Option("--image", help="Query image file; repeatable.")
    ] = None,
    like: Annotated[
        list[str] | None,
        typer.Option("--like", help="Id of a stored image as a positive example; repeatable."),
    ] = None,
    unlike: Annotated[
        list[str] | None,
        typer.Option("--unlike", help="Id of a stored image as a negative example; repeatable."),
    ] = None,
    like_texts: Annotated[
        list[str] | None, typer.Option("--like-text", help="Text as a positive example; repeatable.")
    ] = None,
    unlike_texts: Annotated[
        list[str] | None, typer.Option("--unlike-text", help="Text as a negative example; repeatable.")
    ] = None,
    like_vectors: Annotated[
        list[Path] | None,
        typer.Option(
            "--like-vector",
            help="Vector by the collection's encoder as a positive example (.npy, or JSON list); repeatable.",
        ),
    ] = None,
    unlike_vectors: Annotated[
        list[Path] | None, typer.Option("--unlike-vector", help="Vector as a negative example; repeatable.")
    ] = None,
    unlike_images: Annotated[
        list[Path] | None,
        typer.Option("--unlike-image", help="Image file as a negative example; repeatable."),
    ] = None,
    keywords: Annotated[
        str | None,
        typer.Option("--keywords", "--words", help="Rank matches of these words higher; alone, list them."),
    ] = None,
    keywords_state: Annotated[
        str | None,
        typer.Option(
            "--keywords-state",
            "--words-state",
            help="Only where texts say so of the findings among the words: present, absent or uncertain.",
        ),
    ] = None,
    target: Annotated[str, typer.Option("--target", help="Kind of hits: images or texts.")] = "images",
    group_by: Annotated[
        str | None,
        typer.Option("--group-by", help="The best hit of each group only: `group`, or another field."),
    ] = None,
    exclude_same_group: Annotated[
        str | None,
        typer.Option(
            "--exclude-same-group", help="Leave out the groups of stored examples: `group`, or another field."
        ),
    ] = None,
    same_patient: Annotated[
        bool,
        typer.Option("--same-patient", help="Keep images of the patients of --like, where images have them."),
    ] = False,
    min_score: Annotated[
        float | None, typer.Option("--min-score", min=-1, max=1, help="Lowest cosine of a hit.")
    ] = None,
    diversity: Annotated[
        float | None, typer.Option("--diversity", min=0, max=1, help="How much hits should differ.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-k", min=1, max=1000, help="How many hits.")] = 10,
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
    """Search a collection by texts, image files, stored images and vectors, alone or together.

    Without any of these, list what passes --filter and has --keywords, in a stable order.
    """
    # Objects of imports stay; collections of garbage among them would take a tenth of the time.
    gc.set_threshold(_GARBAGE_THRESHOLD)
    from app.cli.collections.examples import Given, given_examples
    from app.settings import load_settings

    if (exclude_same_group or "").startswith("--"):
        raise typer.BadParameter("name a field, such as group.", param_hint="--exclude-same-group")
    settings = load_settings(home=home, device=device)
    given = [part for part in (text, *(texts or ())) if part is not None]
    common = {
        "keywords": keywords,
        "keywords_state": keywords_state,
        "target": target,
        "group_by": group_by,
        "min_score": min_score,
        "diversity": diversity,
        "limit": limit,
        "filter": None if condition is None else parse_filter_option(condition),
    }
    if queries is not None:
        wanted = (given, images, like, like_texts, like_vectors)
        unwanted = (unlike, unlike_texts, unlike_vectors, unlike_images)
        _refuse_other_queries(*wanted, *unwanted, exclude_same_group is not None, same_patient, cursor)
        _search_lines(collection, queries, common, settings)
        return
    liked = [Given("--text", {"text": more}) for more in given[1:]]
    liked += given_examples("--like", like, like_texts, like_vectors)
    disliked = given_examples("--unlike", unlike, unlike_texts, unlike_vectors)
    options = _OPTIONS | _places("like", liked) | _places("unlike", disliked)
    query = _query(
        options,
        **common,
        text=given[0] if given else None,
        like=[one.example for one in liked],
        unlike=[one.example for one in disliked],
        exclude_same_group=False if same_patient and exclude_same_group is None else exclude_same_group,
        cursor=cursor,
    )
    files = _Files(images or [], unlike_images or [])
    with _named(options):
        page = _page(collection, query, files, settings)
    _print(page, query, as_json=as_json)


def _page(collection: str, query: "SearchQuery", files: _Files, settings: "Settings") -> "SearchResponse":
    """Search, and note what is shown in the audit trail."""
    from app.audit.trail import record_searches

    query.check(images=len(files.asked), unlike_images=len(files.disliked))
    with indexed(settings) as engine:
        page = _answer(engine, settings, engine.active(collection), query, files)
        record_searches(settings, engine.home.catalogue, collection, [(query, page)])
    return page


def _print(page: "SearchResponse", query: "SearchQuery", *, as_json: bool) -> None:
    if as_json:
        typer.echo(page.model_dump_json(indent=2))
        return
    from app.cli.collections.search_table import print_table

    print_table(page, query)


def _refuse_other_queries(*others: object) -> None:
    if any(others):
        raise typer.BadParameter("each line is a whole query: give no other.", param_hint="--queries")


def _search_lines(collection: str, path: Path, common: dict[str, Any], settings: "Settings") -> None:
    from app.cli.collections.search_lines import print_pages, read_texts

    queries = []
    for number, text in read_texts(path):
        try:
            queries.append(_query(_OPTIONS, text=text, **common))
        except typer.BadParameter as error:
            raise typer.BadParameter(f"line {number}: {error.message}", param_hint="--queries") from None
    print_pages(collection, queries, settings)


def _places(name: str, given: "Sequence[Given]") -> dict[str, str]:
    return {f"{name}.{place}": one.option for place, one in enumerate(given)}


def _query(options: Mapping[str, str], **values: Any) -> "SearchQuery":
    from pydantic import ValidationError

    from app.http.field_errors import sentence
    from app.schemas.search.query import SearchQuery

    try:
        return SearchQuery.model_validate(values)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise typer.BadParameter(sentence(wrong), param_hint=_option(options, *wrong["loc"])) from None


@contextmanager
def _named(options: Mapping[str, str]) -> Iterator[None]:
    """Name the option that is at fault where a field of the query is."""
    from index.errors import QueryError

    try:
        yield
    except QueryError as error:
        option = _option(options, *(error.field or "").split("."))
        if option is None:
            raise
        raise typer.BadParameter(str(error), param_hint=option) from None


def _option(options: Mapping[str, str], *location: str | int) -> str | None:
    """The option of a place in the query: that of the example there, or else that of the field."""
    example = ".".join(str(part) for part in location[:2])
    return options.get(example) or options.get(str(location[0]))


def _answer(
    engine: "SearchEngine",
    settings: "Settings",
    active: "ActiveGeneration",
    query: "SearchQuery",
    files: _Files,
) -> "SearchResponse":
    from app.operations.query_sources import QuerySources
    from app.schemas.search.page import TookMs, page_from

    images, unlike_images = ([_read_image(path) for path in kind] for kind in (files.asked, files.disliked))
    sources = QuerySources.of(query, images, unlike_images)
    maker = _PartMaker(engine, settings, active, sources.modality)
    page = sources.find(engine, active, [maker.make(source) for source in sources.all])
    took = TookMs(
        encode=round(maker.encode_ms, 3),
        search=round(page.search_ms, 3),
        total=round(maker.encode_ms + page.search_ms, 3),
    )
    return page_from(
        page, active, limit=query.limit, filter=query.filter, took_ms=took, truncations=maker.truncations
    )


class _PartMaker:
    """Makes the vectors of a query's parts; only towers that they need are loaded."""

    def __init__(
        self,
        engine: "SearchEngine",
        settings: "Settings",
        active: "ActiveGeneration",
        modality: "Modality | None",
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._active = active
        self._modality = modality
        self.encode_ms = 0.0
        self.truncations: list[Truncation] = []

    def make(self, source: "Source") -> "Part":
        """Encode a text or an image file, or look up the vector of an example."""
        from app.operations.query_sources import ImageFile, TextSource, stored_part

        if isinstance(source, TextSource):
            return self._of_text(source.text, source.field)
        if isinstance(source, ImageFile):
            return self._of_image(source)
        return stored_part(self._engine, self._active, source)

    @cached_property
    def _encoder(self) -> "Encoder | OnnxEncoder":
        from training.models.onnx.loading import load_query_encoder

        return load_query_encoder(self._active.bundle, query_device(self._settings), only=self._modality)

    def _of_text(self, text: str, field: str) -> "Part":
        from app.schemas.search.page import Truncation
        from index.search.query_vector import Part

        encoder = self._encoder
        started = perf_counter()
        embedded = encoder.embed_texts([text])
        self.encode_ms += _ms_since(started)
        cut = embedded.truncations[0]
        if cut is not None:
            self.truncations.append(Truncation.of(field, cut))
        return Part(embedded.vectors[0], "text", text if encoder.knows_only_its_texts else None)

    def _of_image(self, file: "ImageFile") -> "Part":
        from index.search.query_vector import Part
        from training.data.decoding.images import ImageLimits, decode_image

        encoder = self._encoder
        with _file_named(file.name):
            limits = ImageLimits(accept_truncated=self._settings.accept_truncated_images)
            image = decode_image(file.content, limits, encoder.min_image_side)
        started = perf_counter()
        vector = encoder.embed_images(encoder.prepare_image(image)[None])[0]
        self.encode_ms += _ms_since(started)
        return Part(vector, "image")


def _read_image(path: Path) -> "ImageFile":
    """Read an image file, and refuse it before an encoder is loaded, which takes seconds."""
    from app.operations.query_sources import ImageFile
    from training.data.decoding.content import read_content
    from training.data.decoding.images import ImageLimits, read_header

    with _file_named(str(path)):
        limits = ImageLimits()
        content = read_content(path, limits.max_bytes, limits.max_dicom_bytes)
        read_header(content)
    return ImageFile(str(path), content)


@contextmanager
def _file_named(name: str) -> Iterator[None]:
    from training.errors import ImageError

    try:
        yield
    except ImageError as error:
        raise ImageError(f"{name}: {error}") from None


def _ms_since(started: float) -> float:
    return 1000 * (perf_counter() - started)
