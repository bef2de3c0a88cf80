"""`recoquest search`: search a collection by texts, by image files and by stored images."""

import gc
import json
from collections.abc import Sequence
from io import BytesIO
from itertools import chain, repeat
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from app.cli.options import FILTER_OPTION, Device, Home

_GARBAGE_THRESHOLD: Final = 100_000
_NUMPY: Final = b"\x93NUMPY"
# The option of an example, and the example.
_Option = tuple[str, dict[str, Any]]


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
            "The first is of the first --image, or of the first --like if there is no file; repeatable.",
        ),
    ] = None,
    like: Annotated[
        list[str] | None, typer.Option(help="Id of a stored image as a positive example; repeatable.")
    ] = None,
    unlike: Annotated[
        list[str] | None, typer.Option(help="Id of a stored image as a negative example; repeatable.")
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
    target: Annotated[str, typer.Option(help="Kind of hits: images or texts.")] = "images",
    group_by: Annotated[
        str | None, typer.Option(help="The best hit of each group only: `group`, or another field.")
    ] = None,
    exclude_same_group: Annotated[
        str | None, typer.Option(help="Leave out the groups of stored examples: `group`, or another field.")
    ] = None,
    same_patient: Annotated[
        bool,
        typer.Option("--same-patient", help="Keep images of the patients of --like, where images have them."),
    ] = False,
    min_score: Annotated[float | None, typer.Option(min=-1, max=1, help="Lowest cosine of a hit.")] = None,
    diversity: Annotated[
        float | None, typer.Option(min=0, max=1, help="How much hits should differ.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-k", min=1, max=1000, help="How many hits.")] = 10,
    condition: Annotated[dict[str, Any] | None, FILTER_OPTION] = None,
    cursor: Annotated[
        str | None, typer.Option(help="next_cursor of the page before; `true` prints that of the first.")
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
    if (exclude_same_group or "").startswith("--"):
        raise typer.BadParameter("name a field, such as group.", param_hint="--exclude-same-group")
    from app.cli import search_pages

    texts_given = [part for part in (text, *(texts or ())) if part is not None]
    common = {
        "keywords": keywords,
        "keywords_state": keywords_state,
        "target": target,
        "group_by": group_by,
        "min_score": min_score,
        "diversity": diversity,
        "limit": limit,
        "filter": condition,
    }
    if queries is not None:
        positive_options = (texts_given, map_of, images, boxes, like, like_texts, like_vectors)
        negative_options = (unlike, unlike_texts, unlike_vectors, unlike_images)
        if any((*positive_options, *negative_options, exclude_same_group is not None, same_patient, cursor)):
            raise typer.BadParameter(
                "each line is a whole query: give no other query.", param_hint="--queries"
            )
        search_pages.print_pages(
            collection, queries, common, likeness_alone=likeness_alone, home=home, device=device
        )
        return
    marked = _boxes(boxes, len(images or like or ()))
    examples: dict[str, list[_Option]] = {
        "like": [
            *(("--text", {"text": more}) for more in texts_given[1:]),
            *_examples("--like", like, like_texts, like_vectors, () if images else marked),
        ],
        "unlike": _examples("--unlike", unlike, unlike_texts, unlike_vectors),
    }
    options = {
        f"{field}.{index}": option
        for field, several in examples.items()
        for index, (option, _) in enumerate(several)
    }
    query = search_pages.parse_query(
        options,
        **common,
        **{field: [example for _, example in several] for field, several in examples.items()},
        text=texts_given[0] if texts_given else None,
        image_boxes=marked if images else [],
        exclude_same_group=False if same_patient and exclude_same_group is None else exclude_same_group,
        cursor=True if cursor == "true" else cursor,
    )
    with search_pages.options_named(options):
        query.check(images=len(images or ()), unlike_images=len(unlike_images or ()))
        files = images or [], unlike_images or []
        if map_of is not None:
            shown = search_pages.map_image(collection, map_of, query, files, home=home, device=device)
            typer.echo(shown.model_dump_json(indent=2))
            return
        words = "" if likeness_alone else " ".join(texts_given)
        page = search_pages.find_page(collection, query, files, words, home=home, device=device)
    if as_json:
        typer.echo(page.model_dump_json(indent=2))
    else:
        search_pages.print_page(page, query)
    if explain:
        search_pages.print_confidence(collection, home=home, device=device)


def _boxes(boxes: Sequence[str] | None, pictures: int) -> list[dict[str, float]]:
    """Read the boxes of `--box`, of so many image files, or stored images if there is no file."""
    if len(boxes or ()) > pictures:
        message = f"{len(boxes or ())} boxes for {pictures} images: give an --image or a --like for each."
        raise typer.BadParameter(message, param_hint="--box")
    parsed = []
    for text in boxes or ():
        try:
            x, y, width, height = (float(number) for number in text.split(","))
        except ValueError:
            raise typer.BadParameter(
                f"{text!r} is not x,y,width,height in fractions of the picture, such as 0.1,0.2,0.3,0.4.",
                param_hint="--box",
            ) from None
        parsed.append({"x": x, "y": y, "width": width, "height": height})
    return parsed


def _examples(
    option: str,
    ids: Sequence[str] | None,
    texts: Sequence[str] | None,
    vectors: Sequence[Path] | None,
    boxes: Sequence[dict[str, float]] = (),
) -> list[_Option]:
    """Gather the examples of `--like` or `--unlike`; boxes are parts of the first stored images."""
    return [
        *(
            (option, {"id": name} | ({} if box is None else {"box": box}))
            for name, box in zip(ids or (), chain(boxes, repeat(None)), strict=False)
        ),
        *((f"{option}-text", {"text": text}) for text in texts or ()),
        *(_vector_option(f"{option}-vector {path}", path) for path in vectors or ()),
    ]


def _vector_option(option: str, path: Path) -> _Option:
    values: Any
    try:
        content = path.read_bytes()
        if content.startswith(_NUMPY):
            import numpy as np

            values = np.load(BytesIO(content), allow_pickle=False).tolist()
        else:
            values = json.loads(content)
    except OSError as error:
        raise typer.BadParameter(f"it cannot be read: {error.strerror}.", param_hint=option) from None
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, list):
        message = "it is neither a .npy file of numbers nor a list of numbers in JSON."
        raise typer.BadParameter(message, param_hint=option)
    if any(isinstance(value, list) for value in values):
        raise typer.BadParameter("it holds several vectors: give a file of one.", param_hint=option)
    return option, {"vector": values}
