"""Schemas of images: details, uploads and changes, levels, links, deletions and erasures."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from app.edge.problems import Kind
from app.edge.schemas import Answer, Request
from app.search.schemas import FilterForm, MetadataValue
from index.catalogue.images import StoredImage
from training.clinical.findings import State

# Files in one request; the body's limit in bytes also applies.
MAX_UPLOADS = 64
# Limits of one image.
MAX_TEXTS = 1024
MAX_METADATA = 1024
# Longest side of a rendition.
MAX_SIZE = 65_500
_MAX_IDS = 500


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


class ImageLinks(Answer):
    """Paths of an image on this server."""

    image: str
    thumbnail: str
    rendition: str
    content: str


class ImageFinding(Answer):
    """A mention of a finding in a text of an image or in its report."""

    finding: str
    state: State
    position: Annotated[
        int | None, Field(description="Position of the text, from 0; null where it is in the report.")
    ]
    start: Annotated[int, Field(description="Offset of the mention in the text, in Unicode code points.")]
    end: Annotated[int, Field(description="Offset behind the mention.")]
    prior: Annotated[
        bool,
        Field(description="Whether its sentence compares with an earlier examination, or mentions one."),
    ]


class ImageInfo(Answer):
    """One stored image."""

    id: str
    texts: list[str]
    report: str | None
    findings: Annotated[
        list[ImageFinding], Field(description="What report and texts say of findings, by stated rules.")
    ]
    labels: list[str]
    metadata: dict[str, MetadataValue]
    split: str | None
    group: str | None
    width: int
    height: int
    media_type: str
    sha256: str
    links: ImageLinks

    @classmethod
    def from_image(cls, image: StoredImage, path: str) -> Self:
        """Describe a stored image, which has this path on the server."""
        links = {name: f"{path}/{name}" for name in ("thumbnail", "rendition", "content")}
        findings = zip(image.findings, image.priors(), strict=True)
        described = {field.name: getattr(image, field.name) for field in fields(image)} | {
            "findings": [{**finding._asdict(), "prior": prior} for finding, prior in findings],
            "links": {"image": path, **links},
        }
        return cls.model_validate(described)


class ImageWords(Request):
    """Description of an image."""

    texts: Texts = Field(default=[], description="Sentences or captions, each searched by its own vector.")
    report: str | None = Field(default=None, description="The full report; its words are searched.")
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
        for name in type(self).model_fields:
            is_null = name in self.model_fields_set and getattr(self, name) is None
            if is_null and name not in ("report", "group"):
                raise ValueError(f"`{name}` cannot be null: leave it out to keep it as it is.")
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

    @classmethod
    def from_kind(cls, kind: Kind, detail: str) -> Self:
        """Describe a problem of a kind."""
        return cls(type=kind.type, title=kind.title, status=kind.status, detail=detail)


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

    @classmethod
    def from_images(cls, images: Sequence[Written]) -> Self:
        """Count images by their outcome."""
        by_outcome: dict[str, int] = dict.fromkeys(("created", "replaced", "unchanged", "refused"), 0)
        return cls(received=len(images), **(by_outcome | Counter(image.status for image in images)))


class WritesAnswer(Answer):
    """Outcome of each image, in the order of the files; all but the refused are on the disk."""

    written: int = Field(description="Images that are there as they were sent.")
    refused: int = Field(description="Images that are not; the status of the answer is 207 if there are any.")
    results: list[Written]
    counts: WriteCounts
    written_to: WrittenBy


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
        "contentMediaType": "application/json",
        "contentSchema": {
            "type": "array",
            "items": {"$ref": f"#/components/schemas/{NewImage.__name__}"},
            "maxItems": MAX_UPLOADS,
        },
        "description": "A JSON list with an object for each file, in the same order.",
    },
)
UPLOAD_BODY = _form(
    image=_FILE,
    record={
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": {"$ref": f"#/components/schemas/{ImageWords.__name__}"},
        "description": "A JSON object, such as {}.",
    },
)


class ImagesToDelete(Request):
    """Images of a collection, by a filter."""

    filter: FilterForm = Field(
        description="A filter, as in a search; an empty one is refused.",
        examples=[{"field": "view", "eq": "PA"}],
    )
    dry_run: bool = Field(default=False, description="Count the images, and delete none.")
    expected_count: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="Delete only if the filter finds as many images; else the answer is 409."
    )


class DeletedImages(Answer):
    """A deletion by filter; it is complete when nothing remains."""

    collection: str
    dry_run: bool
    matched: int = Field(description="Images that passed the filter when the request began.")
    deleted: int = Field(description="Deleted images; 0 for a dry run.")
    remaining: int = Field(description="Images that pass the filter now; send it again to delete these.")
    ids: list[str] = Field(description="Ids of the first ten images that matched.")
    problem: Refusal | None = Field(
        default=None,
        description="What stopped the deletion, or the count of what remains; null: nothing did.",
    )


class ImagesToErase(Request):
    """Images of a collection, by their ids, their patient or their study."""

    ids: Annotated[
        list[Annotated[str, Field(max_length=255)]],
        Field(default_factory=list, fail_fast=True, min_length=1, max_length=_MAX_IDS),
    ]
    patient: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None,
        description="Patient ID or its keyed hash: all images and reports of the patient are erased.",
    )
    study: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None,
        description="Study Instance UID, accession number or its keyed hash, likewise of a study.",
    )

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if not self.ids and self.patient is None and self.study is None:
            raise ValueError("Give `ids`, `patient` or `study`.")
        return self


class HoldingBackup(Answer):
    """A backup that still holds an image."""

    path: str
    created: str
    digest: str = Field(description="SHA-256 of `backup.json` in it.")
    is_there: bool = Field(description="Whether it is still where it was written.")


class ErasedImages(Answer):
    """An erasure."""

    collection: str
    erased: list[str] = Field(description="Ids of the images that the collection had.")
    unknown: list[str] = Field(
        description="Ids that neither the collection nor the audit trail has. Backups may contain them."
    )
    shared_files: list[str] = Field(
        description="SHA-256 of files that stay, since another image is the same file."
    )
    reports: int = Field(
        description="Reports that waited for images, or were of the patient, and were also removed."
    )
    judgements: int = Field(description="Judgements for queries that named them, which were also removed.")
    jobs: list[int] = Field(description="Jobs whose results or files named them and no longer do.")
    retrainings: list[int] = Field(description="Jobs whose models may have learned from them.")
    left_files: list[str] = Field(
        description="Files of jobs that name them, and unfinished files that may hold them: remove these."
    )
    backups: list[HoldingBackup] = Field(description="Backups that still hold them.")
    log_is_empty: bool = Field(
        description="Whether the database's log holds nothing of them any more; else send it again later."
    )


class GreyWindow(Answer):
    """A window, in stored values."""

    centre: float = Field(description="Value that becomes middle grey.")
    width: float = Field(description="Distance of the values that become black and white.")


class GreyLevels(Answer):
    """The stored values of an image and windows to see it through; null where a sample has up to 8 bits."""

    deep: bool = Field(description="Whether a sample has more than 8 bits.")
    smallest: float | None = Field(default=None, description="Smallest value in the image.")
    largest: float | None = None
    automatic: GreyWindow | None = Field(
        default=None,
        description="The window of its renditions, thumbnail and vector; null for an image of one value.",
    )
    stated: GreyWindow | None = Field(
        default=None, description="The window that the file states; null without one."
    )


class LinkedRendition(Request):
    """Parameters of a rendition."""

    size: Annotated[int, Field(ge=1, le=MAX_SIZE)] | None = Field(
        default=None, description="Longest side in pixels; default: full size."
    )
    window: str = Field(default="auto", description="Centre and width in stored values, or `auto`.")


class LinkWanted(Request):
    """A picture, and how long others may see it."""

    rendition: LinkedRendition | Literal["thumbnail", "content"] = Field(
        default=LinkedRendition(),
        description="The image as it is searched; `thumbnail`: a small picture; `content`: the stored file.",
        examples=[{"size": 1024}],
    )
    expires_in: Annotated[int, Field(ge=1, le=86_400)] = Field(
        default=3600, description="Seconds that the link holds; a day at most."
    )


class PictureLink(Answer):
    """A link to a picture."""

    url: str = Field(description="Path on this server, with parameters and signature.")
    expires: str = Field(description="Time of its end, in UTC.", examples=["2026-03-01T12:00:00Z"])
