"""`recoquest search`: search a collection by texts, by image files and by stored images."""

import gc
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.options import Device, Home, indexed, parse_filter_option

if TYPE_CHECKING:
    from app.search.schemas import SearchQuery, SearchResponse, SimilarityMap
    from app.search.search import QuerySources
    from app.settings import Settings


_GARBAGE_THRESHOLD = 100_000
_NUMPY = b"\x93NUMPY"
# The options that fields of a query come from.
_OPTIONS = {
    "text": "TEXT",
    "image_boxes": "--box",
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


@dataclass(frozen=True)
class _Given:
    """An example of a query, and the option that it was given by."""

    option: str
    example: dict[str, Any]


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
    boxes: Annotated[
        list[str] | None,
        typer.Option(
            "--box",
            help="Search by this part of the image: x,y,width,height in fractions of the upright picture. "
            "The first is of the first --image, or of the first --like where no file is given; repeatable.",
        ),
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
        typer.Option(
            "--keywords",
            "--words",
            help="Rank matches of these words higher; alone, list them. Without it the words of the query "
            "texts are looked up, where the collection has texts.",
        ),
    ] = None,
    likeness_alone: Annotated[
        bool, typer.Option("--likeness-alone", help="Do not look the words of the query texts up.")
    ] = False,
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
    cursor: Annotated[
        str | None,
        typer.Option("--cursor", help="next_cursor of the page before; `true` prints that of the first."),
    ] = None,
    map_of: Annotated[
        str | None,
        typer.Option(
            "--map", help="Search nothing: print which parts of the image of this id fit the query."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the page that the service would answer.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Say from which score on a text is confident, and how often that is right."
        ),
    ] = False,
    home: Home = None,
    device: Device = None,
) -> None:
    """Search a collection by texts, image files, stored images and vectors, alone or together.

    Without any of these, list what passes --filter and has --keywords, in a stable order.
    """
    # Objects of imports stay; collections of garbage among them would take a tenth of the time.
    gc.set_threshold(_GARBAGE_THRESHOLD)
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
        wanted = (given, map_of, images, boxes, like, like_texts, like_vectors)
        unwanted = (unlike, unlike_texts, unlike_vectors, unlike_images)
        if any((*wanted, *unwanted, exclude_same_group is not None, same_patient, cursor)):
            raise typer.BadParameter("each line is a whole query: give no other.", param_hint="--queries")
        _search_lines(collection, queries, common, settings, likeness_alone=likeness_alone)
        return
    marked = _boxes(boxes, files=images, ids=like)
    liked = [_Given("--text", {"text": more}) for more in given[1:]]
    liked += _examples("--like", like, like_texts, like_vectors, boxes=[] if images else marked)
    disliked = _examples("--unlike", unlike, unlike_texts, unlike_vectors)
    options = _OPTIONS | _places("like", liked) | _places("unlike", disliked)
    query = _query(
        options,
        **common,
        text=given[0] if given else None,
        image_boxes=marked if images else [],
        like=[one.example for one in liked],
        unlike=[one.example for one in disliked],
        exclude_same_group=False if same_patient and exclude_same_group is None else exclude_same_group,
        cursor=True if cursor == "true" else cursor,
    )
    files = _Files(images or [], unlike_images or [])
    with _named(options):
        if map_of is not None:
            typer.echo(_map(collection, map_of, query, files, settings).model_dump_json(indent=2))
            return
        page = _page(collection, query, files, settings, [] if likeness_alone else given)
    if as_json:
        typer.echo(page.model_dump_json(indent=2))
    else:
        from app.cli.collections.search_table import print_table

        print_table(page, query)
    if explain:
        from app.cli.collections.search_table import print_confidence

        with indexed(settings) as engine:
            print_confidence(engine.confidence(engine.active(collection)))


def _map(
    collection: str, image_id: str, query: "SearchQuery", files: _Files, settings: "Settings"
) -> "SimilarityMap":
    """Tell which parts of an image fit a query, and note it in the audit trail."""
    from app.audit.trail import record_command
    from app.cli.collections.query_parts import PartMaker
    from app.search.schemas import SimilarityMap
    from app.search.search import query_parts

    query.check(images=len(files.asked), unlike_images=len(files.disliked))
    sources = _sources(query, files, settings)
    if not sources.all:
        raise typer.BadParameter("give a text, an image or an example with it.", param_hint="--map")
    with indexed(settings) as engine:
        active = engine.active(collection)
        maker = PartMaker(engine, settings, active, None)
        image, grid = maker.regions_of(image_id)
        entry = sources.entry(engine, active, [maker.make(source) for source in sources.all])
        record_command(
            settings,
            engine.home.catalogue,
            "view",
            "search --map",
            collection=collection,
            objects=[image.id],
            query=query_parts(query),
            model=active.digest,
            generation=active.generation,
        )
    return SimilarityMap.of(image, active, grid, entry.vector)


def _page(
    collection: str, query: "SearchQuery", files: _Files, settings: "Settings", texts: Sequence[str]
) -> "SearchResponse":
    """Search, with the words of texts looked up, and note what is shown in the audit trail."""
    from app.cli.collections.query_parts import PartMaker, with_words
    from app.search.schemas import TookMs, page_from
    from app.search.search import record_searches

    query.check(images=len(files.asked), unlike_images=len(files.disliked))
    with indexed(settings) as engine:
        query, active = with_words(query, " ".join(texts), engine, collection), engine.active(collection)
        sources = _sources(query, files, settings)
        maker = PartMaker(engine, settings, active, sources.modality)
        found = sources.find(engine, active, [maker.make(source) for source in sources.all])
        took = TookMs(
            encode=round(maker.encode_ms, 3),
            search=round(found.search_ms, 3),
            total=round(maker.encode_ms + found.search_ms, 3),
        )
        page = page_from(found, active, query, took_ms=took, truncations=maker.truncations)
        record_searches(settings, engine.home.catalogue, collection, [(query, page)])
    return page


def _search_lines(
    collection: str, path: Path, common: dict[str, Any], settings: "Settings", *, likeness_alone: bool
) -> None:
    from app.cli.collections.search_lines import print_pages, read_texts

    queries = []
    for number, text in read_texts(path):
        try:
            queries.append(_query(_OPTIONS, text=text, **common))
        except typer.BadParameter as error:
            raise typer.BadParameter(f"line {number}: {error.message}", param_hint="--queries") from None
    print_pages(collection, queries, settings, likeness_alone=likeness_alone)


def _places(name: str, given: Sequence[_Given]) -> dict[str, str]:
    return {f"{name}.{place}": one.option for place, one in enumerate(given)}


def _query(options: Mapping[str, str], **values: Any) -> "SearchQuery":
    from pydantic import ValidationError

    from app.edge.http.field_errors import sentence
    from app.search.schemas import SearchQuery

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
    if "box" in location:
        return options.get("image_boxes")
    example = ".".join(str(part) for part in location[:2])
    return options.get(example) or options.get(str(location[0]))


def _sources(query: "SearchQuery", files: _Files, settings: "Settings") -> "QuerySources":
    from app.cli.collections.query_parts import read_image
    from app.search.search import QuerySources

    limits = settings.image_limits
    images, unlike_images = (
        [read_image(path, limits) for path in kind] for kind in (files.asked, files.disliked)
    )
    return QuerySources.of(query, images, unlike_images)


def _boxes(
    boxes: Sequence[str] | None, *, files: Sequence[Path] | None, ids: Sequence[str] | None
) -> list[dict[str, float]]:
    """Read the boxes of `--box`, each of an image file, or of a stored image where no file is given.

    Raises:
        BadParameter: One is no four numbers, or there are more than images.
    """
    pictures = len(files or ids or ())
    if len(boxes or ()) > pictures:
        message = f"{len(boxes or ())} boxes for {pictures} images: give an --image or a --like for each."
        raise typer.BadParameter(message, param_hint="--box")
    return [_given_box(text) for text in boxes or ()]


def _given_box(text: str) -> dict[str, float]:
    try:
        x, y, width, height = (float(number) for number in text.split(","))
    except ValueError:
        message = f"{text!r} is not x,y,width,height in fractions of the picture, such as 0.1,0.2,0.3,0.4."
        raise typer.BadParameter(message, param_hint="--box") from None
    return {"x": x, "y": y, "width": width, "height": height}


def _examples(
    option: str,
    ids: Sequence[str] | None,
    texts: Sequence[str] | None,
    vectors: Sequence[Path] | None,
    boxes: Sequence[dict[str, float]] = (),
) -> list[_Given]:
    """Gather the examples of `--like` or `--unlike` and of the options that go with it.

    Args:
        option: The option of ids.
        ids: Stored images.
        texts: Texts.
        vectors: Files of vectors.
        boxes: Parts of the first stored images.

    Raises:
        BadParameter: A file holds no vector.
    """
    return [
        *(
            _Given(option, {"id": name} | ({} if box is None else {"box": box}))
            for name, box in zip(ids or (), chain(boxes, repeat(None)), strict=False)
        ),
        *(_Given(f"{option}-text", {"text": text}) for text in texts or ()),
        *(_given_vector(f"{option}-vector {path}", path) for path in vectors or ()),
    ]


def _given_vector(option: str, path: Path) -> _Given:
    try:
        values = _read_list(path)
    except OSError as error:
        raise typer.BadParameter(f"it cannot be read: {error.strerror}.", param_hint=option) from None
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, list):
        message = "it is neither a .npy file of numbers nor a list of numbers in JSON."
        raise typer.BadParameter(message, param_hint=option)
    if any(isinstance(value, list) for value in values):
        raise typer.BadParameter("it holds several vectors: give a file of one.", param_hint=option)
    return _Given(option, {"vector": values})


def _read_list(path: Path) -> Any:
    content = path.read_bytes()
    if content.startswith(_NUMPY):
        import numpy as np

        return np.load(BytesIO(content), allow_pickle=False).tolist()
    return json.loads(content)
