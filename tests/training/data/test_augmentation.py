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
    settings = {
        "flip": 0.5,
        "rotation": 20,
        "translation": 0.1,
        "scale": (0.75, 1.25),
        "crop_scale": (0.8, 1),
    }
    change = Augmentation(AugmentationConfig.model_validate(settings), 0)
    batch = blob(row, column, side)
    seen = centres(change(batch, 3, view=view)) + (side - 1) / 2
    inside = ((seen > 3) & (seen < side - 4)).all(dim=1)
    assert inside.sum() > 30
    points = torch.cat((seen.flip(1) + 0.5, torch.full((len(seen), 1), float(side))), dim=1) / side
    found = (change.frames(batch, 3, view=view) @ points.unsqueeze(2)).squeeze(2)
    wanted = torch.tensor([column + 0.5, row + 0.5]) / side
    torch.testing.assert_close(found[inside], wanted.expand_as(found)[inside], rtol=0, atol=0.15 / side)


def test_images_at_some_places_of_a_batch_have_the_frames_of_these() -> None:
    change, batch = Augmentation(ALL, 0), images()
    places = torch.tensor([4, 1])
    assert torch.equal(change.frames(batch[places], 3, places, 6), change.frames(batch, 3)[places])
    unmoved = Augmentation(AugmentationConfig(), 0).frames(batch, 3)
    torch.testing.assert_close(unmoved, torch.eye(2, 3).repeat(6, 1, 1), rtol=0, atol=1e-6)


def test_nothing_changes_without_settings() -> None:
    batch = images()
    assert torch.equal(Augmentation(AugmentationConfig(), 0)(batch, 3), batch)


def test_step_and_seed_decide_and_the_global_state_is_left_alone() -> None:
    batch = images()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = Augmentation(ALL, 0)(batch, 3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert torch.equal(Augmentation(ALL, 0)(batch, 3), first)
    assert not torch.equal(Augmentation(ALL, 0)(batch, 4), first)
    assert not torch.equal(Augmentation(ALL, 1)(batch, 3), first)


def test_views_of_a_step_are_changed_in_ways_of_their_own() -> None:
    change, batch = Augmentation(ALL, 0), images()
    found = [change(batch, 3, view=view) for view in (0, 1, 2)]
    assert torch.equal(found[0], change(batch, 3))
    assert torch.equal(found[1], change(batch, 3, view=1))
    assert not any(torch.equal(found[one], found[other]) for one, other in ((0, 1), (0, 2), (1, 2)))
    assert not torch.equal(found[1], change(batch, 4, view=1))


def test_images_of_a_batch_are_changed_differently_and_stay_images() -> None:
    batch = images(1).expand(8, -1, -1, -1)
    changed = Augmentation(ALL, 0)(batch, 0)
    assert changed.shape == batch.shape
    assert changed.dtype == torch.float32
    assert changed.min() >= 0
    assert changed.max() <= 1 + 1e-6
    assert len({tuple(image.flatten()[:50].tolist()) for image in changed}) == 8


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


def test_crop_enlarges_by_the_share_it_keeps() -> None:
    gradient = torch.linspace(0, 1, 33).expand(64, 3, 33, 33)
    changed = Augmentation(AugmentationConfig(crop_scale=(0.25, 0.25)), 0)(gradient, 0)
    spread = changed[:, 0, 16, -1] - changed[:, 0, 16, 0]
    torch.testing.assert_close(spread, torch.full_like(spread, 0.5), rtol=0, atol=0.02)
    assert changed[:, 0, 16, 0].std() > 0.05


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
