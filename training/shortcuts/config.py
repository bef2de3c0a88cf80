"""Settings of synthetic shortcuts."""

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from training.common.frozen import Frozen

MAX_BITS = 13


class ShortcutConfig(Frozen):
    """Ids to add, and the modalities that get them; `unique` and `bits:4` are short for the two kinds."""

    kind: Literal["unique", "bits"] = Field(
        description="unique: each image has its own id; bits: a random id of so many bits."
    )
    bits: int | None = Field(
        default=None, ge=0, le=MAX_BITS, description="Bits of an id of kind bits; with 0 every id is 0."
    )
    modalities: tuple[Literal["image", "text"], ...] = Field(
        default=("image", "text"), min_length=1, description="Modalities that the id is added to."
    )
    in_targets: bool = Field(
        default=False, description="Targets of ltd are of texts with their ids; false: of clean ones."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_words(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        kind, colon, bits = value.partition(":")
        return {"kind": kind, **({"bits": bits} if colon else {})}

    @field_validator("modalities", mode="before")
    @classmethod
    def _once_each(cls, modalities: Any) -> Any:
        named = list(modalities) if isinstance(modalities, list | tuple) else []
        if named not in (["image"], ["text"], ["image", "text"], ["text", "image"]):
            raise ValueError("choose [image, text], [image] or [text]")
        return modalities

    @model_validator(mode="after")
    def _kinds_fit(self) -> Self:
        if (self.bits is not None) != (self.kind == "bits"):
            raise ValueError(f"write unique, or bits with a number from 0 to {MAX_BITS}, such as bits:4")
        if self.in_targets and "text" not in self.modalities:
            raise ValueError("in_targets needs ids in texts: add text to modalities, or set it to false")
        return self
