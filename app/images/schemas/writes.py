"""Schemas of writes."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from app.edge.schemas import Answer, Request
from index.search.results import ActiveGeneration

# Files in one request; the body's limit in bytes holds beside it.
MAX_UPLOADS = 64
# Limits of one image.
MAX_TEXTS = 1024
MAX_METADATA = 1024


def _few(metadata: Any) -> Any:
    """Refuse too many fields before any is judged: thousands of wrong ones would take seconds."""
    if isinstance(metadata, dict) and len(metadata) > MAX_METADATA:
        raise PydanticCustomError(
            "too_many_fields",
            "{given} fields are too many; send at most {most}.",
            {"given": len(metadata), "most": MAX_METADATA},
        )
    return metadata


SplitName = Literal["train", "val", "test"]
Texts = Annotated[list[str], Field(fail_fast=True, max_length=MAX_TEXTS)]
# The values are judged as those of a manifest's line are.
Metadata = Annotated[
    dict[str, Any],
    BeforeValidator(_few),
    Field(description="Values to filter by: texts, numbers, true, false, or lists of these."),
]


class ImageWords(Request):
    """Description of an image."""

    texts: Texts = Field(default=[], description="Sentences or captions, each searched by its own vector.")
    report: str | None = Field(default=None, description="The whole report; its words are searched.")
    labels: Texts = Field(default=[], examples=[["Edema"]])
    group: str | None = Field(default=None, description="Ties images together, such as those of one patient.")
    split: SplitName = Field(default="test", description="Split of the data set.")
    metadata: Metadata = Field(default={}, examples=[{"view": "PA", "age": 64}])


class NewImage(ImageWords):
    """Description of an image that is sent under this id."""

    id: str


class ImageChanges(Request):
    """Changes of an image; missing fields stay as they are."""

    texts: Texts | None = None
    report: str | None = Field(default=None, description="null removes the report.")
    labels: Texts | None = None
    group: str | None = Field(default=None, description="null removes the image from its group.")
    split: SplitName | None = None
    metadata: Metadata | None = Field(
        default=None, description="Fields to set; those that are not named stay, null removes one."
    )

    @model_validator(mode="after")
    def _no_null(self) -> Self:
        for name in ("texts", "labels", "split", "metadata"):
            if name in self.model_fields_set and getattr(self, name) is None:
                raise ValueError(f"`{name}` cannot be null: leave it out to keep it as it is.")
        return self


class NewCollection(Request):
    """A collection to begin, by a registered model or by that of another collection."""

    name: str = Field(description="Up to 100 letters, digits, dots, hyphens and underscores.")
    model: str | None = Field(default=None, description="Digest, or name, of a registered model.")
    same_model_as: str | None = Field(default=None, description="A collection whose model it takes.")

    @model_validator(mode="after")
    def _one_model(self) -> Self:
        if (self.model is None) == (self.same_model_as is None):
            raise ValueError("Give either `model` or `same_model_as`.")
        return self


_TRUNCATED: int = Field(
    default=0,
    description="Number of its texts embedded now that are longer than the encoder reads; each is searched "
    "by its beginning.",
)


class Refusal(Answer):
    """Problem of one image; `type`, `title`, `status` and `detail` of a problem document (RFC 9457)."""

    type: str = Field(examples=["urn:recoquest:not-an-image"])
    title: str
    status: int = Field(description="Status that the image would have had alone.")
    detail: str = Field(description="Explanation, and a remedy.")


class Written(Answer):
    """Outcome of writing one image."""

    id: str
    status: Literal["created", "replaced", "unchanged", "refused"]
    etag: str | None = Field(default=None, description="ETag of the image; null where it was refused.")
    problem: Refusal | None = Field(default=None, description="Why it was refused; null where it was not.")
    truncated_texts: int = _TRUNCATED


class WrittenBy(Answer):
    """The generation that the vectors were made for."""

    collection: str
    generation: int
    model: str
    digest: str


class WriteAnswer(Answer):
    """Outcome of writing one image, and the generation that has it."""

    id: str
    status: Literal["created", "replaced", "unchanged"]
    etag: str = Field(description="ETag of the image, also in the header: If-Match of the next change.")
    truncated_texts: int = _TRUNCATED
    written_to: WrittenBy


class WriteCounts(Answer):
    """Images of a request by their outcome: `received` is the sum of the others."""

    received: int
    created: int
    replaced: int
    unchanged: int
    refused: int


class WritesAnswer(Answer):
    """Outcome of each image, in the order of the files; all but the refused are on the disk."""

    written: int = Field(description="Images that are there as they were sent.")
    refused: int = Field(description="Images that are not; the status of the answer is 207 if there are any.")
    results: list[Written]
    counts: WriteCounts
    written_to: WrittenBy


class Removed(Answer):
    """Removed images."""

    status: Literal["removed"] = "removed"
    id: str | None = Field(default=None, description="The image; null for a whole collection.")
    collection: str


def count_written(images: Sequence[Written]) -> WriteCounts:
    """Count images by their outcome."""
    counts = Counter(image.status for image in images)
    return WriteCounts(
        received=len(images),
        created=counts["created"],
        replaced=counts["replaced"],
        unchanged=counts["unchanged"],
        refused=counts["refused"],
    )


def written_by(active: ActiveGeneration) -> WrittenBy:
    """Name a generation."""
    return WrittenBy(
        collection=active.collection,
        generation=active.generation,
        model=active.model,
        digest=active.digest,
    )


def _form(**properties: dict[str, Any]) -> dict[str, Any]:
    schema = {
        "type": "object",
        "required": list(properties),
        "additionalProperties": False,
        "properties": properties,
    }
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


_FILE = {
    "type": "string",
    "format": "binary",
    "description": "A JPEG, PNG, WebP, AVIF, GIF, BMP, TIFF or DICOM file.",
}
UPLOADS_BODY = _form(
    image={"type": "array", "items": _FILE, "maxItems": MAX_UPLOADS},
    records={
        "type": "string",
        "description": "A JSON list with an object for each file, in the same order: its `id`, and if wanted "
        "`texts`, `report`, `labels`, `group`, `split` and `metadata`.",
    },
)
UPLOAD_BODY = _form(
    image=_FILE,
    record={
        "type": "string",
        "description": "A JSON object: `texts`, `report`, `labels`, `group`, `split`, `metadata`, or {}.",
    },
)
