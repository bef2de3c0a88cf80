import json
import shutil
from pathlib import Path

import pytest
import torch

from tests.training.models.tiny import (
    IMAGE_OPTIONS,
    image_head,
    saved,
    tiny_config,
    tiny_model,
    tiny_preprocessing,
)
from training.common.errors import BundleError, RecipeError
from training.models import bundle
from training.models.bundle import BundleInfo, read_bundle
from training.models.dual_encoder import DualEncoder

DECIDING = ("config.json", "model.safetensors", "preprocessing.json", "tokenizer.json")
FILES = {*DECIDING, "README.md", "digest.json", "metrics.json", "recipe.yaml"}


def save(folder: Path, model: DualEncoder | None = None) -> BundleInfo:
    return saved(folder, model, metrics={"rsum": 123.5}, recipe_yaml="name: tiny\n")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("bundles") / "tiny").folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "bundle"))


def test_says_what_it_is(folder: Path) -> None:
    info = read_bundle(folder)
    assert {path.name for path in folder.iterdir()} == FILES
    assert (info.name, info.dim, info.metrics, info.recipe) == ("tiny", 12, {"rsum": 123.5}, "name: tiny\n")
    assert info.config == tiny_model().config
    assert info.preprocessing == tiny_preprocessing().config
    assert info.created.endswith("+00:00")
    card = (folder / "README.md").read_text()
    assert info.digest in card
    assert "| rsum | 123.5 |" in card


def test_same_encoder_same_digest_whatever_is_said_about_it(folder: Path, tmp_path: Path) -> None:
    again = saved(tmp_path / "again", name="other")
    assert again.digest == read_bundle(folder).digest
    (folder / "README.md").write_text("nothing")
    (folder / "metrics.json").write_text('{"rsum": 1.0}')
    assert read_bundle(folder).digest == again.digest


def test_one_weight_changes_the_digest(folder: Path, tmp_path: Path) -> None:
    model = tiny_model()
    with torch.no_grad():
        image_head(model).get_parameter("1.bias")[0].add_(1e-6)
    assert save(tmp_path / "other", model).digest != read_bundle(folder).digest


@pytest.mark.parametrize("file", DECIDING)
def test_refuses_a_changed_file(folder: Path, file: str) -> None:
    content = bytearray((folder / file).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / file).write_bytes(content)
    with pytest.raises(BundleError, match=f"{file} is not the file"):
        read_bundle(folder)


@pytest.mark.parametrize("file", sorted(FILES - {"README.md"}))
def test_refuses_a_missing_file(folder: Path, file: str) -> None:
    (folder / file).unlink()
    with pytest.raises(BundleError, match=f"has no {file}"):
        read_bundle(folder)


def edit_seal(folder: Path, **changes: object) -> None:
    content = json.loads((folder / "digest.json").read_text()) | changes
    (folder / "digest.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 2}, "update recoquest"),
        ({"format_version": 0}, "not valid"),
        ({"digest": "0" * 64}, "does not belong"),
        ({"digest": "short"}, "not valid"),
        ({"extra": 1}, "not valid"),
    ],
)
def test_refuses_a_changed_seal(folder: Path, changes: dict[str, object], message: str) -> None:
    edit_seal(folder, **changes)
    with pytest.raises(BundleError, match=message):
        read_bundle(folder)


def test_refuses_a_damaged_folder(folder: Path, tmp_path: Path) -> None:
    for content, message in (("", "not valid JSON"), ("[]", "not a JSON object")):
        (folder / "digest.json").write_text(content)
        with pytest.raises(BundleError, match=message):
            read_bundle(folder)
    with pytest.raises(BundleError, match="no bundle at"):
        read_bundle(tmp_path / "nowhere")


def test_replaces_an_older_bundle_and_leaves_nothing_else(folder: Path) -> None:
    before = read_bundle(folder).digest
    after = save(folder, tiny_model(seed=1))
    assert read_bundle(folder) == after
    assert after.digest != before
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_folder_with_something_else_is_kept(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(BundleError, match=r"is not empty and is no bundle: give a new folder\.$"):
        saved(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    info = saved(tmp_path / "new")
    assert read_bundle(str(info.folder)) == info


def test_a_failure_while_writing_leaves_the_older_bundle(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bundle, "model_card", full)
    before = read_bundle(folder)
    with pytest.raises(BundleError, match="No space left"):
        save(folder, tiny_model(seed=1))
    assert read_bundle(folder) == before
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_is_not_written_with_preprocessing_that_does_not_fit(tmp_path: Path) -> None:
    settings = {"options": {**IMAGE_OPTIONS["vit"], "image_size": 64}}
    with pytest.raises(RecipeError, match="64 pixels"):
        save(tmp_path / "bundle", tiny_model(tiny_config("vit", image_settings=settings)))
    assert not list(tmp_path.iterdir())


def test_the_card_says_how_vectors_are_compared(tmp_path: Path) -> None:
    blades = save(tmp_path / "blades", tiny_model(tiny_config(blades=2)))
    assert "2 x 12 numbers, compared by the cosine of 2-blades" in (blades.folder / "README.md").read_text()
    both = save(tmp_path / "both", tiny_model(tiny_config(branches={}, retrieval="concat")))
    assert "24 numbers (concat information), compared by cosine" in (both.folder / "README.md").read_text()
    assert (blades.dim, both.dim) == (24, 24)
