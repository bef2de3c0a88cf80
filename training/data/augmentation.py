"""Random image augmentation in batches, on the images' device."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from kornia.filters import gaussian_blur2d
from kornia.geometry.transform import get_affine_matrix2d
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from training.data.augmentation_config import AugmentationConfig

# Draws of a crop before the central one is taken, as in torchvision's RandomResizedCrop.
_CROP_DRAWS: Final = 10
_AREAS: Final = ("crop", *(f"crop_{number}" for number in range(1, _CROP_DRAWS)))
_RATIOS: Final = tuple(f"ratio_{number}" for number in range(_CROP_DRAWS))
_COLUMNS: Final = (
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
    *_AREAS[1:],
    *_RATIOS,
)


class Augmentation:
    """Flip, rotate, shift, scale and crop in one resampling, then brightness, contrast and blur.

    The changes only depend on seed, step and view, not on a global random state, so a resumed run sees the
    same images. Pixels outside an image are black.
    """

    def __init__(self, config: AugmentationConfig, seed: int) -> None:
        self.config = config
        self._seed = seed

    def __call__(
        self,
        images: Tensor,
        step: int,
        positions: Tensor | None = None,
        batch_size: int | None = None,
        *,
        view: int = 0,
    ) -> Tensor:
        """Change the images of a step.

        Args:
            images: (b, 3, S, S) in [0, 1].
            step: Number of the step.
            positions: (b,) int64, the images' positions in the batch of the step; None: they are the batch.
            batch_size: B, with `positions`.
            view: Number of the view of the same images.
        """
        draws = self._draw(len(images), step, positions, batch_size, view)
        if self.config.moves:
            images = self._warp(images, draws)
        if self.config.brightness:
            factor = 1 + self.config.brightness * _signed(draws["brightness"])
            images = (images * _per_image(images, factor)).clamp(0, 1)
        if self.config.contrast:
            factor = 1 + self.config.contrast * _signed(draws["contrast"])
            mean = images.mean(dim=(1, 2, 3), keepdim=True)
            images = (mean + (images - mean) * _per_image(images, factor)).clamp(0, 1)
        if self.config.blur_kernel:
            sigma = _between(self.config.blur_sigma, draws["sigma"])
            kernel = (self.config.blur_kernel, self.config.blur_kernel)
            images = gaussian_blur2d(images, kernel, sigma[:, None].expand(-1, 2))
        return images

    def frames(
        self,
        images: Tensor,
        step: int,
        positions: Tensor | None = None,
        batch_size: int | None = None,
        *,
        view: int = 0,
    ) -> Tensor:
        """Coordinate maps of a step's changed images, for the same arguments.

        Returns:
            (b, 2, 3), maps a point (x, y, 1) of a changed image to the point (x, y) of the unchanged one;
            both are unit squares.
        """
        side = images.shape[-1]
        moves = self._matrices(self._draw(len(images), step, positions, batch_size, view), side)
        # The centre of pixel n is n in the matrices, and (n + 0.5) / side in the unit square.
        back = _way_back(moves, [[side, 0, -0.5], [0, side, -0.5], [0, 0, 1]])
        return back.to(images.device, non_blocking=True)

    def _draw(
        self, count: int, step: int, positions: Tensor | None, batch_size: int | None, view: int
    ) -> dict[str, Tensor]:
        """Uniform numbers (b,) for each change, drawn on the CPU to be the same on every device."""
        seeds = (self._seed, step, view) if view else (self._seed, step)
        words = np.random.SeedSequence(seeds).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(words[0]) >> 1)
        drawn = torch.rand((len(_COLUMNS), batch_size or count), generator=generator)
        if positions is not None:
            drawn = drawn[:, positions]
        return dict(zip(_COLUMNS, drawn, strict=True))

    def _warp(self, images: Tensor, draws: dict[str, Tensor]) -> Tensor:
        side = images.shape[-1]
        half = (side - 1) / 2
        # In grid units, -1 and 1 are the centres of the outermost pixels.
        back = _way_back(self._matrices(draws, side), [[half, 0, half], [0, half, half], [0, 0, 1]])
        back = back.to(images.device, images.dtype, non_blocking=True)
        grid = affine_grid(back, list(images.shape), align_corners=True)
        return grid_sample(images, grid, align_corners=True)

    def _matrices(self, draws: dict[str, Tensor], side: int) -> Tensor:
        """(b, 3, 3), map pixels of the unchanged images to those of the changed ones."""
        config = self.config
        shift = torch.stack((_signed(draws["shift_x"]), _signed(draws["shift_y"])), dim=1)
        centre = torch.full_like(shift, (side - 1) / 2)
        turned: Tensor = get_affine_matrix2d(
            translations=torch.zeros_like(shift),
            center=centre,
            scale=_between(config.scale, draws["scale"])[:, None].expand(-1, 2),
            angle=config.rotation * _signed(draws["rotation"]),
        )
        # Enlarge the kept part to the whole square.
        kept, position = self._crop(draws)
        moved = torch.diag_embed(torch.cat((1 / kept, torch.ones_like(kept[:, :1])), dim=1))
        moved[:, :2, 2] = (
            centre
            - centre / kept
            + shift * (config.translation * side)
            + position * (1 - kept) / kept * centre
        )
        return moved @ turned @ _mirror(draws["flip"] < config.flip, side)

    def _crop(self, draws: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Kept shares (b, 2) of width and height, and their position (b, 2) from -1 to 1.

        The first of ten draws of area and aspect ratio that fits into the image, at a random position;
        otherwise the largest central part with an allowed ratio.
        """
        least, most = self.config.crop_ratio
        position = torch.stack((_signed(draws["crop_x"]), _signed(draws["crop_y"])), dim=1)
        if not self.config.crops:
            return torch.ones_like(position), position
        area = _between(self.config.crop_scale, torch.stack([draws[name] for name in _AREAS], dim=1))
        uniform = torch.stack([draws[name] for name in _RATIOS], dim=1)
        ratio = _between((math.log(least), math.log(most)), uniform).exp()
        kept = torch.stack(((area * ratio).sqrt(), (area / ratio).sqrt()), dim=2)
        fits = (kept <= 1).all(dim=2)
        first = fits.int().argmax(dim=1)
        drawn = kept.gather(1, first[:, None, None].expand(-1, 1, 2)).squeeze(1)
        nearest = min(max(1.0, least), most)
        central = drawn.new_tensor([min(1.0, nearest), min(1.0, 1 / nearest)])
        any_fits = fits.any(dim=1, keepdim=True)
        return torch.where(any_fits, drawn, central), torch.where(any_fits, position, 0.0)


def _way_back(moves: Tensor, to_pixels: list[list[float]]) -> Tensor:
    """Inverses (b, 2, 3) of pixel transforms (b, 3, 3), in the units that `to_pixels` maps to pixels."""
    units = moves.new_tensor(to_pixels)
    return (units.inverse() @ moves.inverse() @ units)[:, :2]


def _mirror(flipped: Tensor, side: int) -> Tensor:
    """(B, 3, 3) matrices that mirror left and right where `flipped` is True."""
    matrix = torch.eye(3).repeat(len(flipped), 1, 1)
    matrix[:, 0, 0] = torch.where(flipped, -1.0, 1.0)
    matrix[:, 0, 2] = torch.where(flipped, side - 1.0, 0.0)
    return matrix


def _signed(uniform: Tensor) -> Tensor:
    return 2 * uniform - 1


def _between(limits: Sequence[float], uniform: Tensor) -> Tensor:
    low, high = limits
    return low + (high - low) * uniform


def _per_image(images: Tensor, values: Tensor) -> Tensor:
    """One value per image, as (b, 1, 1, 1) on the images' device."""
    return values.view(-1, 1, 1, 1).to(images.device, non_blocking=True)
