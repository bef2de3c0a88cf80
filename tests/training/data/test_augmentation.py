import math
from itertools import combinations

import numpy as np
import pytest
import torch
from torch import Tensor

from training.data.augmentation import Augmentation
from training.data.augmentation_config import AugmentationConfig

ALL = AugmentationConfig(
    flip=0.5,
    rotation=20,
    translation=0.1,
    scale=(0.75, 1.25),
    crop_scale=(0.6, 1.0),
    brightness=0.4,
    contrast=0.4,
    blur_kernel=5,
)


def images(count: int = 6, side: int = 24, seed: int = 0) -> Tensor:
    return torch.rand((count, 3, side, side), generator=torch.Generator().manual_seed(seed))


def blob(row: int, column: int, side: int = 33, count: int = 64) -> Tensor:
    """Images with one bright square of 3 x 3."""
    batch = torch.zeros((count, 3, side, side))
    batch[:, :, row - 1 : row + 2, column - 1 : column + 2] = 1
    return batch


def centres(batch: Tensor) -> Tensor:
    """Centre of brightness (B, 2) as row and column, from the middle of the image."""
    weights = batch.mean(dim=1)
    places = torch.arange(batch.shape[-1]) - (batch.shape[-1] - 1) / 2
    total = weights.sum(dim=(1, 2))
    rows = (weights.sum(dim=2) * places).sum(dim=1) / total
    return torch.stack((rows, (weights.sum(dim=1) * places).sum(dim=1) / total), dim=1)


@pytest.mark.parametrize("view", [0, 1])
def test_frames_tell_where_what_a_changed_image_shows_comes_from(view: int) -> None:
    """A bright square off the middle, followed back from where it is seen."""
    row, column, side = 20, 11, 33
    change = Augmentation(
        AugmentationConfig(flip=0.5, rotation=20, translation=0.1, scale=(0.75, 1.25), crop_scale=(0.8, 1)), 0
    )
    batch = blob(row, column, side)
    seen = centres(change(batch, 3, view=view)) + (side - 1) / 2
    inside = ((seen > 3) & (seen < side - 4)).all(dim=1)
    assert inside.sum() > 30
    points = torch.cat((seen.flip(1) + 0.5, torch.full((len(seen), 1), float(side))), dim=1) / side
    actual = (change.frames(batch, 3, view=view) @ points.unsqueeze(2)).squeeze(2)
    expected = torch.tensor([column + 0.5, row + 0.5]) / side
    torch.testing.assert_close(actual[inside], expected.expand_as(actual)[inside], rtol=0, atol=0.15 / side)


def test_images_at_some_places_of_a_batch_have_the_frames_of_these() -> None:
    change, batch = Augmentation(ALL, 0), images()
    places = torch.tensor([4, 1])
    assert torch.equal(change.frames(batch[places], 3, places, 6), change.frames(batch, 3)[places])
    nothing = Augmentation(AugmentationConfig(), 0)
    assert torch.equal(nothing(batch, 3), batch)
    unmoved = nothing.frames(batch, 3)
    torch.testing.assert_close(unmoved, torch.eye(2, 3).repeat(6, 1, 1), rtol=0, atol=1e-6)


def test_seed_step_and_view_decide_and_the_global_state_is_left_alone() -> None:
    batch, change = images(1).expand(8, -1, -1, -1), Augmentation(ALL, 0)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = change(batch, 3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert torch.equal(change(batch, 3), first)
    others = [change(batch, 4), Augmentation(ALL, 1)(batch, 3), *(change(batch, 3, view=v) for v in (1, 2))]
    others.append(change(batch, 4, view=1))
    made = [first, *others]
    assert not any(torch.equal(one, other) for one, other in combinations(made, 2))
    assert torch.equal(change(batch, 3, view=1), made[3])
    # Each image is changed in a way of its own, and stays one.
    assert (first.shape, first.dtype) == (batch.shape, torch.float32)
    assert first.min() >= 0
    assert first.max() <= 1 + 1e-6
    assert len({tuple(image.flatten()[:50].tolist()) for image in first}) == 8


def test_flip_mirrors_about_half_of_the_images_exactly() -> None:
    batch = images(200, 8)
    changed = Augmentation(AugmentationConfig(flip=0.5), 0)(batch, 0)
    mirrored = [torch.allclose(new, old.flip(-1), atol=1e-5) for new, old in zip(changed, batch, strict=True)]
    kept = [torch.allclose(new, old, atol=1e-5) for new, old in zip(changed, batch, strict=True)]
    assert all(one or other for one, other in zip(mirrored, kept, strict=True))
    assert 70 < sum(mirrored) < 130


def test_rotation_keeps_the_distance_from_the_middle_and_the_limit_of_degrees() -> None:
    moved = centres(Augmentation(AugmentationConfig(rotation=20), 0)(blob(6, 16), 0))
    radius = moved.norm(dim=1)
    torch.testing.assert_close(radius, torch.full_like(radius, 10.0), rtol=0, atol=0.2)
    degrees = torch.rad2deg(torch.atan2(moved[:, 1], -moved[:, 0]))
    assert degrees.abs().max() <= 20.5
    assert degrees.max() > 10
    assert degrees.min() < -10


def test_translation_is_a_share_of_the_side_in_both_directions() -> None:
    moved = centres(Augmentation(AugmentationConfig(translation=0.2), 0)(blob(16, 16), 0))
    assert moved.abs().max() <= 0.2 * 33 + 0.1
    for axis in (0, 1):
        assert moved[:, axis].max() > 3
        assert moved[:, axis].min() < -3


def test_scale_enlarges_and_shrinks_within_its_limits() -> None:
    moved = centres(Augmentation(AugmentationConfig(scale=(0.75, 1.25)), 0)(blob(8, 16), 0))
    factor = moved[:, 0] / -8
    assert factor.min() >= 0.73
    assert factor.max() <= 1.27
    assert factor.max() - factor.min() > 0.3


def test_crop_never_shows_what_lies_outside() -> None:
    changed = Augmentation(AugmentationConfig(crop_scale=(0.3, 1.0)), 0)(torch.ones(64, 3, 17, 17), 0)
    torch.testing.assert_close(changed, torch.ones_like(changed), rtol=0, atol=1e-4)


def drawn_crops(config: AugmentationConfig, count: int) -> tuple[Tensor, Tensor]:
    """Shares of width and height (N, 2) that crops keep, and where they begin (N, 2)."""
    frames = Augmentation(config, 0).frames(torch.zeros(1).expand(count, 3, 224, 224), 0)
    assert (frames[:, 0, 1] == 0).all()
    assert (frames[:, 1, 0] == 0).all()
    return frames[:, (0, 1), (0, 1)], frames[:, :, 2]


def torchvision_crop(
    generator: np.random.Generator, scale: tuple[float, float], ratio: tuple[float, float], side: int = 224
) -> tuple[int, int]:
    """Width and height of a crop of a square, as RandomResizedCrop's documentation describes them."""
    for _ in range(10):
        area = side * side * generator.uniform(*scale)
        aspect = math.exp(generator.uniform(math.log(ratio[0]), math.log(ratio[1])))
        width, height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < width <= side and 0 < height <= side:
            return width, height
    return side, side


@pytest.mark.parametrize("scale", [(0.08, 1.0), (0.9, 1.0)])
def test_crops_are_drawn_as_by_torchvision(scale: tuple[float, float]) -> None:
    """Quantiles of width, of height and of their ratio over 20,000 crops; half of a quantile is rounding."""
    config, count = AugmentationConfig(crop_scale=scale), 20_000
    kept, start = drawn_crops(config, count)
    generator = np.random.default_rng(0)
    theirs = np.array([torchvision_crop(generator, scale, (3 / 4, 4 / 3)) for _ in range(count)]) / 224
    ours = kept.double().numpy()
    levels = np.linspace(0.02, 0.98, 25)
    for values, expected in (
        (ours[:, 0], theirs[:, 0]),
        (ours[:, 1], theirs[:, 1]),
        (np.log(ours[:, 0] / ours[:, 1]), np.log(theirs[:, 0] / theirs[:, 1])),
    ):
        np.testing.assert_allclose(np.quantile(values, levels), np.quantile(expected, levels), atol=0.012)
    assert ours.prod(axis=1).min() >= scale[0] - 1e-4
    assert start.min() >= -1e-5
    assert (start + kept).max() <= 1 + 1e-5


@pytest.mark.parametrize(
    ("ratio", "kept"), [((2.0, 3.0), (1.0, 0.5)), ((0.25, 0.5), (0.5, 1.0)), ((0.9, 1.2), (1.0, 1.0))]
)
def test_a_crop_that_never_fits_is_the_largest_in_the_middle(
    ratio: tuple[float, float], kept: tuple[float, float]
) -> None:
    config = AugmentationConfig(crop_scale=(0.9999, 1.0), crop_ratio=ratio)
    actual, start = drawn_crops(config, 100)
    central = (actual - torch.tensor(kept)).abs().max(dim=1).values < 1e-4
    assert central.sum() >= 95
    middle = (1 - torch.tensor(kept)) / 2
    torch.testing.assert_close(start[central], middle.expand(int(central.sum()), 2), rtol=0, atol=1e-2)


def test_a_ratio_of_one_keeps_squares_and_a_wrong_one_is_refused() -> None:
    kept, _ = drawn_crops(AugmentationConfig(crop_scale=(0.08, 1.0), crop_ratio=(1, 1)), 100)
    torch.testing.assert_close(kept[:, 0], kept[:, 1])
    for wrong in ((0, 1), (2, 1)):
        with pytest.raises(ValueError, match="crop_ratio"):
            AugmentationConfig(crop_ratio=wrong)


def test_brightness_multiplies() -> None:
    batch = torch.full((64, 3, 4, 4), 0.5)
    factor = Augmentation(AugmentationConfig(brightness=0.4), 0)(batch, 0)[:, 0, 0, 0] / 0.5
    assert factor.min() >= 0.6
    assert factor.max() <= 1.4
    assert factor.max() - factor.min() > 0.5


def test_contrast_keeps_the_mean() -> None:
    batch = 0.3 + 0.4 * images(32)
    changed = Augmentation(AugmentationConfig(contrast=0.4), 0)(batch, 0)
    torch.testing.assert_close(changed.mean(dim=(1, 2, 3)), batch.mean(dim=(1, 2, 3)), rtol=0, atol=1e-5)
    ratio = changed.std(dim=(1, 2, 3)) / batch.std(dim=(1, 2, 3))
    assert ratio.min() >= 0.59
    assert ratio.max() <= 1.41


@pytest.mark.parametrize("kernel", [3, 5])
def test_blur_keeps_flat_images_and_softens_the_others(kernel: int) -> None:
    blur = Augmentation(AugmentationConfig(blur_kernel=kernel, blur_sigma=(0.5, 3.0)), 0)
    flat = torch.full((4, 3, 12, 12), 0.7)
    torch.testing.assert_close(blur(flat, 0), flat)
    batch = images(8)
    assert (blur(batch, 0).std(dim=(1, 2, 3)) < batch.std(dim=(1, 2, 3))).all()
