import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from tests.training.models.tiny import IMAGE_OPTIONS, SIZE, tiny_pixels
from training.common.errors import RecipeError
from training.models.config import ImageArchitecture, ImageTowerConfig
from training.models.images.towers import ImageTower, build_image_tower, check_image_size

ARCHITECTURES = sorted(IMAGE_OPTIONS)
TOKEN_ARCHITECTURES = ("clip_vision_model", "dinov2", "dinov2_with_registers", "dinov3_vit", "vit")


def build(architecture: ImageArchitecture, **settings: object) -> ImageTower:
    torch.manual_seed(0)
    content = {"architecture": architecture, "options": IMAGE_OPTIONS[architecture], **settings}
    return build_image_tower(ImageTowerConfig.model_validate(content), load_pretrained=True)


def take_statistics(tower: ImageTower, pixels: Tensor) -> None:
    """Without statistics of its own the signal of a random conv net vanishes from layer to layer."""
    for module in tower.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0
    tower.train()(pixels)
    tower.eval()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_returns_pooled_and_local_features(architecture: ImageArchitecture) -> None:
    tower = build(architecture).eval()
    output = tower(tiny_pixels(2))
    regions = 4 if "image_size" in IMAGE_OPTIONS[architecture] and architecture != "clip_resnet" else 1
    assert output.pooled.shape == (2, tower.width)
    assert output.local.shape == (2, regions, tower.local_width)
    assert output.local_mask.all()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_image_alone_equals_the_same_image_in_a_batch(architecture: ImageArchitecture) -> None:
    tower = build(architecture)
    pixels = tiny_pixels(3)
    take_statistics(tower, tiny_pixels(32, seed=1))
    with torch.no_grad():
        together = normalize(tower(pixels).pooled)
        alone = torch.cat([normalize(tower(pixel[None]).pooled) for pixel in pixels])
        backwards = normalize(tower(pixels.flip(0)).pooled).flip(0)
    assert together.std(dim=0).max() > 1e-4
    torch.testing.assert_close(alone, together, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(backwards, together, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_resolved_configuration_rebuilds_the_tower(architecture: ImageArchitecture) -> None:
    tower = build(architecture, pooling="mean").eval()
    config = ImageTowerConfig.model_validate_json(tower.config.model_dump_json())
    again = build_image_tower(config, load_pretrained=False).eval()
    assert again.config == tower.config
    again.load_state_dict(tower.state_dict())
    pixels = tiny_pixels(2)
    assert torch.equal(again(pixels).pooled, tower(pixels).pooled)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_builds_without_memory_on_the_meta_device(architecture: ImageArchitecture) -> None:
    with torch.device("meta"):
        tower = build(architecture)
    assert all(parameter.is_meta for parameter in tower.parameters())


@pytest.mark.parametrize("architecture", TOKEN_ARCHITECTURES)
def test_class_token_is_not_among_the_regions(architecture: ImageArchitecture) -> None:
    tower = build(architecture, pooling="cls").eval()
    output = tower(tiny_pixels(1))
    assert not torch.isclose(output.local, output.pooled[:, None], atol=1e-6).all(dim=-1).any()
    torch.testing.assert_close(build(architecture).eval()(tiny_pixels(1)).pooled, output.pooled)
    assert output.local.shape[1] == 4


@pytest.mark.parametrize("architecture", sorted(set(IMAGE_OPTIONS) - set(TOKEN_ARCHITECTURES)))
def test_refuses_the_class_token_where_there_is_none(architecture: ImageArchitecture) -> None:
    with pytest.raises(RecipeError, match="no class token"):
        build(architecture, pooling="cls")


@pytest.mark.parametrize("architecture", ["dinov2", "dinov2_with_registers", "dinov3_vit"])
def test_takes_any_whole_number_of_patches(architecture: ImageArchitecture) -> None:
    tower = build(architecture).eval()
    assert tower(torch.rand(1, 3, 48, 48)).local.shape[1] == 9
    check_image_size(tower.backbone, 48)
    with pytest.raises(RecipeError, match=r"a multiple of 16 pixels, not 56: .* to 64"):
        check_image_size(tower.backbone, 56)


def test_regions_run_row_by_row() -> None:
    tower = build("resnet", options={**IMAGE_OPTIONS["resnet"], "depths": [1, 1, 1, 1]}).eval()
    pixels = torch.zeros(1, 3, 4 * SIZE, 2 * SIZE)
    changed = pixels.clone()
    changed[:, :, -8:, -8:] = 5.0
    difference = (tower(changed).local - tower(pixels).local).abs().sum(dim=-1)[0]
    assert difference.shape == (8,)
    assert difference.argmax() == 7


def test_attention_pooling_returns_weights_over_regions() -> None:
    output = build("vit", pooling="attention").eval()(tiny_pixels(2))
    torch.testing.assert_close(output.local_weights.sum(dim=1), torch.ones(2))


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_pools_over_regions(pooling: str) -> None:
    output = build("vit", pooling=pooling).eval()(tiny_pixels(2))
    expected = output.local.mean(1) if pooling == "mean" else output.local.amax(1)
    torch.testing.assert_close(output.pooled, expected)


@pytest.mark.parametrize(
    "architecture", ["clip_resnet", "convnext", "efficientnet", "mobilenet_v2", "resnet"]
)
def test_conv_nets_keep_their_weights_channels_last(architecture: ImageArchitecture) -> None:
    kernels = [p for p in build(architecture).parameters() if p.dim() == 4 and min(p.shape[:2]) > 1]
    assert all(kernel.is_contiguous(memory_format=torch.channels_last) for kernel in kernels)


@pytest.mark.parametrize("architecture", ["resnet", "clip_resnet"])
def test_names_an_unknown_option(architecture: ImageArchitecture) -> None:
    with pytest.raises(RecipeError, match="depht"):
        build(architecture, options={"depht": 3})
