"""Settings of random changes of images."""

from typing import Self

from pydantic import Field, model_validator

from training.common.frozen import Frozen


class AugmentationConfig(Frozen):
    """Random changes of an image, in batches on the device; all zero changes nothing.

    ReCo's supplement, section 1, uses flip .5, rotation 20 degrees, translation .1, scale .75-1.25,
    brightness and contrast .4, Gaussian blur of kernel 5 and sigma .1-3.
    """

    flip: float = Field(default=0.0, ge=0, le=1, description="Probability of a horizontal flip.")
    rotation: float = Field(default=0.0, ge=0, le=180, description="Degrees either way.")
    translation: float = Field(default=0.0, ge=0, le=1, description="Share of the side, either way.")
    scale: tuple[float, float] = (1.0, 1.0)
    crop_scale: tuple[float, float] = Field(
        default=(1.0, 1.0), description="Share of the area kept by a random resized crop."
    )
    crop_ratio: tuple[float, float] = Field(
        default=(3 / 4, 4 / 3),
        description="Width over height of such a crop, log-uniform; where ten draws do not fit into the "
        "image, the crop is central and as large as it can be. Without effect where crop_scale keeps all.",
    )
    brightness: float = Field(default=0.0, ge=0, le=1)
    contrast: float = Field(default=0.0, ge=0, le=1)
    blur_kernel: int = Field(default=0, ge=0, description="Odd; 0: no blur.")
    blur_sigma: tuple[float, float] = (0.1, 3.0)

    @property
    def crops(self) -> bool:
        """Whether images are cropped at random."""
        return self.crop_scale != (1.0, 1.0)

    @property
    def moves(self) -> bool:
        """Whether images are resampled."""
        return bool(self.flip or self.rotation or self.translation or self.scale != (1.0, 1.0) or self.crops)

    @property
    def changes(self) -> bool:
        """Whether images are changed at all."""
        return bool(self.moves or self.brightness or self.contrast or self.blur_kernel)

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if self.blur_kernel and self.blur_kernel % 2 == 0:
            raise ValueError("blur_kernel is odd, or 0 for no blur")
        for name in ("scale", "crop_scale", "crop_ratio", "blur_sigma"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ValueError(f"{name} goes from a smaller to a larger number, both above 0")
        if self.crop_scale[1] > 1:
            raise ValueError("crop_scale is a share of the image's area, so at most 1")
        return self
