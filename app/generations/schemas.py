"""Schemas of generations."""

from typing import Literal

from pydantic import Field

from app.edge.schemas import Answer
from index.generations.comparison import Comparison
from index.generations.models import GenerationInfo
from index.search.results import (
    ActiveGeneration,
    ModelInfo,
)


class GenerationName(Answer):
    """Which generation: its number, and the encoder that made its vectors."""

    collection: str
    number: int = Field(description="Number in the addresses of generations.")
    model: str = Field(description="Name of the encoder.")
    digest: str = Field(description="Digest of the encoder.")


class Generation(GenerationName):
    """One generation of a collection."""

    state: Literal["building", "active", "retired"]
    images: int = Field(description="Images that have a vector in it.")
    texts: int = Field(description="Texts that have one.")
    missing: int = Field(description="Images of the collection that have none in it.")
    created: str | None
    activated: str | None = Field(description="Time of its latest activation.")
    comparison: Comparison | None = Field(
        description="Measured on held-out images against the one that was active."
    )

    @classmethod
    def of(cls, info: GenerationInfo) -> "Generation":
        """Describe a generation."""
        return cls.model_validate(info, from_attributes=True)


class Generations(Answer):
    """All generations of a collection, the latest first."""

    generations: list[Generation]


CosineKind = Literal["cosine", "blade_cosine", "absolute_cosine"]


def cosine_kind(by: ActiveGeneration | ModelInfo) -> CosineKind:
    """Kind of cosine that compares the vectors of an encoder."""
    if by.unsigned:
        return "absolute_cosine"
    return "cosine" if by.blades == 1 else "blade_cosine"
