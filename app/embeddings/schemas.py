"""Schemas of embeddings: those of OpenAI's interface, with images as Jina's has them."""

import base64
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from app.edge.schemas import Answer, Request, Text
from app.search.schemas.page import Truncation
from app.search.schemas.query import MAX_SEARCHES
from index.vectors.protocol import Vectors

# As many as searches of a batch, which are encoded in the same way.
MAX_INPUTS: Final = MAX_SEARCHES
_MAX_NAME_LENGTH: Final = 200
_TOKEN_IDS: Final = (
    "Token ids are of the tokenizer of another model: send texts. "
    "LangChain does so with check_embedding_ctx_length=False."
)


class EmbeddingInput(Request):
    """Something to embed: exactly one of a text and an image."""

    text: Text | None = Field(default=None, description="A text.", examples=["a dog in the snow"])
    image: str | None = Field(
        default=None,
        min_length=1,
        description="An image file in base64, or as a data URL; no address, since none is fetched.",
        examples=[None],
    )

    @model_validator(mode="after")
    def _is_one(self) -> "EmbeddingInput":
        if (self.text is None) == (self.image is None):
            raise ValueError("Give exactly one of text and image.")
        return self


def _as_objects(value: Any) -> Any:
    """Write a text as an object with a text, and one input as a list of one."""
    inputs = value if isinstance(value, list) else [value]
    if any(isinstance(one, int | list) for one in inputs[: MAX_INPUTS + 1]):
        raise ValueError(_TOKEN_IDS)
    return [{"text": one} if isinstance(one, str) else one for one in inputs]


class EmbeddingsQuery(Request):
    """Texts and images to embed."""

    model: Annotated[str, Field(min_length=1, max_length=_MAX_NAME_LENGTH)] = Field(
        description="Name or alias of a collection, whose encoder is meant as it is now; or digest or name "
        "of a model that a collection is searched with.",
        examples=["scenes"],
    )
    input: Annotated[
        list[EmbeddingInput],
        Field(fail_fast=True, min_length=1, max_length=MAX_INPUTS),
        BeforeValidator(
            _as_objects,
            json_schema_input_type=str
            | EmbeddingInput
            | Annotated[list[str | EmbeddingInput], Field(min_length=1, max_length=MAX_INPUTS)],
        ),
    ] = Field(description="A text, an image, or a list of them.", examples=[["a dog in the snow"]])
    encoding_format: Literal["float", "base64"] = Field(
        default="float", description="base64: float32 numbers, the lowest byte first."
    )
    dimensions: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Length of the vectors; only that of the model, which cannot shorten them."
    )
    user: Annotated[str, Field(max_length=_MAX_NAME_LENGTH)] | None = Field(
        default=None, description="Taken for the sake of other services' clients, and not looked at."
    )


class Embedding(Answer):
    """The vector of one input, at length one."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    object: Literal["embedding"] = "embedding"
    index: int = Field(description="Position of the input, from 0.")
    embedding: list[float] | str = Field(description="Numbers, or their base64.")

    @classmethod
    def of(cls, index: int, vector: Vectors, encoding_format: Literal["float", "base64"]) -> "Embedding":
        """Write a vector (D,) in the form that was asked for."""
        if encoding_format == "float":
            return cls.model_construct(index=index, embedding=vector.tolist())
        content = np.asarray(vector, dtype="<f4").tobytes()
        return cls.model_construct(index=index, embedding=base64.b64encode(content).decode("ascii"))


class EmbeddingsUsage(Answer):
    """Tokens of the texts that were embedded; images have none."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(Answer):
    """Vectors in the order of the inputs."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str = Field(description="As it was asked for.")
    digest: str = Field(description="Digest of the encoder: vectors of one digest can be compared.")
    truncations: list[Truncation] = Field(description="The texts that were too long for the encoder.")
    usage: EmbeddingsUsage

    @classmethod
    def of(
        cls,
        query: EmbeddingsQuery,
        digest: str,
        vectors: Sequence[Vectors],
        truncations: Sequence[Truncation],
        tokens: int,
    ) -> "Embeddings":
        """Make the answer to a query from its vectors (D,)."""
        return cls.model_construct(
            data=[Embedding.of(place, vector, query.encoding_format) for place, vector in enumerate(vectors)],
            model=query.model,
            digest=digest,
            truncations=list(truncations),
            usage=EmbeddingsUsage(prompt_tokens=tokens, total_tokens=tokens),
        )


EMBEDDINGS_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": f"#/components/schemas/{EmbeddingsQuery.__name__}"}}
        },
    }
}
