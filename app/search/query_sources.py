"""The sources of a query vector in order, and the search with their vectors.

The service and the command line encode sources in their own ways; everything else is shared.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from typing import Literal, NamedTuple, Self

from app.search.read_search import invalid
from app.search.schemas.box import QueryBox
from app.search.schemas.query import Example, SearchQuery, given_vector
from index.engine import SearchEngine
from index.errors import QueryError, StoreError
from index.search.request import BatchEntry, Part, Parts, SearchRequest
from index.search.results import ActiveGeneration, SearchPage, StoredImage
from training.common.errors import ImageError, ImageTooLargeError
from training.models.inputs.regions import Box, RegionGrid


class ImageFile(NamedTuple):
    """An image file of a query.

    Attributes:
        name: Name in errors; empty for the only one.
        content: Bytes of the file.
        box: The part to search by; None: the whole.
        field: Field of the query that has the box.
    """

    name: str
    content: bytes
    box: Box | None = None
    field: str = "image_boxes"


class TextSource(NamedTuple):
    """A text to encode, and its place in the query."""

    field: str
    text: str


class StoredSource(NamedTuple):
    """A stored image or a given vector, and its place in the query."""

    field: str
    example: Example

    @property
    def box(self) -> Box | None:
        """The part of the image to search by; None: the whole."""
        return None if self.example.box is None else self.example.box.box


Source = ImageFile | TextSource | StoredSource


@dataclass(frozen=True, slots=True)
class QuerySources:
    """Texts, image files and examples of a query.

    Attributes:
        request: The engine's request, without the vector.
        asked: Text and image files.
        liked: Positive examples.
        disliked: Negative examples.
    """

    request: SearchRequest
    asked: tuple[Source, ...]
    liked: tuple[Source, ...]
    disliked: tuple[Source, ...]
    _digest: Callable[[], str]

    @classmethod
    def of(cls, query: SearchQuery, images: Sequence[ImageFile], unlike_images: Sequence[ImageFile]) -> Self:
        """Gather the sources of a query and of the image files that came with it.

        Raises:
            FilterError: The filter is none.
        """
        text = [] if query.text is None else [TextSource("text", query.text)]
        files = [[file.content for file in kind] for kind in (images, unlike_images)]
        return cls(
            query.request(),
            (*text, *_marked(images, query.image_boxes, "image_boxes")),
            _examples("like", query.like),
            (
                *_examples("unlike", query.unlike),
                *_marked(unlike_images, query.unlike_image_boxes, "unlike_image_boxes"),
            ),
            partial(query.digest, *files),
        )

    @property
    def all(self) -> tuple[Source, ...]:
        """All sources, in the order in which `find` takes their vectors."""
        return (*self.asked, *self.liked, *self.disliked)

    @property
    def pictures(self) -> list[ImageFile | StoredSource]:
        """Image files and examples that are no texts."""
        return [source for source in self.all if not isinstance(source, TextSource)]

    @property
    def modality(self) -> Literal["text", "image"] | None:
        """The modality of all sources to encode; None where there are both, or none."""
        texts = any(isinstance(source, TextSource) for source in self.all)
        images = any(isinstance(one, ImageFile) or one.box is not None for one in self.pictures)
        if texts == images:
            return None
        return "text" if texts else "image"

    def find(self, engine: SearchEngine, active: ActiveGeneration, made: Sequence[Part]) -> SearchPage:
        """Search with the vectors of `all` sources, or list without any.

        `SearchEngine.search` and `Browser.page` say what is raised.
        """
        if not self.all:
            return engine.browse(active.collection, self.request)
        return engine.search(active, *self.entry(engine, active, made))

    def entry(self, engine: SearchEngine, active: ActiveGeneration, made: Sequence[Part]) -> BatchEntry:
        """Return the search with the vectors of `all` sources, of which there is one or more.

        Raises:
            QueryError: The vectors cannot be one query.
        """
        last = len(self.asked) + len(self.liked)
        parts = Parts(made[: len(self.asked)], made[len(self.asked) : last], made[last:])
        request = replace(self.request, kind=parts.kind)
        # Vectors of two parts of one picture may be nearly the same.
        if parts.single is None or any(source.box is not None for source in self.pictures):
            request = replace(request, parts=self._digest())
        return BatchEntry(engine.compose(active, parts, request.target), request, parts.text)


def region_part(grid: RegionGrid, box: Box, field: str) -> Part:
    """Return the vector of a part of a picture.

    Raises:
        QueryError: The encoder sees nothing of the part.
    """
    vector = grid.pool(box)
    if vector is None:
        seen = grid.area
        raise QueryError(
            f"The model sees of this picture only x from {seen.x:.2f} to {seen.x + seen.width:.2f} and y "
            f"from {seen.y:.2f} to {seen.y + seen.height:.2f}: draw the box there.",
            field=field,
        )
    # Vectors of parts lie elsewhere than those of whole images.
    return Part(vector, None)


def stored_part(engine: SearchEngine, active: ActiveGeneration, source: StoredSource) -> Part:
    """Return the vector of a stored image, or the given vector.

    Raises:
        UnknownImageError: The collection has no such image.
        QueryError: The vector is none of this collection.
    """
    if source.example.id is not None:
        return Part(engine.vector_of(active, source.example.id), "image")
    return Part(given_vector(source.example, active.dim, source.field), None)


def _marked(images: Sequence[ImageFile], boxes: Sequence[QueryBox | None], field: str) -> Iterator[ImageFile]:
    for image, box in zip(images, chain(boxes, repeat(None)), strict=False):
        yield image._replace(box=None if box is None else box.box, field=field)


def _examples(name: str, examples: Sequence[Example]) -> tuple[Source, ...]:
    return tuple(
        StoredSource(f"{name}.{place}", example)
        if example.text is None
        else TextSource(f"{name}.{place}.text", example.text)
        for place, example in enumerate(examples)
    )


@contextmanager
def naming_failures(image: StoredImage, field: str, too_large: str) -> Iterator[None]:
    """Say of the decoding of a stored image that it is damaged, or that a field asks for too much.

    Raises:
        RequestError: It takes more memory or work than a picture may.
        StoreError: The file cannot be decoded.
    """
    try:
        yield
    except ImageTooLargeError as error:
        raise invalid(field, too_large) from error
    except ImageError as error:
        raise StoreError(f"The stored image {image.sha256} is damaged: {error}") from error
