"""`recoquest index --view` and `--explain`, as a user types them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.e2e.work import Work
from tests.index.samples import CpuAsGpu, make_bundle, make_manifest, make_records
from training.common.manifest import Record, write_manifest


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an indexed collection, to be copied."""
    folder = tmp_path_factory.mktemp("indexed")
    make_bundle(folder / "tiny")
    make_manifest(folder / "data", make_records(15))
    Work(folder).run("index", "c", "--bundle", "tiny", "--data", "data")
    return folder


@pytest.fixture
def work(indexed: Path, tmp_path: Path) -> Work:
    return Work(Path(shutil.copytree(indexed, tmp_path / "work")))


def test_a_view_is_chosen_and_explained(work: Work) -> None:
    lines = work.run("index", "c", "--explain").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["*", "ivf", "mapped", "gpu"]
    assert "a scan takes a few milliseconds" in lines[0]
    # So few are scanned all the same, and found.
    for name in ("ivf", "mapped"):
        lines = work.run("index", "c", "--view", name, "--explain").stdout.splitlines()
        assert [line.split()[1] for line in lines if line.startswith("*")] == [name]
    lines = work.run("index", "c", "--view", "auto", "--explain").stdout.splitlines()
    assert lines[0].startswith("* exact")


def test_one_limit_of_pixels_holds_for_the_command_and_the_setting(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = work.folder / "large" / "images"
    images.mkdir(parents=True)
    draw = np.random.default_rng(0)
    for name, ending in (("photograph", "jpg"), ("drawing", "png")):
        picture = Image.fromarray(draw.integers(0, 256, (40, 50, 3), np.uint8)).resize((800, 640))
        picture.save(images / f"{name}.{ending}")
    records = [Record(name, f"images/{name}.{ending}", "train", texts=(name,)) for name, ending in
               (("photograph", "jpg"), ("drawing", "png"))]  # fmt: skip
    write_manifest(work.folder / "large", records)
    # As recipes set it: a JPEG file is decoded at an eighth of its size here.
    make_bundle(work.folder / "scaled", name="scaled", image={"size": 32, "scaled_decoding": True})
    run = ("index", "large", "--bundle", "scaled", "--data", "large", "--max-rejected", "1")
    done = work.run(*run, "--max-image-pixels", "100000")
    assert "2 lines found = 1 taken (1 added" in done.stdout
    assert "0.512 megapixels; the limit is 0.1 megapixels (RECOQUEST_MAX_IMAGE_PIXELS)" in done.stderr
    monkeypatch.setenv("RECOQUEST_MAX_IMAGE_PIXELS", "100000")
    assert "+ 1 refused" in work.run(*run).stdout
    assert "2 taken (1 added" in work.run(*run, "--max-image-pixels", "1000000").stdout


def test_images_that_were_indexed_are_in_the_audit_trail(work: Work) -> None:
    make_manifest(work.folder / "fewer", make_records(12))
    work.run("index", "c", "--bundle", "tiny", "--data", "fewer", "--prune")
    events = [json.loads(line) for line in work.run("audit", "export", "-").stdout.splitlines()]
    names = [f"image-{number:03}" for number in range(15)]
    created = [event for event in events if event["action"] == "create"]
    assert [name for event in created for name in event["ids"]] == names
    assert created[0]["details"] == {"operation": "index", "created": 15}
    (pruned,) = (event for event in events if event["action"] == "delete")
    assert pruned["ids"] == names[12:]


def test_the_recall_that_was_measured_is_explained(tmp_path: Path) -> None:
    make_bundle(tmp_path / "tiny")
    make_manifest(tmp_path / "data", make_records(70))
    work = Work(tmp_path)
    work.run("index", "c", "--bundle", "tiny", "--data", "data")
    assert "recall" not in work.run("index", "c", "--explain").stdout
    explained = work.run("index", "c", "--view", "ivf", "--explain").stdout.splitlines()[-1]
    # Of few vectors all are looked at.
    assert explained.startswith("recall@10 of ")
    assert "1.000 on the mean, 1.0 of the lowest" in explained


def test_a_gpu_that_is_not_there_is_chosen_for_other_machines_and_named(work: Work) -> None:
    said = work.run("index", "c", "--view", "gpu", "--device", "cpu")
    assert not said.stdout
    assert "choice is kept, but on this machine 'c' is searched by the view 'exact'" in said.stderr
    assert "the device is set to cpu" in said.stderr
    lines = work.run("index", "c", "--explain", "--device", "cpu").stdout.splitlines()
    assert lines[0].startswith("* exact")
    assert "the device is set to cpu" in lines[-1]
    found = work.run("search", "c", "--like", "image-003", "-k", "3", "--json")
    assert "image-0" in found.stdout


def test_the_gpu_that_is_named_is_taken(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[str] = []

    def gpu(name: str) -> CpuAsGpu:
        named.append(name)
        return CpuAsGpu()

    monkeypatch.setattr("app.engine.Gpu", gpu)
    done = work.run("index", "c", "--view", "gpu", "--device", "cuda:7", "--explain")
    assert named == ["cuda:7"]
    assert "The choice is kept" not in done.stderr
    assert done.stdout.splitlines()[-1].startswith("* gpu")
    assert "takes 0.00 GiB of the GPU's memory, and 0.50 GiB while rows" in done.stdout


def test_mistakes_are_one_sentence(work: Work) -> None:
    assert "There is no collection 'other'" in work.run("index", "other", "--explain", code=1).stderr
    assert "'flat'" in work.run("index", "c", "--view", "flat", code=2).stderr
