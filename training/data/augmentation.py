"""Random changes of images in batches, on the device that the images are on."""

from collections.abc import Sequence

import numpy as np
import torch
from kornia.filters import gaussian_blur2d
from kornia.geometry.transform import get_affine_matrix2d, warp_affine
from torch import Tensor

from training.recipes.schema import AugmentationConfig

_COLUMNS = (
    "flip",
    "rotation",
    "shift_x",
    "shift_y",
    "scale",
    "crop",
    "crop_x",
    "crop_y",
    "brightness",
    "contrast",
    "sigma",
)


class Augmentation:
    """Flip, rotate, shift, scale and crop in one resampling, then brightness, contrast and blur.

    What happens to a batch is a function of seed, step and view alone and uses no global random state, so a
    resumed run sees the same images. Pixels from outside an image are black.
    """

    def __init__(self, config: AugmentationConfig, seed: int) -> None:
        self.config = config
        self._seed = seed

    def __call__(
        self,
        images: Tensor,
        step: int,
        places: Tensor | None = None,
        batch_size: int | None = None,
        *,
        view: int = 0,
    ) -> Tensor:
        """Changed images of a step.

        Args:
            images: (b, 3, S, S) in [0, 1].
            step: Number of the step.
            places: (b,) int64, where the images are in the batch of the step; None: they are the batch.
            batch_size: B, with `places`.
            view: Number of the view, of those that an objective takes of the same images.

        Returns:
            (b, 3, S, S) in [0, 1].
        """
        seeds = (self._seed, step, view) if view else (self._seed, step)
        draws = self._draw(batch_size or len(images), seeds, places, images.device)
        if self._moves:
            images = self._warp(images, draws)
        if self.config.brightness:
            factor = 1 + self.config.brightness * _signed(draws["brightness"])
            images = (images * _per_image(factor)).clamp(0, 1)
        if self.config.contrast:
            factor = 1 + self.config.contrast * _signed(draws["contrast"])
            mean = images.mean(dim=(1, 2, 3), keepdim=True)
            images = (mean + (images - mean) * _per_image(factor)).clamp(0, 1)
        if self.config.blur_kernel:
            sigma = _between(self.config.blur_sigma, draws["sigma"])
            kernel = (self.config.blur_kernel, self.config.blur_kernel)
            images = gaussian_blur2d(images, kernel, sigma[:, None].expand(-1, 2))
        return images

    @property
    def _moves(self) -> bool:
        config = self.config
        return bool(
            config.flip
            or config.rotation
            or config.translation
            or config.scale != (1.0, 1.0)
            or config.crop_scale != (1.0, 1.0)
        )

    def _draw(
        self, count: int, seeds: Sequence[int], places: Tensor | None, device: torch.device
    ) -> dict[str, Tensor]:
        """Uniform numbers (b,) for each change; drawn on the CPU, so that every device sees the same."""
        words = np.random.SeedSequence(seeds).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(words[0]) >> 1)
        drawn = torch.rand((len(_COLUMNS), count), generator=generator)
        if places is not None:
            drawn = drawn[:, places]
        return dict(zip(_COLUMNS, drawn.to(device, non_blocking=True), strict=True))

    def _warp(self, images: Tensor, draws: dict[str, Tensor]) -> Tensor:
        side = images.shape[-1]
        config = self.config
        shift = torch.stack((_signed(draws["shift_x"]), _signed(draws["shift_y"])), dim=1)
        # The part that is kept is enlarged to the whole square, and lies anywhere in the image.
        kept = _between(config.crop_scale, draws["crop"]).sqrt()
        place = torch.stack((_signed(draws["crop_x"]), _signed(draws["crop_y"])), dim=1)
        offset = place * ((1 - kept) / kept * (side - 1) / 2)[:, None]
        zoom = _between(config.scale, draws["scale"]) / kept
        matrix = get_affine_matrix2d(
            translations=shift * (config.translation * side) + offset,
            center=torch.full((len(images), 2), (side - 1) / 2, device=images.device),
            scale=zoom[:, None].expand(-1, 2),
            angle=config.rotation * _signed(draws["rotation"]),
        )
        matrix = matrix @ _mirror(draws["flip"] < config.flip, side)
        moved: Tensor = warp_affine(images, matrix[:, :2], (side, side), padding_mode="zeros")
        return moved


def _mirror(flipped: Tensor, side: int) -> Tensor:
    """(B, 3, 3) matrices that mirror left and right where `flipped` is True."""
    matrix = torch.eye(3, device=flipped.device).repeat(len(flipped), 1, 1)
    matrix[:, 0, 0] = torch.where(flipped, -1.0, 1.0)
    matrix[:, 0, 2] = torch.where(flipped, side - 1.0, 0.0)
    return matrix


def _signed(uniform: Tensor) -> Tensor:
    return 2 * uniform - 1


def _between(limits: Sequence[float], uniform: Tensor) -> Tensor:
    low, high = limits
    return low + (high - low) * uniform


def _per_image(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)
